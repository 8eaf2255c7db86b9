"""The only module that reads time.

Every stamp in the project is `monotonic_ns()`: `time.perf_counter_ns()`, which on Linux (CLOCK_MONOTONIC) and macOS
(mach_absolute_time) is one timebase for every process of the host. Wall time only ties a trial to a date.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from bench.records import ClockAnchor


class Clock(Protocol):
    """What time-dependent code takes, so that tests can hand in a `FakeClock`."""

    def monotonic_ns(self) -> int:
        """Monotonic time [ns]."""
        ...

    def wall_ns(self) -> int:
        """Unix time [ns]."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


class SystemClock:
    """The real one."""

    def monotonic_ns(self) -> int:
        return time.perf_counter_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class FakeClock:
    """A clock that moves only when told to: `sleep` advances it at once."""

    def __init__(self, monotonic_ns: int = 1_000_000_000, wall_ns: int = 1_790_000_000_000_000_000) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def wall_ns(self) -> int:
        return self._wall_ns

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        step = round(seconds * 1e9)
        self._monotonic_ns += step
        self._wall_ns += step


SYSTEM = SystemClock()


def anchor(clock: Clock = SYSTEM) -> ClockAnchor:
    """One (monotonic, wall) pair [ns], read as close together as Python can."""
    before = clock.monotonic_ns()
    wall = clock.wall_ns()
    after = clock.monotonic_ns()
    return ClockAnchor(monotonic_ns=(before + after) // 2, wall_ns=wall)


def iso_utc(wall_ns: int) -> str:
    """Unix time [ns] as `2026-11-30T12:00:00.123Z`."""
    moment = datetime.fromtimestamp(wall_ns / 1e9, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
