"""How long the harness waits for its workers once the load is over: they parse what they saw, and may be stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bench.clock import Clock
from bench.errors import LoadError
from bench.load.messages import Done
from bench.units import NS_PER_S

PATIENCE_S = 60.0
SLOWEST_PARSE_B_S = 1 << 20
"""Bytes a second below which parsing has stopped, not slowed down: it makes tens of megabytes a second on one core."""
STOPPED_PATIENCE_S = 5.0
STOPPED_PARSE_B_S = 8 << 20
"""Where a person has asked us to stop, they get what is parsed at a usual pace."""
_POLL_S = 0.1


class Crew(Protocol):
    """What is needed of `bench.load.crew.Crew`."""

    def __len__(self) -> int: ...

    def hear(self, timeout_s: float) -> list[tuple[int, object]]: ...

    def finished(self, workers: list[int]) -> None: ...


def patience_s(spilled_b: int, *, stopped: bool) -> float:
    """How long parsing may take [s]: in proportion to what was kept."""
    if stopped:
        return STOPPED_PATIENCE_S + spilled_b / STOPPED_PARSE_B_S
    return PATIENCE_S + spilled_b / SLOWEST_PARSE_B_S


def await_done(
    crew: Crew, folder: Path, clock: Clock, should_stop: Callable[[], str | None], *, stopped: bool
) -> dict[int, Done]:
    """The last word of each worker. `stopped`: the load was cut short already.

    Raises: LoadError once patience is at its end; the raw events stay in `folder`.
    """
    begun_ns = clock.monotonic_ns()
    limit_s = patience_s(spilled_b(folder), stopped=stopped)
    heard: dict[int, Done] = {}
    while True:
        for worker, message in crew.hear(_POLL_S):
            if isinstance(message, Done):
                crew.finished([worker])  # it leaves now, while others may still parse
                heard[worker] = message
        if len(heard) == len(crew):
            return heard
        waited_s = (clock.monotonic_ns() - begun_ns) / NS_PER_S
        if not stopped and should_stop() is not None:
            stopped, limit_s = True, min(limit_s, waited_s + STOPPED_PATIENCE_S)
        if waited_s >= limit_s:
            missing = ", ".join(str(worker) for worker in range(len(crew)) if worker not in heard)
            raise LoadError(
                f"load worker {missing} did not finish reading its events within {waited_s:.0f} s"
                + (" after it was asked to stop" if stopped else ""),
                hint="what it saw is kept beside the trial and can be read back",
            )


def spilled_b(folder: Path) -> int:
    """Bytes of raw events in `folder`."""
    return sum(path.stat().st_size for path in folder.glob("worker-*.spill"))
