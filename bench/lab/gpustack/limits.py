"""A load that ends early: after a time, after a number of failures, or above a share of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.clock import SYSTEM, Clock
from bench.ports import LoadGenerator, LoadPlan
from bench.records import LoadProgress, LoadResult
from bench.units import NS_PER_S

_FEWEST = 10
"""Requests below which a share of failures says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None: no such limit. `max_error_rate` is a share."""

    max_seconds: float | None = None
    max_errors: int | None = None
    max_error_rate: float | None = None

    def capped(self, max_seconds: float | None) -> Limits:
        """The same with a limit of time."""
        return replace(self, max_seconds=max_seconds)

    def reached(self, seen: LoadProgress | None, elapsed_s: float) -> str | None:
        """Which limit stops the load, in words; None while none does."""
        if self.max_seconds is not None and elapsed_s >= self.max_seconds:
            return f"stopped after {self.max_seconds:g} s"
        if seen is None:
            return None
        ended = seen.completed + seen.failed
        if self.max_errors is not None and seen.failed > self.max_errors:
            return f"stopped after {seen.failed} failed requests"
        share = seen.failed / ended if ended >= _FEWEST else 0.0
        if self.max_error_rate is not None and share > self.max_error_rate:
            return f"stopped with {share:.0%} of the requests failed"
        return None


class LimitedLoad:
    """A `LoadGenerator` that stops another one at the limits of each case."""

    def __init__(self, load: LoadGenerator, limits_of: Callable[[LoadPlan], Limits], clock: Clock = SYSTEM) -> None:
        self._load = load
        self._limits_of = limits_of
        self._clock = clock

    def run(
        self, plan: LoadPlan, on_progress: Callable[[LoadProgress], None], should_stop: Callable[[], str | None]
    ) -> LoadResult:
        limits, seen = self._limits_of(plan), _Seen()

        def glance(progress: LoadProgress) -> None:
            seen.at(progress, self._clock.monotonic_ns())
            on_progress(progress)

        def stop() -> str | None:
            return should_stop() or limits.reached(seen.last, seen.elapsed_s(self._clock.monotonic_ns()))

        return self._load.run(plan, glance, stop)


@dataclass(slots=True)
class _Seen:
    """The last glance, and when the load began [ns]: preparing it takes no time of it."""

    last: LoadProgress | None = None
    began_ns: int | None = None

    def at(self, progress: LoadProgress, now_ns: int) -> None:
        self.last = progress
        if self.began_ns is None:
            self.began_ns = now_ns - round(progress.elapsed_s * NS_PER_S)

    def elapsed_s(self, now_ns: int) -> float:
        return 0.0 if self.began_ns is None else (now_ns - self.began_ns) / NS_PER_S
