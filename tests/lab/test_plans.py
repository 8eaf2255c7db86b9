"""What a run sets out to do: kept, read back, and what is left of it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench import codec
from bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EngineDied, StoreError
from bench.lab.ab import Pairs
from bench.lab.plans import RunPlan, begun, engine_starts, exit_code, forecast, load_plan, new_plan, planners_of, total_seconds
from bench.lab.sweeps import case_at
from bench.records import DataSpec, LoadSpec, Search, Status, Sweep, TrialRecord
from bench.session.loop import RunOutcome
from bench.store.plans import plan_path, write_plan
from tests.factories import make_case, make_event_log, make_record, save_trial

OLD, NEW = "20261130T100000Z-aaaaaa", "20261130T100001Z-000000"


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    sweep = Sweep(case=make_case(name="s"), search=Search(find="max-goodput", over="request_rate", low=0.1, high=7.3))
    plan = new_plan(OLD, [make_case(engine_args={"a": 1, "b": None})], [sweep], 12.5)
    os.close(write_plan(tmp_path, OLD, codec.encode_pretty(plan)))
    assert load_plan(tmp_path, OLD) == plan
    assert list(plan_path(tmp_path, OLD).parent.iterdir()) == [plan_path(tmp_path, OLD)]


DEEP = b'{"run_id": "r", "more": ' + b"[" * 5000 + b"]" * 5000 + b"}"


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"schema_version": 99}', b"\xff", DEEP], ids=range(6))
def test_a_plan_that_cannot_be_read_is_one_message(tmp_path: Path, data: bytes) -> None:
    os.close(write_plan(tmp_path, OLD, data))
    with pytest.raises(StoreError, match="no plan that this bench reads"):
        load_plan(tmp_path, OLD)


def test_a_plan_of_another_run_is_refused(tmp_path: Path) -> None:
    os.close(write_plan(tmp_path, NEW, codec.encode_pretty(new_plan(OLD, [make_case()], [], 1.0))))
    with pytest.raises(StoreError, match="it is of run"):
        load_plan(tmp_path, NEW)


NIGHT = {"job": "j", "night": "2026-12-01"}


def kept(results: Path, plan: RunPlan) -> RunPlan:
    os.close(write_plan(results, plan.run_id, codec.encode_pretty(plan)))
    return plan


def test_the_last_run_that_set_out_to_do_the_same_is_found_again(tmp_path: Path) -> None:
    case = make_case(name="a", repeats=2, labels=NIGHT)
    assert begun(tmp_path, new_plan("r", [case], [], 5.0)) is None
    for run_id in (OLD, NEW):
        kept(tmp_path, new_plan(run_id, [case], [], 1.0))
    kept(tmp_path, new_plan("20261130T100002Z-000000", [make_case(name="b", engine="other", labels=NIGHT)], [], 1.0))
    plan_path(tmp_path, "20261130T100003Z-000000").write_text("{")
    found = begun(tmp_path, new_plan("r", [replace(case, name="called otherwise")], [], 5.0))
    assert found is not None
    assert (found.run_id, found.cases[0].name, found.start_timeout_s, found.share_devices) == (NEW, "a", 5.0, False)
    sharing = begun(tmp_path, dataclasses.replace(found, run_id="r", share_devices=True))
    assert sharing is not None
    assert (sharing.run_id, sharing.share_devices) == (NEW, True)


@pytest.mark.parametrize("name", ["trial.json", "requests.parquet"])
@pytest.mark.parametrize("left", [None, 10], ids=["lost", "cut off"])
def test_a_run_that_lost_a_part_of_a_trial_is_not_gone_on_with(tmp_path: Path, name: str, left: int | None) -> None:
    """What no database takes is not measured, and what can't be read says nothing of whether it was."""
    plan, told = kept(tmp_path, new_plan(OLD, [make_case(repeats=2)], [], 1.0)), list[str]()
    save_trial(tmp_path, make_record(case=plan.cases[0], run_id=OLD, repeat=1), make_event_log())
    shard = save_trial(tmp_path, make_record(case=plan.cases[0], run_id=OLD, repeat=2), make_event_log())
    assert begun(tmp_path, plan, told.append) == plan
    assert not told
    (shard / name).write_bytes((shard / name).read_bytes()[:left]) if left else (shard / name).unlink()
    assert begun(tmp_path, plan, told.append) is None
    (note,) = told
    assert OLD in note
    assert shard.name in note
    assert name in note


SWEEP = Sweep(case=make_case(name="s", labels=NIGHT), search=Search(find="knee", high=8.0))
SIDES = (make_case(name="p", labels=NIGHT), make_case(name="p", labels=NIGHT, engine_args={"threads": 2}))


