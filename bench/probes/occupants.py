"""Whose processes are on a board: those of the engine, or somebody else's.

A driver tells process ids of the host. Inside a container they can't be looked up; there, what was on the board at the first
look, before the engine started, is known to be foreign, and nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import psutil

from bench.probes.presence import Roots


class Occupants:
    """Tells foreign processes from those of the watched trees and of the harness itself."""

    def __init__(self, roots: Roots, harness_pid: int | None = None) -> None:
        self._ours = {os.getppid() if harness_pid is None else harness_pid}
        self._host_view = _sees_the_host(roots)
        self._before: dict[str, set[int]] = {}
        self._engine_known = False

    def watch(self, pids: Iterable[int]) -> None:
        """These trees are the engine's."""
        self._ours.update(pids)
        self._engine_known = True

    def foreign(self, uid: str, pids: Iterable[int]) -> float:
        """How many of `pids`, which are on device `uid`, are not ours. Those that came after the first look count once the
        engine's are told: until then they may be the engine's, which is starting.
        """
        seen = set(pids)
        before = self._before.setdefault(uid, set() if self._engine_known else seen)
        if not self._host_view:
            return float(len(seen & before))
        return float(sum(not self._is_ours(pid) for pid in (seen if self._engine_known else seen & before)))

    def engine_bytes(self, holds: Mapping[int, int | None]) -> int | None:
        """What the engine's processes hold of a device, from what each process holds [bytes]; None where that is not told."""
        if not self._engine_known or not self._host_view:
            return None
        ours = [held for pid, held in holds.items() if pid in self._ours or self._is_ours(pid)]
        return None if None in ours else sum(held for held in ours if held is not None)

    def _is_ours(self, pid: int) -> bool:
        if pid in self._ours:
            return True
        try:
            ancestors = {parent.pid for parent in psutil.Process(pid).parents()}
        except psutil.NoSuchProcess:
            return True  # it has just ended: nothing to accuse
        except psutil.AccessDenied:
            return False
        if ancestors.isdisjoint(self._ours):
            return False
        self._ours.add(pid)  # it stays ours when its parent ends before it
        return True


def _sees_the_host(roots: Roots) -> bool:
    """Whether process ids here are those of the host: its second process is then the kernel's own."""
    try:
        return (roots.proc / "2/comm").read_text().strip() == "kthreadd"
    except OSError:
        return False
