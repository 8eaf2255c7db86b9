"""Asks an engine for its own counters while a load runs, in a thread: one that answers late delays nothing."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from bench.clock import Clock
from bench.ports import Engine
from bench.records import EngineSamples

PERIOD_S = 1.0
MOST_SAMPLES = 600
"""More are thinned out, every second one, and asked for half as often: memory does not grow with the run."""
_LATEST_ANSWER_S = 6.0


class EngineWatch:
    """Counters of `engine` from `first` on, for as long as its `with` block lasts. One that has none is not asked."""

    def __init__(self, engine: Engine, clock: Clock, first: Mapping[str, float], period_s: float = PERIOD_S) -> None:
        self._engine = engine
        self._clock = clock
        self._period_s = period_s
        self._taken = [(clock.monotonic_ns(), dict(first))] if first else []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="engine-watch", daemon=True)

    def __enter__(self) -> Self:
        if self._taken:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def samples(self) -> EngineSamples:
        """All that it told, with a last answer from now. Nothing is asked afterwards."""
        if not self._taken:
            return EngineSamples()
        self._end()
        if self._engine.failure() is None:
            self._take()
        names = sorted({name for _, counters in self._taken for name in counters})
        return EngineSamples(
            at_ns=tuple(at_ns for at_ns, _ in self._taken),
            counters={name: tuple(_finite(counters.get(name)) for _, counters in self._taken) for name in names},
        )

    def _end(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_LATEST_ANSWER_S)

    def _ask(self) -> None:
        while not self._over.wait(self._period_s):
            self._take()
            if len(self._taken) >= MOST_SAMPLES:
                self._taken = self._taken[::2]
                self._period_s *= 2.0

    def _take(self) -> None:
        counters = self._engine.server_metrics()
        if counters:
            self._taken.append((self._clock.monotonic_ns(), counters))


def _finite(value: float | None) -> float | None:
    """A gauge that is NaN tells nothing, and has no place in JSON."""
    return value if value is not None and math.isfinite(value) else None
