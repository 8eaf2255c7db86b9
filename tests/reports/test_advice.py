"""What to do next: it can be typed, it cures what the trial is invalid for, and it asks for no longer window where none helps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.records import LengthSpec, LoadSpec, Profile, Reason, Stage, Status, TrialRecord
from bench.reports.advice import next_steps, only_busy
from tests.factories import make_case, make_metrics, make_record


def bad(*codes: str, rate: float | None = 1.0, **case: object) -> TrialRecord:
    reasons = tuple(Reason(code=code, group="all", severity="invalid", message="x") for code in codes)
    metrics = make_metrics(requests_per_s=rate)
    return make_record(case=make_case(**case), status=Status.INVALID, reasons=reasons, metrics=metrics)


def steps(*trials: TrialRecord) -> list[str]:
    return [line.removeprefix("next: ") for line in next_steps(trials, lambda flag, value: f"bench run x {flag} {value}")]


@pytest.mark.parametrize("code", ["client_saturated", "server_saturated"])
def test_a_busy_machine_is_not_cured_by_time(code: str) -> None:
    (line,) = steps(bad(code), bad(code))
    assert line.startswith("stop other work")
    assert "bench doctor" in line
    assert "fewer threads" in line
    assert "--duration" not in line


def test_unsteady_trials_warm_up_longer_and_open_loops_ask_for_less() -> None:
    assert steps(bad("not_steady", warmup_s=7.0))[0].endswith("bench run x --warmup 20s")
    assert "fewer requests per second" in steps(bad("not_steady", load=LoadSpec(kind="open", request_rate=5.0)))[0]


@pytest.mark.parametrize(("profile", "enough"), [(Profile.SMOKE, "10s"), (Profile.NIGHTLY, "60s"), (Profile.OFFICIAL, "600s")])
def test_a_short_window_gets_what_its_profile_asks_for(profile: Profile, enough: str) -> None:
    assert steps(bad("too_short", profile=profile)) == [f"measure longer: bench run x --duration {enough}"]


def test_a_window_with_too_few_requests_gets_room_for_enough() -> None:
    assert steps(bad("too_few_requests", rate=0.1)) == ["measure longer: bench run x --duration 80s"]  # 5 requests, and half more
    assert steps(bad("too_few_requests", rate=4.0)) == ["measure longer: bench run x --duration 20s"]  # at least twice the window


@pytest.mark.parametrize("rate", [0.0, None])
def test_answers_longer_than_the_window_are_asked_to_be_shorter(rate: float | None) -> None:
    (line,) = steps(bad("too_few_requests", rate=rate, output_tokens=LengthSpec(mean=128)))
    assert line.endswith("bench run x --output-tokens 32")
    assert "--duration" not in line
    assert steps(bad("too_short", "too_few_requests", rate=rate)) == ["measure longer: bench run x --duration 10s"]


def test_jobs_and_stages_have_lengths_of_their_own() -> None:
    job = bad("too_few_requests", load=LoadSpec(kind="closed", batch_size=1, num_prompts=2))
    assert steps(job) == ["measure longer: bench run x --num-prompts 5"]
    brief = replace(bad("too_short", load=LoadSpec(kind="closed", batch_size=1, num_prompts=20)), window=None)
    assert steps(replace(brief, case=replace(brief.case, duration_s=2.0))) == ["measure longer: bench run x --num-prompts 75"]
    stages = (Stage(start=1.0, end=1.0, duration_s=2.0),)
    assert steps(bad("too_short", load=LoadSpec(kind="closed", batch_size=1, stages=stages))) == [
        "measure longer: give the stages more time"
    ]


def test_what_only_warns_and_what_nobody_can_cure_here_asks_for_nothing() -> None:
    warned = replace(bad("client_saturated"), status=Status.VALID)
    assert steps(warned, bad("wrong_output"), bad("errors")) == []


@pytest.mark.parametrize(
    ("trials", "only"),
    [
        ([], False),
        ([make_record()], False),
        ([bad("client_saturated")], True),
        ([make_record(), bad("client_saturated", "not_steady"), bad("server_saturated")], True),
        ([bad("client_saturated"), bad("errors")], False),
        ([bad("client_saturated"), make_record(status=Status.FAILED, error="died")], False),
    ],
)
def test_a_machine_is_only_busy_where_nothing_else_is_wrong(trials: list[TrialRecord], only: bool) -> None:
    assert only_busy(trials) is only
