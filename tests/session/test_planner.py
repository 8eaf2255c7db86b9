"""Runs whose trials are chosen on the way, and runs that are gone on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.errors import EXIT_FAILED, EXIT_OK, EngineMissing
from bench.identity import case_id
from bench.lab.sweeps import SweepPlanner
from bench.ports import LoadPlan, PlannedTrial, StartRequest
from bench.records import Case, LoadSpec, Search, Slo, Status, Sweep, TrialRecord
from tests.session.fakes import (
    FakeEngine,
    FakeRunner,
    Rig,
    a_case,
)


@dataclass
class SizedRunner(FakeRunner):
    """Keeps what each start was asked to serve."""

    sized_for: list[tuple[int | None, ...]] = field(default_factory=list)

    def start(self, request: StartRequest) -> FakeEngine:
        self.sized_for.append(tuple(case.load.batch_size for case in request.cases))
        return super().start(request)


@dataclass
class CountingDown:
    """Asks for one batch size after the other, as long as the one before was valid."""

    case: Case
    sizes: tuple[int, ...]
    patience: int = 2

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(batch(self.case, size) for size in (self.sizes[0], self.sizes[-1]))

    def remaining(self, done: Sequence[TrialRecord]) -> Sequence[PlannedTrial]:
        by_case = {record.key.case_id: record.status for record in done}
        for size in self.sizes:
            case = batch(self.case, size)
            status = by_case.get(case_id(case))
            if status is None:
                return [PlannedTrial(case=case, repeat=1, extra={"why": f"size {size}"})]
            if status is not Status.VALID:
                return ()
        return ()


def batch(case: Case, size: int) -> Case:
    return replace(case, name=f"{case.name}/{size}", load=LoadSpec(kind="closed", batch_size=size))


class SizedRig(Rig):
    """Its runner tells what it was started for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.runner: SizedRunner = SizedRunner(self.events)

    @property
    def loads(self) -> list[str]:
        return [event.removeprefix("load ") for event in self.events if event.startswith("load ")]


@pytest.fixture
def rig(tmp_path: Path) -> SizedRig:
    return SizedRig(tmp_path)


def test_a_planner_is_asked_after_each_trial_and_one_start_serves_it_and_plain_cases(rig: SizedRig) -> None:
    outcome = rig.run(a_case("plain"), planners=[CountingDown(a_case("p"), (16, 8, 4))])
    assert rig.loads == ["plain", "p/16", "p/8", "p/4"]
    assert rig.events.count("start") == 1
    assert rig.runner.sized_for == [(2, 16, 4)]
    assert [record.extra for record in outcome.records] == [{}, {"why": "size 16"}, {"why": "size 8"}, {"why": "size 4"}]
    assert [draft.extra for draft in rig.store.drafts] == [record.extra for record in outcome.records]
    assert outcome.exit_code == EXIT_OK


def test_a_planner_with_another_engine_gets_a_start_of_its_own(rig: SizedRig) -> None:
    rig.run(a_case("a"), planners=[CountingDown(a_case("p", engine_args={"threads": 1}), (2, 1))])
    assert rig.events.count("start") == 2


def test_a_planner_may_stop_early(rig: SizedRig) -> None:
    def die(plan: LoadPlan) -> None:
        if plan.case.load.batch_size == 8:
            rig.runner.engines[-1].dead = "out of memory"

    rig.load.hook = die
    outcome = rig.run(planners=[CountingDown(a_case("p"), (16, 8, 4))])
    assert rig.loads == ["p/16", "p/8"]
    assert [record.status for record in outcome.records] == [Status.VALID, Status.FAILED]
    assert rig.events.count("start") == 1


def test_an_engine_that_cannot_be_had_fails_the_next_trial_of_each_planner_once(rig: SizedRig) -> None:
    rig.runner.refuse = EngineMissing("no engine")
    twice = [CountingDown(a_case("p"), (16, 8)), CountingDown(a_case("p"), (16, 4))]
    outcome = rig.run(a_case("plain"), planners=twice)
    assert [record.case.name for record in outcome.records] == ["plain", "p/16"]
    assert all(record.status is Status.FAILED for record in outcome.records)


def test_what_a_plain_case_measured_a_planner_need_not(rig: SizedRig) -> None:
    rig.run(batch(a_case("plain"), 8), planners=[CountingDown(a_case("p"), (16, 8, 4))])
    assert rig.loads == ["plain/8", "p/16", "p/4"]


