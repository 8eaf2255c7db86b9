"""`bench reproduce`: which trial, what is not as it was, and what the numbers say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.analysis.compare_pairs import Compared
from bench.analysis.reproduced import ratio_to_one
from bench.errors import UsageError
from bench.lab.reproduce import case_again, differences, facts_here, facts_of, reproduced
from bench.records import LengthSpec, LoadSpec, LocalModel, Status, TrialRecord
from bench.store import Lab
from tests.exchange.conftest import SAMPLES, TOOLS
from tests.factories import make_case, make_device, make_engine, make_host, make_metrics, make_record, save_trial
from tests.in_process import Bench


def weights(sha256: str) -> LocalModel:
    return LocalModel(name="m", source="hf:a/b@c", path="/x", format="gguf", size_b=1, weights_sha256=sha256)


# --- what differs -----------------------------------------------------------------------------------------------------

RECORD = make_record(devices=(make_device(driver="550.1", power_limit_w=700.0),), model=weights("aa"), dataset_hash="d1")


@pytest.mark.parametrize(
    ("over", "what"),
    [
        ({"bench_version": "0.0.1"}, "bench version"),
        ({"host": make_host(host_id="host0002")}, "host"),
        ({"host": make_host(cpu_model="Other CPU")}, "CPU"),
        ({"host": make_host(memory_b=2**33)}, "memory"),
        ({"host": make_host(release="7.0")}, "system"),
        ({"devices": (make_device(name="Other", driver="550.1", power_limit_w=700.0),)}, "devices"),
        ({"devices": (make_device(driver="560.2", power_limit_w=700.0),)}, "driver"),
        ({"devices": (make_device(driver="550.1", power_limit_w=300.0),)}, "power limit"),
        ({"engine": make_engine(version="2.0")}, "engine version"),
        ({"engine": make_engine(settings={"slots": 9})}, "engine settings"),
        ({"model": weights("bb")}, "weights sha256"),
        ({"dataset_hash": "d2"}, "data set"),
    ],
)
def test_each_thing_that_moved_is_named_and_nothing_else(over: dict[str, Any], what: str) -> None:
    moved = structs.replace(RECORD, **over)
    assert differences(facts_of(RECORD), facts_of(RECORD)) == []
    (found,) = differences(facts_of(RECORD), facts_of(moved))
    assert found.what == what
    assert found.then != found.now


def test_of_the_boards_here_those_count_that_the_trial_had() -> None:
    had = make_device(driver="550.1", power_limit_w=700.0)
    other = make_device(uid="GPU-9", name="Other", driver="550.1")
    here = facts_here(RECORD, make_host(), [other, had, make_device(uid="cpu", scope="cpu_package")], weights("aa"))
    assert differences(facts_of(RECORD), here) == []
    gone = facts_here(RECORD, make_host(), [other], None)
    assert [(one.what, one.now) for one in differences(facts_of(RECORD), gone)] == [
        ("devices", "1x Other"),
        ("power limit", "none"),
    ]


def test_what_is_not_known_beforehand_is_no_difference() -> None:
    here = facts_here(RECORD, make_host(), RECORD.devices, None)
    assert "weights sha256" not in here
    assert differences(facts_of(RECORD), here) == []


@pytest.mark.parametrize("repeats", [0, -3, 10_001])
def test_no_repeats_are_refused(repeats: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        case_again(RECORD, repeats)


# --- the numbers ------------------------------------------------------------------------------------------------------


def compared(results: Path, stored: TrialRecord, speeds: list[float], **over: Any) -> Compared | str:
    case = make_case(repeats=len(speeds))
    for repeat, speed in enumerate(speeds):
        metrics = make_metrics(output_tok_per_s=speed)
        save_trial(results, make_record(run_id="again", case=case, repeat=repeat, metrics=metrics, **over))
    lab = Lab(results)
    lab.ingest()
    return reproduced(lab, stored, "again")


def verdicts(found: Compared | str) -> dict[str, str]:
    assert isinstance(found, Compared)
    return {one.metric: one.verdict for one in found.metrics}


def test_all_repeats_of_the_stored_point_are_its_side(results: Path) -> None:
    stored = make_record(case=make_case(repeats=3), repeat=1)
    found = compared(results, stored, [300.0, 303.0, 306.0])
    assert isinstance(found, Compared)
    speed = next(one for one in found.metrics if one.metric == "output_tok_per_s")
    assert (speed.n_base, speed.n_cand, speed.verdict) == (3, 3, "differs")
    assert [one.metric for one in found.regressions] == ["output_tok_per_s"]


def test_one_against_one_can_not_know(tmp_path: Path) -> None:
    stored = make_record(metrics=make_metrics(output_tok_per_s=400.0))
    save_trial(tmp_path, stored)
    assert verdicts(compared(tmp_path, stored, [300.0]))["output_tok_per_s"] == "can't know"


@pytest.mark.parametrize(("stored_speed", "verdict"), [(403.0, "no difference shown"), (300.0, "differs")])
def test_one_stored_value_beside_several_new_ones(stored_speed: float, verdict: str, tmp_path: Path) -> None:
    stored = make_record(metrics=make_metrics(output_tok_per_s=stored_speed))
    save_trial(tmp_path, stored)
    assert verdicts(compared(tmp_path, stored, [400.0, 404.0, 398.0, 402.0]))["output_tok_per_s"] == verdict


def test_joules_of_another_board_keep_their_doubt(tmp_path: Path) -> None:
    stored = make_record(devices=(make_device(uid="GPU-7"),))
    save_trial(tmp_path, stored)
    found = verdicts(compared(tmp_path, stored, [400.0, 404.0]))
    assert found["j_per_output_tok"] == "not comparable"


@pytest.mark.parametrize("status", [Status.FAILED, Status.KILLED, Status.INVALID, Status.INTERRUPTED])
def test_a_trial_without_trusted_numbers_has_nothing_to_compare(status: Status, tmp_path: Path) -> None:
    stored = make_record(status=status)
    assert reproduced(Lab(tmp_path), stored, "again") == f"the stored trial is {status.value}: it has no numbers to compare with"


def test_new_trials_that_are_not_valid_are_not_compared(results: Path) -> None:
    stored = make_record(case=make_case(repeats=3), repeat=1)
    assert compared(results, stored, [400.0], status=Status.INVALID) == "no new trial is valid"


@given(st.floats(0.1, 1e6), st.lists(st.floats(0.1, 1e6), min_size=2, max_size=8), st.floats(0.01, 100))
def test_the_interval_of_one_value_scales_and_holds_its_ratio(base: float, cand: list[float], factor: float) -> None:
    one, scaled = ratio_to_one(base, cand), ratio_to_one(base * factor, [value * factor for value in cand])
    assert one.low is not None
    assert one.high is not None
    assert one.low <= one.value * (1 + 1e-9)
    assert one.value <= one.high * (1 + 1e-9)
    assert scaled.value == pytest.approx(one.value)
    assert one.value == pytest.approx(math.exp(sum(map(math.log, cand)) / len(cand)) / base)


def test_the_interval_of_one_value_covers_the_next_one() -> None:
    """95% of single values drawn like the repeats lie in it."""
    import numpy as np

    drawn = np.exp(0.02 * np.random.default_rng(7).standard_normal((2000, 4)))
    ratios = [ratio_to_one(row[0], row[1:].tolist()) for row in drawn]
    held = [one.low <= 1 <= one.high for one in ratios if one.low is not None and one.high is not None]
    assert len(held) == 2000
    assert 0.935 < sum(held) / len(held) < 0.965


def test_a_spread_takes_two_values() -> None:
    with pytest.raises(ValueError, match="takes two values"):
        ratio_to_one(1.0, [1.0])


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_trial_is_known_by_the_beginning_of_its_id(results: Path, bench: Bench) -> None:
    stored = make_record(case=make_case(repeats=3), repeat=1)
    ran = bench("reproduce", stored.key.trial_id[:10], "--dry-run")
    assert ran.code == 0, ran.err
    assert f"trial {stored.key.trial_id}: point, repeat 1 of run run-1" in ran.err
    assert "host: host0001 then, " in ran.err
    assert "devices: 1x Example Accelerator then, " in ran.err
    assert "engine 1, mock, for point" in ran.out
    assert "1 engine start" in ran.out
    assert not (results / "runs").exists()


def test_what_is_no_trial_says_what_it_is(results: Path, bench: Bench) -> None:
    bench("import", str(SAMPLES / TOOLS["vllm-bench"]))
    import_id = next((results / "imported").glob("*.json")).stem
    ran = bench("reproduce", import_id)
    assert (ran.code, "imported from vllm-bench: it has no case that could be run again" in ran.err) == (2, True)
    for unknown in ("", "zz", "'; DROP TABLE trials"):
        ran = bench("reproduce", unknown)
        assert (ran.code, "no trial begins with" in ran.err) == (2, True)


def test_a_killed_trial_says_so_before_it_runs_again(results: Path, bench: Bench) -> None:
    killed = make_record(run_id="run-9", status=Status.KILLED, error="the process died", engine=None, metrics={}, window=None)
    save_trial(results, killed)
    ran = bench("reproduce", killed.key.trial_id, "--dry-run")
    assert (ran.code, "it is killed: the process died" in ran.err) == (0, True)


def test_an_engine_that_is_missing_here_ends_it(results: Path, bench: Bench) -> None:
    gone = make_case(engine="llamacpp", model="smollm2-135m-instruct", engine_python="/nowhere/python")
    stored = make_record(run_id="run-8", case=gone)
    save_trial(results, stored)
    ran = bench("reproduce", stored.key.trial_id)
    assert ran.code in (2, 4)
    assert "/nowhere/python" in ran.err


def test_a_trial_is_measured_again_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    """On the mock engine: the case as it was resolved, a run of its own, and either numbers or the reason why there are none."""
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))
    case = make_case(
        model="mock",
        precision=None,
        engine_args={"ttft_ms": 200, "gap_ms": 100},
        output_tokens=LengthSpec(mean=8),
        load=LoadSpec(kind="closed", batch_size=2),
        duration_s=5.0,
        warmup_s=0.0,
        idle_s=0.0,
    )
    record = make_record(case=case, metrics=make_metrics(output_tok_per_s=17.8))
    save_trial(tmp_path / "results", record)
    again = json.loads(bench("reproduce", record.key.trial_id[:8], "--json").out)
    assert again["trial_id"] == record.key.trial_id
    query = "SELECT run_id, case_id, workload_id, status FROM trials ORDER BY started_at"
    stored, new = json.loads(bench("sql", query, "--json").out)
    assert (new["run_id"], new["case_id"], new["workload_id"]) == (again["run_id"], stored["case_id"], stored["workload_id"])
    assert {"host", "devices", "engine version"} <= {one["what"] for one in again["differences"]}
    if new["status"] == "valid":
        told = {one["metric"]: one for one in again["metrics"]}
        assert told["output_tok_per_s"]["verdict"] == "can't know"
        assert told["output_tok_per_s"]["ratio"] == pytest.approx(1, rel=0.1)
    else:
        assert (again["metrics"], again["reason"]) == ([], "no new trial is valid")
