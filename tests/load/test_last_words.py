"""Workers end in their own time: one that is done early must not be taken for dead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.clock import SYSTEM
from bench.errors import LoadError
from bench.load.coordinator import _Trial
from bench.load.messages import Done
from bench.ports import LoadPlan
from tests.load.scripted import make_case, make_target


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
    plan = LoadPlan(case=make_case(), target=make_target("http://x"), salt="s", spill_dir=tmp_path)
    crew: Any = EarlyAndLate()
    heard = _Trial(plan, crew, SYSTEM, lambda _: None, lambda: None)._await_all(Done, {0, 1})
    assert heard is not None
    assert heard[1].recycled
    assert crew.done == {0, 1}
