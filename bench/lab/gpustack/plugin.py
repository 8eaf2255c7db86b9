"""`gpustack benchmark ...` in the installed GPUStack CLI, through its entry-point group `gpustack.plugins`.

That door is for the arguments of `gpustack start`: a plug-in is asked for them while the parser is built, whatever the command
is, and that is the moment to take over. `bench` then replaces the process, so that nothing of GPUStack runs beside what is
measured. `gpustack --help` does not list the command.

Source: gpustack 2.3.0, gpustack/main.py, gpustack/extension.py, gpustack/cmd/start.py.
"""

from __future__ import annotations

import argparse
import os
import sys

from gpustack.extension import Plugin

_COMMAND = "benchmark"

if not hasattr(Plugin, "setup_start_cmd"):  # GPUStack prints the text of this with its warning that a plug-in did not load
    raise ImportError(
        "this GPUStack does not ask its plug-ins while it parses: use gpustack-benchmark instead of gpustack benchmark"
    )


class BenchmarkPlugin(Plugin):  # type: ignore[misc]  # gpustack is not installed where types are checked
    """Adds nothing to a server; takes over a command line that says `benchmark`."""

    @classmethod
    def setup_start_cmd(cls, parser: argparse.ArgumentParser) -> None:
        """Replace the process with `bench gpustack benchmark` where that is what was typed."""
        del parser
        if sys.argv[1:2] == [_COMMAND]:
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-m", "bench", "gpustack", *sys.argv[1:]])  # noqa: S606 - our own command
