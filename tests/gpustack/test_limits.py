"""Loads that are stopped early: after a time, a number of failures, or a share of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.clock import FakeClock
from bench.lab.gpustack.limits import LimitedLoad, Limits
from bench.ports import LoadPlan
from bench.records import LoadProgress, LoadResult, Target
from tests.factories import make_case


def glance(elapsed_s: float = 1.0, completed: int = 0, failed: int = 0) -> LoadProgress:
    return LoadProgress(phase="measure", elapsed_s=elapsed_s, in_flight=1, completed=completed, failed=failed, chunks_per_s=0.0)


@pytest.mark.parametrize(
    ("limits", "seen", "elapsed_s", "stops"),
    [
        (Limits(), glance(completed=1, failed=99), 1e6, None),
        (Limits(max_seconds=5), None, 4.9, None),
        (Limits(max_seconds=5), None, 5.0, "after 5 s"),
        (Limits(max_errors=2), glance(failed=2), 1.0, None),
        (Limits(max_errors=2), glance(failed=3), 1.0, "after 3 failed"),
        (Limits(max_errors=0), glance(failed=1), 1.0, "after 1 failed"),
        (Limits(max_error_rate=0.1), glance(completed=1, failed=1), 1.0, None),
        (Limits(max_error_rate=0.1), glance(completed=18, failed=2), 1.0, None),
        (Limits(max_error_rate=0.1), glance(completed=17, failed=3), 1.0, "15% of the requests"),
    ],
)
def test_a_limit_stops_once_it_is_passed(limits: Limits, seen: LoadProgress | None, elapsed_s: float, stops: str | None) -> None:
    why = limits.reached(seen, elapsed_s)
    assert why is None if stops is None else why is not None and stops in why


class _Load:
    """Glances once a second, until it is asked to stop; its preparation takes a minute."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.glances = clock, 0

    def run(
        self, plan: LoadPlan, on_progress: Callable[[LoadProgress], None], should_stop: Callable[[], str | None]
    ) -> LoadResult:
        assert should_stop() is None
        self.clock.advance(60)
        for second in range(1, 100):
            self.clock.advance(1)
            on_progress(glance(float(second), completed=second))
            self.glances += 1
            if should_stop():
                break
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(("interrupted", "glances"), [(None, 7), ("Ctrl-C", 1)])
def test_seconds_count_from_the_first_request_and_an_interruption_comes_first(
    tmp_path: Path, interrupted: str | None, glances: int
) -> None:
    clock = FakeClock()
    load, seen = _Load(clock), list[LoadProgress]()
    target = Target(base_url="http://localhost", protocol="openai-chat", model="m")
    plan = LoadPlan(case=make_case(), target=target, salt="", spill_dir=tmp_path)
    limited = LimitedLoad(load, lambda _: Limits(max_seconds=7), clock)
    limited.run(plan, seen.append, lambda: interrupted if seen else None)
    assert load.glances == len(seen) == glances
