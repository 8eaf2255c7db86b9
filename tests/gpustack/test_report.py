"""Trials as a GuideLLM report: each number worked out by hand, and what was not measured."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bench.records import MISSING, EventLog, LoadSpec, Outcome, Stage, Status, TrialRecord
from bench.reports.export_guidellm import guidellm_report, summary
from tests.factories import NS, STARTED_WALL_NS, make_case, make_event_log, make_metrics, make_record


def two_replies() -> EventLog:
    """Of 2 and 6 tokens, sent at 2.0 and 2.1 s: the first after 20 ms, then one each 20 ms and each 10 ms; a third one failed."""
    log = make_event_log(3, 2)
    owner = np.array([0, 0, 1, 1, 1, 1, 1, 1], dtype=np.int64)
    after_ms = np.array([20, 40, 20, 30, 40, 50, 60, 70], dtype=np.int64)
    return replace(
        log,
        output_tokens=np.array([2, 6, MISSING], dtype=np.int64),
        input_tokens=np.array([10, 30, MISSING], dtype=np.int64),
        outcome=np.array([Outcome.OK, Outcome.OK, Outcome.HTTP], dtype=np.int64),
        chunk_request=owner,
        chunk_ns=log.sent_ns[owner] + after_ms * 1_000_000,
        chunk_kind=np.zeros(8, dtype=np.int64),
        chunk_tokens=np.full(8, MISSING, dtype=np.int64),
        chunk_bytes=np.ones(8, dtype=np.int64),
    )


def told(record: TrialRecord, log: EventLog) -> dict[str, Any]:
    """The one benchmark of a report that went through JSON."""
    [one] = json.loads(json.dumps(guidellm_report([(record, log)]), allow_nan=False))["benchmarks"]
    found: dict[str, Any] = one
    return found


def test_each_number_by_hand() -> None:
    metrics = told(make_record(), two_replies())["metrics"]
    means = {name: metrics[name]["successful"]["mean"] for name in metrics if name != "request_totals"}
    assert metrics["request_totals"] == {"successful": 2, "errored": 1, "incomplete": 0, "total": 3}
    assert means["request_latency"] == pytest.approx((0.040 + 0.070) / 2)  # seconds
    assert means["time_to_first_token_ms"] == pytest.approx(20.0)
    assert means["inter_token_latency_ms"] == pytest.approx((20.0 * 1 + 10.0 * 5) / 6)  # weighted by tokens after the first
    assert means["time_per_output_token_ms"] == pytest.approx((40.0 + 70.0) / 8)  # the first token's time is in it
    assert means["inter_token_latency_per_chunk_ms"] == pytest.approx((20.0 + 5 * 10.0) / 6)
    assert (means["prompt_token_count"], means["output_token_count"], means["total_token_count"]) == (20.0, 4.0, 24.0)
    assert means["request_streaming_iterations_count"] == 4.0
    assert (means["output_tokens_per_iteration"], means["iter_tokens_per_iteration"]) == (1.0, 1.0)
    # over the ten seconds of the window
    assert means["requests_per_second"] == pytest.approx(0.2)
    assert means["output_tokens_per_second"] == pytest.approx(0.8)
    assert means["prompt_tokens_per_second"] == pytest.approx(4.0)
    assert means["tokens_per_second"] == pytest.approx(4.8)
    assert means["request_concurrency"] == pytest.approx(3 * 0.080 / 10)
    assert metrics["inter_token_latency_ms"]["successful"]["max"] == pytest.approx(20.0)


def test_times_are_dates_and_what_failed_says_why() -> None:
    one = told(make_record(), two_replies())
    wall_s = STARTED_WALL_NS / NS
    assert one["start_time"] == one["scheduler_metrics"]["measure_start_time"] == pytest.approx(wall_s + 1)
    assert one["end_time"] - one["start_time"] == one["duration"] == pytest.approx(10.0)
    assert one["scheduler_metrics"]["request_start_time"] == pytest.approx(wall_s + 1)
    [sample] = one["requests_truncated"]["errored"]
    assert (sample["info"]["status"], sample["info"]["error"]) == ("errored", "connection refused")


@pytest.mark.parametrize(
    ("load", "strategy"),
    [
        (LoadSpec(kind="closed", batch_size=8), {"type_": "concurrent", "streams": 8}),
        (
            LoadSpec(kind="open", request_rate=5.0, arrivals="constant", max_concurrency=9),
            {"type_": "constant", "rate": 5.0, "max_concurrency": 9},
        ),
        (LoadSpec(kind="open", request_rate=5.0, arrivals="poisson"), {"type_": "poisson", "rate": 5.0, "max_concurrency": None}),
        (LoadSpec(kind="open", arrivals="burst", num_prompts=9), {"type_": "throughput", "rate": None, "max_concurrency": None}),
        (
            LoadSpec(kind="open", request_rate=5.0, arrivals="gamma", burstiness=0.5),
            {"type_": "gamma", "rate": 5.0, "max_concurrency": None, "burstiness": 0.5},
        ),
        (LoadSpec(kind="open", arrivals="trace", speed=2.0), {"type_": "trace", "rate": None, "max_concurrency": None}),
        (
            LoadSpec(kind="closed", batch_size=8, stages=(Stage(start=1.0, end=8.0, duration_s=10.0),)),
            {"type_": "stages", "stages": [{"start": 1.0, "end": 8.0, "duration_s": 10.0}], "max_concurrency": None},
        ),
    ],
)
def test_the_load_is_named_as_guidellm_names_it_or_as_what_it_is(load: LoadSpec, strategy: dict[str, Any]) -> None:
    log = make_event_log(20, 3)
    log = replace(log, scheduled_ns=log.sent_ns.copy()) if load.kind == "open" else log
    assert told(make_record(case=make_case(load=load)), log)["config"]["strategy"] == strategy


def test_what_was_not_measured_has_no_observations_and_a_reason() -> None:
    metrics = make_metrics(tpot_ms=None)
    one = told(make_record(metrics=metrics), make_event_log(20, 1))  # answers of one token have no TPOT
    tpot = one["metrics"]["inter_token_latency_ms"]["successful"]
    assert (tpot["count"], tpot["mean"]) == (0, 0.0)
    assert set(tpot["percentiles"].values()) == {None}
    assert one["tokjoule"]["missing"]["inter_token_latency_ms"] == "not measured"
    assert "inter_token_latency_per_chunk_ms" not in one["metrics"]


def test_a_trial_without_a_window_is_left_out_with_its_reason() -> None:
    lost = make_record(repeat=1, status=Status.FAILED, error="the engine died", window=None)
    report = guidellm_report([(lost, None), (make_record(), make_event_log(20, 3))])
    assert len(report["benchmarks"]) == 1
    [left_out] = report["tokjoule"]["left_out"]
    assert (left_out["status"], left_out["reason"]) == ("failed", "the engine died")


@pytest.mark.parametrize("count", [1, 2, 99, 100, 1000])
def test_percentiles_lie_among_the_values_and_a_p99_needs_a_hundred(count: int) -> None:
    values = np.random.default_rng(count).exponential(10.0, count)
    found = summary(values)
    inner = [found["percentiles"][name] for name in ("p001", "p05", "p25", "p50", "p75", "p95")]
    assert [found["min"], *inner, found["max"]] == sorted([found["min"], *inner, found["max"]])
    assert found["median"] in values
    assert (found["percentiles"]["p99"] is None) is (count < 100)
    assert found["std_dev"] == pytest.approx(values.std())


def test_a_weight_counts_as_so_many_values() -> None:
    weighted = summary(np.array([1.0, 5.0, 9.0]), np.array([1.0, 3.0, 0.0]))
    plain = summary(np.array([1.0, 5.0, 5.0, 5.0]))
    for name in ("mean", "median", "std_dev", "min", "max"):
        assert weighted[name] == pytest.approx(plain[name])
    assert weighted["percentiles"]["p25"] == 1.0
    assert weighted["percentiles"]["p50"] == 5.0