def test_a_resumed_run_measures_only_what_failed_or_was_cut_off(rig: SizedRig) -> None:
    cases = (a_case("a", repeats=4, seed=1), a_case("b", repeats=2, seed=2))
    first = rig.run(*cases)
    statuses = [Status.VALID, Status.INVALID, Status.FAILED, Status.KILLED, Status.INTERRUPTED, Status.VALID]
    history = [replace(record, status=status) for record, status in zip(first.records, statuses, strict=True)]
    rig.events.clear()
    outcome = rig.run(*cases, history=history)
    lost = {(r.case.name, r.key.repeat) for r in history if r.status not in (Status.VALID, Status.INVALID)}
    again = outcome.records[3:]
    assert {(r.case.name, r.key.repeat) for r in again} == lost
    assert len(rig.loads) == 3
    assert [r.key.attempt for r in again] == [2, 2, 2]
    assert not {r.key.trial_id for r in again} & {r.key.trial_id for r in history}
    assert outcome.records[:3] == [r for r in history if r.status in (Status.VALID, Status.INVALID)]
    assert outcome.exit_code == EXIT_FAILED  # the invalid one stays


def test_a_third_attempt_follows_the_second(rig: SizedRig) -> None:
    case = a_case("a")
    lost = [replace(rig.run(case).records[0], status=Status.KILLED)]
    lost += [replace(rig.run(case, history=lost).records[0], status=Status.FAILED)]
    (record,) = rig.run(case, history=lost).records
    assert record.key.attempt == 3
    assert len({record.key.trial_id, *(r.key.trial_id for r in lost)}) == 3


def test_another_attempt_sends_other_prompts(rig: SizedRig) -> None:
    salts: list[str] = []
    rig.load.hook = lambda plan: salts.append(plan.salt)
    case = a_case("a")
    lost = [replace(rig.run(case).records[0], status=Status.KILLED)]
    rig.run(case, history=lost)
    assert len(set(salts)) == 2


def test_a_run_with_nothing_left_starts_nothing(rig: SizedRig) -> None:
    case = a_case("a", repeats=2)
    first = rig.run(case)
    rig.events.clear()
    outcome = rig.run(case, history=first.records)
    assert rig.events == []
    assert outcome.records == first.records
    assert outcome.exit_code == EXIT_OK


@pytest.mark.parametrize("most", [3, 7, 20])
def test_a_search_finds_the_largest_load_that_an_engine_survives(rig: SizedRig, most: int) -> None:
    def die(plan: LoadPlan) -> None:
        if (plan.case.load.batch_size or 0) > most:
            rig.runner.engines[-1].dead = "out of memory"

    rig.load.hook = die
    case = batch(a_case("s", slos=(Slo(metric="ttft", limit_ms=1e6),)), 1)
    sweep = Sweep(case=case, search=Search(find="max-goodput", high=64, points=20))
    outcome = rig.run(planners=[SweepPlanner(sweep)])
    verdict = SweepPlanner(sweep).result(outcome.records).verdict
    assert verdict.best is not None
    assert verdict.best.load == most
    assert verdict.above is not None
    assert verdict.above.load == most + 1
    assert "out of memory" in (verdict.above.problem or "")
    deaths = sum(record.status is Status.FAILED for record in outcome.records)
    assert rig.events.count("start") == deaths + (outcome.records[-1].status is Status.VALID)


def test_a_search_on_an_engine_that_never_lives_is_given_up(rig: SizedRig) -> None:
    def die(plan: LoadPlan) -> None:
        rig.runner.engines[-1].dead = "broken"

    rig.load.hook = die
    sweep = Sweep(case=batch(a_case("s", repeats=9), 1), search=Search(find="knee"))
    outcome = rig.run(planners=[SweepPlanner(sweep)])
    assert rig.events.count("start") == SweepPlanner.patience
    assert "not tried" in (outcome.records[-1].error or "")
    assert not SweepPlanner(sweep).result(outcome.records).verdict.best


def test_a_search_over_a_session_ends_and_goes_on_where_it_was(rig: SizedRig) -> None:
    """The fake engine is as fast at any batch size: the knee is at the lowest."""
    sweep = Sweep(case=batch(a_case("s", repeats=2), 1), search=Search(find="knee", high=64))
    whole = rig.run(planners=[SweepPlanner(sweep)])
    result = SweepPlanner(sweep).result(whole.records)
    assert rig.runner.sized_for == [(1, 64)]
    assert result.verdict.best is not None
    assert result.verdict.best.load == 1
    history = [replace(whole.records[0], status=Status.KILLED), *whole.records[1:]]
    rig.events.clear()
    again = rig.run(planners=[SweepPlanner(sweep)], history=history)
    assert rig.loads == ["s/1/batch_size=1"]
    assert again.records[-1].key.attempt == 2
    assert SweepPlanner(sweep).result(again.records).verdict == result.verdict
