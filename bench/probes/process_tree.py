"""Memory [bytes] and CPU use [share of the host] of a process and all it started.

Memory is the sum of resident set sizes: pages shared by several processes of the tree count once for each. The fairer PSS
would need `smaps_rollup`, which walks every page table entry of the engine while holding its memory map: it would disturb
what is being measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from bench.clock import SYSTEM, Clock
from bench.units import NS_PER_S

_SCAN_EVERY_S = 1.0
_SCAN_SHARE = 200
"""A scan for new children reads every process of the host: it may take at most 1/200 of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """None: not observed this time, or the tree has ended."""

    memory_b: int | None
    utilisation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """CPU seconds of one process so far: its own, and those of children it has waited for."""

    own_s: float
    waited_s: float


def cpu_spent_s(before: dict[int, CpuTimes], after: dict[int, CpuTimes]) -> float:
    """CPU seconds that a tree used between two looks, including processes that were born or ended in between. Never < 0.

    A process that ended inside the tree hands all its seconds to the one that waited for it, also those already counted:
    these are taken off. One that nobody in the tree waited for adds what it was last seen with, and no more.
    """
    zero = CpuTimes(own_s=0.0, waited_s=0.0)
    own_s = sum(now.own_s - before.get(pid, zero).own_s for pid, now in after.items())
    handed_on_s = sum(now.waited_s - before.get(pid, zero).waited_s for pid, now in after.items())
    counted_s = sum(then.own_s + then.waited_s for pid, then in before.items() if pid not in after)
    return max(own_s, 0.0) + max(handed_on_s - counted_s, 0.0)


class ProcessTree:
    """The tree under one pid. Children stay members after their parent ends, so a double fork does not leave it."""

    def __init__(self, pid: int, clock: Clock = SYSTEM) -> None:
        self.host_memory_b: int = psutil.virtual_memory().total
        self._clock = clock
        self._cores = psutil.cpu_count() or 1
        self._members: dict[int, psutil.Process] = {}
        self._times: dict[int, CpuTimes] = {}
        self._scan_due_ns = 0
        self._looked_ns = clock.monotonic_ns()
        try:
            self._members[pid] = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return
        self._scan()
        self._times = self._cpu_times()

    def sample(self) -> Use:
        """Memory at each call; CPU use only when the tree was scanned for new children, over the time since the last scan."""
        memory_b = self._memory_b()
        if not self._members:
            return Use(memory_b=None, utilisation=None)
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._scan_due_ns:
            return Use(memory_b=memory_b, utilisation=None)
        looked_ns, before = self._looked_ns, self._times
        self._scan()
        self._times = self._cpu_times()
        wall_s = (self._looked_ns - looked_ns) / NS_PER_S
        spent_s = cpu_spent_s(before, self._times)
        return Use(memory_b=memory_b, utilisation=spent_s / wall_s / self._cores if wall_s > 0 else None)

    def _scan(self) -> None:
        """One look at the host for each subtree: a single one unless a member was orphaned."""
        start_ns = self._clock.monotonic_ns()
        seen: set[int] = set()
        for pid, process in list(self._members.items()):
            if not process.is_running():  # also when the number now belongs to another process
                del self._members[pid]
            elif pid not in seen:
                seen.update(self._adopt_children(process))
        end_ns = self._clock.monotonic_ns()
        self._scan_due_ns = end_ns + max(round(_SCAN_EVERY_S * NS_PER_S), (end_ns - start_ns) * _SCAN_SHARE)

    def _adopt_children(self, process: psutil.Process) -> set[int]:
        try:
            children = process.children(recursive=True)
        except psutil.Error:
            return set()
        for child in children:
            self._members.setdefault(child.pid, child)
        return {child.pid for child in children}

    def _cpu_times(self) -> dict[int, CpuTimes]:
        times = {}
        for pid, process in list(self._members.items()):
            try:
                now = process.cpu_times()
            except psutil.NoSuchProcess:
                del self._members[pid]
            except psutil.AccessDenied:
                continue
            else:
                waited_s = getattr(now, "children_user", 0.0) + getattr(now, "children_system", 0.0)
                times[pid] = CpuTimes(own_s=now.user + now.system, waited_s=waited_s)
        self._looked_ns = self._clock.monotonic_ns()
        return times

    def _memory_b(self) -> int | None:
        """None when no member could be read."""
        seen_b: list[int] = []
        for pid, process in list(self._members.items()):
            try:
                seen_b.append(process.memory_info().rss)
            except psutil.ZombieProcess:
                continue  # holds no memory any more, but its CPU seconds still count
            except psutil.NoSuchProcess:
                del self._members[pid]
            except psutil.AccessDenied:
                continue
        return sum(seen_b) if seen_b else None
