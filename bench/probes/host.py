"""Starts probe children by name."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import bench
from bench import plugins
from bench.ports import ProbeStream
from bench.probes.presence import opened_by_signs
from bench.probes.stream import DISCOVERY_DEADLINE_S, ChildProbeStream, EndedStream

FORCE = "BENCH_PROBES"
"""Environment: a comma list of probes to open instead of those that look worth it."""


class ChildProbeHost:
    """Opens each probe in a child process of its own. `extra_env` is for the children (library paths, fake roots)."""

    def __init__(self, extra_env: Mapping[str, str] | None = None, *, deadline_s: float = DISCOVERY_DEADLINE_S) -> None:
        self._extra_env = dict(extra_env or {})
        self._deadline_s = deadline_s

    def names(self) -> tuple[str, ...]:
        """`cpu`, every vendor with a sign of its card or its library, meters that the environment names, and probes installed
        from outside.
        """
        env = {**os.environ, **self._extra_env}
        forced = tuple(name.strip() for name in env.get(FORCE, "").split(",") if name.strip())
        if forced:
            return forced
        outside = [name for name in plugins.names("bench.probes") if name not in plugins.PROBES]
        return ("cpu", *opened_by_signs(env), *outside)

    def open(self, name: str, period_s: float) -> ProbeStream:
        """A stream that samples every `period_s`; one that has already ended where the child can't be started."""
        options = ["--period", repr(period_s), "--parent", str(os.getpid())]
        command = [sys.executable, "-P", "-m", "bench.probes.child", name, *options]
        if threading.current_thread() is threading.main_thread():
            command.append("--die-with-parent")
        try:
            return ChildProbeStream(name, command, self._child_env(), period_s, deadline_s=self._deadline_s)
        except OSError as error:
            return EndedStream(name, f"the {name} probe could not be started: {error}")

    def _child_env(self) -> dict[str, str]:
        """`-P` keeps the user's folder off the child's path (a `bench.py` there would shadow us), so ours is named."""
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **self._extra_env}
        package_root = Path(bench.__file__).resolve().parents[1]
        if package_root.name not in ("site-packages", "dist-packages"):
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package_root), env.get("PYTHONPATH")]))
        return env