@pytest.mark.parametrize(
    "other",
    [
        {"cases": [make_case(repeats=3, labels=NIGHT)]},
        {"cases": [make_case(repeats=2, labels=NIGHT | {"night": "2026-12-02"})]},
        {"cases": [make_case(repeats=2)]},
        {"cases": [make_case(repeats=2, labels=NIGHT, api_key_env="OTHER_KEY")]},
        {"cases": [make_case(repeats=2, labels=NIGHT, data=DataSpec(path="/elsewhere/prompts.jsonl"))]},
        {"cases": [make_case(repeats=2, labels=NIGHT, engine_args={"threads": 2})]},
        {"cases": []},
        {"sweeps": [replace(SWEEP, search=Search(find="knee", high=16.0))]},
        {"sweeps": [replace(SWEEP, case=make_case(name="s"))]},
        {"pairs": Pairs(base=SIDES[:1], cand=SIDES[1:], count=4)},
        {"pairs": Pairs(base=SIDES[1:], cand=SIDES[:1], count=3)},
        {"pairs": None},
    ],
    ids=str,
)
def test_a_run_that_set_out_to_do_something_else_is_not_gone_on_with(tmp_path: Path, other: dict[str, Any]) -> None:
    same: dict[str, Any] = {
        "cases": [make_case(repeats=2, labels=NIGHT)],
        "sweeps": [SWEEP],
        "start_timeout_s": 1.0,
        "pairs": Pairs(base=SIDES[:1], cand=SIDES[1:], count=3),
    }
    kept(tmp_path, new_plan(OLD, **same))
    assert begun(tmp_path, new_plan("r", **same)) is not None
    assert begun(tmp_path, new_plan("r", **same | other)) is None


def a_plan() -> RunPlan:
    closed, counted = make_case(name="a", repeats=3), make_case(name="b", load=LoadSpec(kind="closed", batch_size=2))
    sweep = Sweep(case=make_case(name="s", repeats=2, engine="other"), search=Search(find="knee", points=5, high=16))
    return RunPlan(run_id="r", created_wall_ns=1, cases=(closed, counted), sweeps=(sweep,), start_timeout_s=1.0)


def test_a_forecast_counts_trials_and_seconds() -> None:
    plan = a_plan()
    lines = forecast(plan)
    assert [(line.name, line.kind, line.trials, line.seconds) for line in lines] == [
        ("a", "case", 3, 11.0),
        ("b", "case", 1, 11.0),
        ("s", "sweep", 10, 11.0),
    ]
    assert engine_starts(plan) == 2
    assert total_seconds(plan, lines, 2) == 14 * 11.0 + 2 * 2 * 1.0


def test_a_forecast_of_the_rest_leaves_out_what_is_kept() -> None:
    plan = a_plan()
    case = plan.cases[0]
    history = [
        make_record(case=case, run_id="r", repeat=1),
        make_record(case=case, run_id="r", repeat=2, status=Status.FAILED),
        make_record(case=plan.cases[1], run_id="r", repeat=1),
    ]
    assert [line.trials for line in forecast(plan, history)] == [2, 0, 10]


def test_a_job_by_count_has_no_time() -> None:
    counted = make_case(load=LoadSpec(kind="closed", batch_size=2, num_prompts=10))
    plan = new_plan("r", [counted], [], 1.0)
    lines = forecast(plan)
    assert lines[0].seconds is None
    assert total_seconds(plan, lines, 1) is None


def test_a_sweep_of_which_points_are_measured_forecasts_the_others() -> None:
    plan = a_plan()
    (sweep,) = plan.sweeps
    history = [make_record(case=case_at(sweep, 1), run_id="r", repeat=repeat) for repeat in (1, 2)]
    assert forecast(plan, history)[2].trials == 8
    flat = [make_record(case=case_at(sweep, load), run_id="r", repeat=r) for load in (1, 4, 16, 2, 3) for r in (1, 2)]
    assert planners_of(plan)[0].result(flat).verdict.complete
    assert forecast(plan, flat)[2].trials == 0


def points(plan: RunPlan, *invalid: int) -> list[TrialRecord]:
    """Everything that the sweep of `a_plan` asks for on an engine that is as fast at any load, but not valid at some."""
    (planner,), done = planners_of(plan), list[TrialRecord]()
    while left := planner.remaining(done):
        status = Status.INVALID if left[0].case.load.batch_size in invalid else Status.VALID
        done.append(make_record(case=left[0].case, run_id="r", repeat=left[0].repeat, status=status))
    return done


def test_a_point_that_bounds_an_answer_is_no_failure() -> None:
    plan = a_plan()

    def code(records: list[TrialRecord], **over: Any) -> int:
        outcome = RunOutcome("r", records, **over)
        return exit_code(outcome, [planner.result(outcome.records) for planner in planners_of(plan)])

    answered, bound, unanswered = points(plan), points(plan, 4), points(plan, 1)
    assert Status.INVALID in {record.status for record in bound}
    plain = make_record(case=plan.cases[0], run_id="r", repeat=1)
    assert code(answered) == EXIT_OK
    assert code([plain, *bound]) == EXIT_OK
    assert code([replace(plain, status=Status.FAILED), *bound]) == EXIT_FAILED
    assert code(unanswered) == EXIT_FAILED
    assert code(bound[:1], interrupted="Ctrl-C") == EXIT_INTERRUPTED
    assert code(bound, errors=[EngineDied("not tried")]) == EXIT_FAILED
