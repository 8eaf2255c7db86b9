"""Workers end in their own time: one that is done early must not be taken for dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.clock import SYSTEM, FakeClock
from bench.errors import LoadError
from bench.load.last_words import STOPPED_PATIENCE_S, await_done, patience_s
from bench.load.messages import Done


class EarlyAndLate:
    """A crew whose first worker has left before the second says its last word."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self._words: list[list[tuple[int, object]]] = [[(0, Done("uvloop", False))], [], [(1, Done("uvloop", True))]]
        self._rounds = 0

    def __len__(self) -> int:
        return 2

    def hear(self, timeout_s: float) -> list[tuple[int, object]]:
        self._rounds += 1
        if self._rounds > 1 and 0 not in self.done:
            raise LoadError("load worker 0 ended with exit status 0: it left no message")
        return self._words.pop(0)

    def finished(self, workers: list[int]) -> None:
        self.done.update(workers)


def test_a_worker_that_is_done_first_may_leave(tmp_path: Path) -> None:
    crew = EarlyAndLate()
    heard = await_done(crew, tmp_path, SYSTEM, lambda: None, stopped=False)
    assert heard[1].recycled
    assert crew.done == {0, 1}


class Stuck(EarlyAndLate):
    """A crew whose second worker never says its last word. A round takes as long as it may."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def hear(self, timeout_s: float) -> list[tuple[int, object]]:
        self._clock.sleep(timeout_s)
        self._rounds += 1
        return [(0, Done("uvloop", False))] if self._rounds == 1 else []


@pytest.mark.parametrize(
    ("stop_at_s", "stopped", "spilled_b", "waited_s"),
    [
        (None, False, 0, 60),
        (None, False, 30 << 20, 90),
        (None, True, 0, 5),
        (None, True, 80 << 20, 15),
        (20.0, False, 0, 25),
        (59.0, False, 0, 60),
    ],
)
def test_patience_has_an_end(stop_at_s: float | None, stopped: bool, spilled_b: int, waited_s: float, tmp_path: Path) -> None:
    clock = FakeClock(0)
    with (tmp_path / "worker-1.spill").open("wb") as file:
        file.truncate(spilled_b)

    def should_stop() -> str | None:
        return "Ctrl-C" if stop_at_s is not None and clock.monotonic_ns() >= stop_at_s * 1e9 else None

    with pytest.raises(LoadError, match="load worker 1 did not finish"):
        await_done(Stuck(clock), tmp_path, clock, should_stop, stopped=stopped)
    assert clock.monotonic_ns() / 1e9 == pytest.approx(waited_s, abs=0.3)
    assert (tmp_path / "worker-1.spill").exists()


def test_patience_grows_with_what_was_kept() -> None:
    assert patience_s(1 << 40, stopped=False) > patience_s(1 << 40, stopped=True) > patience_s(0, stopped=True)
    assert patience_s(0, stopped=True) == STOPPED_PATIENCE_S
