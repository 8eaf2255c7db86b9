"""Starts probe children by name."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import bench
from bench import plugins
from bench.errors import UsageError
from bench.ports import ProbeStream
from bench.probes.presence import opened_by_signs
from bench.probes.stream import DISCOVERY_DEADLINE_S, ChildProbeStream, EndedStream

FORCE = "BENCH_PROBES"
"""Environment: a comma list of probes to open instead of those that look worth it."""
_QUOTED_CHARS = 40


def _forced(listed: str) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))
    if all(name in plugins.PROBES for name in wanted):
        return wanted
    known = plugins.names("bench.probes")
    unknown = next((name for name in wanted if name not in known), None)
    if unknown is None:
        return wanted
    near = get_close_matches(unknown[:_QUOTED_CHARS], known, n=1)
    did_you_mean = f". Did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"{FORCE} names {unknown[:_QUOTED_CHARS]!r}, which is no probe{did_you_mean}", hint=f"known: {', '.join(known)}"
    )


class ChildProbeHost:
    """Opens each probe in a child process of its own. `extra_env` is for the children (library paths, fake roots)."""

    def __init__(self, extra_env: Mapping[str, str] | None = None, *, deadline_s: float = DISCOVERY_DEADLINE_S) -> None:
        self._extra_env = dict(extra_env or {})
        self._deadline_s = deadline_s

    def names(self) -> tuple[str, ...]:
        """`cpu`, every vendor with a sign of its card or its library, meters that the environment names, and probes installed
        from outside. Raises: UsageError where `BENCH_PROBES` names one that does not exist.
        """
        env = {**os.environ, **self._extra_env}
        if forced := _forced(env.get(FORCE, "")):
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
