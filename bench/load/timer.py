"""Wake-ups at a moment of the monotonic clock, finer than the millisecond of an event loop's own timers."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from time import perf_counter_ns

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1


class _Interval(ctypes.Structure):
    """`struct itimerspec`: interval, then first expiry, each in seconds and nanoseconds."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class MomentTimer:
    """Calls back at a moment set beforehand: by `timerfd` on Linux (tens of microseconds), else by the loop (1 ms)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop, self._call = loop, call
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd = -1
        if self._libc is not None:
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._fired)

    def set(self, when_ns: int) -> None:
        """Call back at `when_ns`, at once where that is past. Replaces what was set before."""
        if self._fd >= 0 and self._libc is not None:
            seconds, rest = divmod(max(when_ns, 1), 1_000_000_000)
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(_Interval(0, 0, seconds, rest)), None)
        else:
            self._loop.call_later(max(0.0, (when_ns - perf_counter_ns()) / 1e9), self._call)

    def close(self) -> None:
        """No more calls."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fired(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        self._call()
