"""One timer for all streams: a heap of absolute due times, and a clock that wakes at the earliest."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from bench.clock import SYSTEM
from bench.units import NS_PER_S

COALESCE_NS = 250_000
"""Shortest sleep between two rounds: at high rates many streams share a wake-up, at low rates it costs nothing [ns]."""
ROUND_NS = 2_000_000
"""Longest round before the loop may read again [ns]."""

now_ns = SYSTEM.monotonic_ns


class Timed(Protocol):
    """A stream with writes still to come."""

    def write_due(self, due_ns: int) -> int | None:
        """Write what is due; returns when the next write is due [ns], or None at the end."""
        ...


class Alarm(Protocol):
    """Calls back once at a time."""

    def set(self, at_ns: int) -> None:
        """Call back at `at_ns`, instead of any earlier wish."""
        ...

    def close(self) -> None: ...


class LoopAlarm:
    """Through the event loop's own timers (uvloop rounds them to a millisecond)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at_ns: int) -> None:
        self.close()
        self._handle = self._loop.call_later(max(0, at_ns - now_ns()) / NS_PER_S, self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval_s", ctypes.c_long), ("interval_ns", ctypes.c_long), ("s", ctypes.c_long), ("ns", ctypes.c_long))


class TimerfdAlarm:
    """Linux timerfd on CLOCK_MONOTONIC, the clock of the stamps, read by the loop: microseconds instead of its timers'
    millisecond. Source: timerfd_create(2); `os.timerfd_create` needs Python 3.13.
    """

    _CLOCK_MONOTONIC = 1
    _TFD_TIMER_ABSTIME = 1

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        self._fd: int = libc.timerfd_create(self._CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._loop, self._ring = loop, ring
        self._spec = _Itimerspec()
        self._spec_ref = ctypes.byref(self._spec)
        loop.add_reader(self._fd, self._on_readable)

    def set(self, at_ns: int) -> None:
        self._spec.s, self._spec.ns = divmod(max(1, at_ns), NS_PER_S)
        self._settime(self._fd, self._TFD_TIMER_ABSTIME, self._spec_ref, None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _on_readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set again since it fired
            return
        self._ring()


def new_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
    """The finest alarm that this system has."""
    if platform.system() == "Linux":
        return TimerfdAlarm(loop, ring)
    return LoopAlarm(loop, ring)


class Schedule:
    """Calls each stream's `write_due` at its absolute time; lateness never moves later due times."""

    def __init__(self, new: Callable[[Callable[[], None]], Alarm]) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._added = 0
        self._alarm = new(self._round)
        self._alarm_ns: int | None = None
        self._in_round = False

    def add(self, due_ns: int, stream: Timed) -> None:
        """`stream` has its first write due at `due_ns`."""
        self._added += 1
        heappush(self._heap, (due_ns, self._added, stream))
        if not self._in_round and (self._alarm_ns is None or due_ns < self._alarm_ns):
            self._set(due_ns)

    def close(self) -> None:
        """Write nothing more."""
        self._heap.clear()
        self._alarm.close()

    def _set(self, at_ns: int) -> None:
        self._alarm_ns = at_ns
        self._alarm.set(at_ns)

    def _round(self) -> None:
        self._in_round = True
        heap, now = self._heap, now_ns()
        until_ns = now + ROUND_NS
        try:
            while heap and heap[0][0] <= now < until_ns:
                due_ns, order, stream = heappop(heap)
                next_ns = stream.write_due(due_ns)
                if next_ns is not None:
                    heappush(heap, (next_ns, order, stream))
                now = now_ns()
        finally:
            self._in_round = False
            self._alarm_ns = None
            if heap:
                self._set(now if heap[0][0] <= now else max(heap[0][0], now + COALESCE_NS))
