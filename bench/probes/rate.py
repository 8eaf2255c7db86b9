"""When to poll: as often as asked, unless the calls cost too much or the sensors renew too rarely for it to tell more."""

from __future__ import annotations

import random

from bench.units import NS_PER_S

JITTER = 0.1
"""Each tick is moved by up to this share of the period, so that polls don't lock onto a sensor's own rhythm."""
MOST_CORE_SHARE = 0.01
"""CPU that sampling may take, of one core."""
POLLS_PER_UPDATE = 2
"""Polls in one update period: with fewer a value could be missed."""
SLOWEST_FOR_UPDATES_S = 0.5
"""A slow power sensor is no reason to read memory and limits less often than this."""
SLOWEST_S = 10.0


def poll_period_s(asked_s: float, tick_cpu_s: float, update_s: float | None) -> float:
    """Seconds between polls. `asked_s` is the shortest that anyone wants; `tick_cpu_s` the CPU seconds of reading every
    device once; `update_s` the period of the fastest sensor, None where it isn't known.
    """
    for_updates_s = 0.0 if update_s is None else min(update_s / POLLS_PER_UPDATE, SLOWEST_FOR_UPDATES_S)
    return max(asked_s, for_updates_s, min(tick_cpu_s / MOST_CORE_SHARE, SLOWEST_S))


class Schedule:
    """Absolute tick times [ns]: start + k*period, jittered. A late caller skips ticks instead of bunching them."""

    def __init__(self, start_ns: int, period_s: float, rng: random.Random) -> None:
        self._start_ns = start_ns
        self._period_ns = round(period_s * NS_PER_S)
        self._rng = rng
        self._tick = 0

    def next_ns(self, now_ns: int) -> int:
        """When the next tick is due: never the same tick twice."""
        passed = (now_ns - self._start_ns) // self._period_ns
        self._tick = max(self._tick + 1, passed + 1)
        shift = self._rng.uniform(-JITTER, JITTER) * self._period_ns
        return self._start_ns + self._tick * self._period_ns + round(shift)
