"""A slow reading (a tool, a web page) taken again and again in a thread, so that a tick never waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bench.clock import Clock
from bench.probes.values import Unavailable
from bench.units import NS_PER_S

T = TypeVar("T")
STALE_PERIODS = 3.0
SHORTEST_STALE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken(Generic[T]):
    """A value and the monotonic clock on either side of reading it [ns]."""

    value: T
    before_ns: int
    after_ns: int


def stale_after_s(period_s: float) -> float:
    """How old a value of a source with this period may be [s]."""
    return max(STALE_PERIODS * period_s, SHORTEST_STALE_S)


class Poller(Generic[T]):
    """Calls `read` every `period_s`. `read` raises Unavailable where there is nothing to give."""

    def __init__(self, name: str, read: Callable[[], T], period_s: float, clock: Clock, *, stale_s: float | None = None) -> None:
        self._read = read
        self._period_s = period_s
        self._stale_s = stale_s
        self._clock = clock
        self._changed = threading.Condition()
        self._taken: Taken[T] | None = None
        self._failure: str | None = None
        self._stop = threading.Event()
        threading.Thread(target=self._run, name=f"poll-{name}", daemon=True).start()

    def first(self, timeout_s: float) -> Taken[T]:
        """The first value, waited for. Raises: Unavailable when reading fails or takes longer."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken is not None or self._failure is not None, timeout_s)
            if self._taken is not None:
                return self._taken
            raise Unavailable(self._failure or f"no answer within {timeout_s:g} s", lasting=False)

    def latest(self) -> Taken[T]:
        """The newest value. Raises: Unavailable when it is older than a few periods, with the last failure."""
        stale_s = stale_after_s(self._period_s) if self._stale_s is None else self._stale_s
        with self._changed:
            if self._taken is None or self._clock.monotonic_ns() - self._taken.after_ns > stale_s * NS_PER_S:
                raise Unavailable(self._failure or "no fresh value", lasting=False)
            return self._taken

    def span(self) -> tuple[int, int] | None:
        """When the newest value was taken [ns]; None where there is none."""
        with self._changed:
            return None if self._taken is None else (self._taken.before_ns, self._taken.after_ns)

    def close(self) -> None:
        """Read no more. A read under way ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            before_ns = self._clock.monotonic_ns()
            self._once(before_ns)
            took_s = (self._clock.monotonic_ns() - before_ns) / NS_PER_S
            self._stop.wait(max(self._period_s - took_s, 0.05))

    def _once(self, before_ns: int) -> None:
        try:
            value = self._read()
        except Unavailable as error:
            with self._changed:
                self._failure = str(error)
                self._changed.notify_all()
            return
        after_ns = self._clock.monotonic_ns()
        with self._changed:
            self._taken, self._failure = Taken(value=value, before_ns=before_ns, after_ns=after_ns), None
            self._changed.notify_all()
