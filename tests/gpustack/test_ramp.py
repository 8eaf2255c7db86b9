"""GPUStack's auto-tune: which loads are measured, where it ends, and what it says of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from bench.lab.gpustack.ramp import Ramp, RampPlanner, SloLimit, slo_limits
from bench.records import ClockAnchor, LoadSpec, Metric, Reason, Search, Status, Sweep, TrialRecord
from tests.factories import NS, make_case, make_metrics, make_record

ERRORS = Reason(code="errors", group="throughput", severity="invalid", message="half of them failed")
Server = Callable[[float], tuple[float, float, int]]
"""Of a load: throughput [tok/s], mean TTFT [ms], failed requests of a hundred."""


def a_ramp(*slos: SloLimit, axis: Literal["batch_size", "request_rate"] = "batch_size", **over: Any) -> Ramp:
    search = Search(find="max-goodput" if slos else "knee", over=axis, attainment=1.0 if slos else 0.99, **over)
    load = LoadSpec(kind="closed", batch_size=4)
    if axis == "request_rate":
        load = LoadSpec(kind="open", request_rate=search.low, arrivals="constant")
    return Ramp(sweep=Sweep(case=make_case(load=load), search=search), slos=slos, max_total_s=5400.0)


def spread(mean: float) -> dict[str, Any]:
    return {"successful": {"mean": mean, "percentiles": {"p95": 2 * mean, "p99": 3 * mean}}}


def drive(ramp: Ramp, server: Server, *, each_s: float = 60.0) -> tuple[dict[str, Any], list[float]]:
    """Measure what the planner asks for; how it says that it ended, and the loads in order."""
    benchmarks: dict[str, dict[str, Any]] = {}
    planner, done, loads = RampPlanner(ramp, benchmarks), list[TrialRecord](), list[float]()
    while planned := planner.remaining(done):
        [trial] = planned
        load = float(trial.case.load.batch_size or trial.case.load.request_rate or 0)
        tok_per_s, ttft_ms, failed = server(load)
        rate = Metric(name="output_tok_per_s", unit="tok/s", value=tok_per_s, low=tok_per_s * 0.995, high=tok_per_s * 1.005, n=10)
        bad = failed > 5
        record = make_record(
            case=trial.case,
            repeat=1,
            metrics=make_metrics(output_tok_per_s=rate),
            status=Status.INVALID if bad else Status.VALID,
            reasons=(ERRORS,) if bad else (),
        )
        start_ns = round(len(loads) * each_s * NS)
        record = replace(
            record,
            started=ClockAnchor(monotonic_ns=start_ns, wall_ns=record.started.wall_ns + start_ns),
            ended=ClockAnchor(monotonic_ns=start_ns + round(each_s * NS), wall_ns=record.started.wall_ns),
        )
        totals = {"successful": 100 - failed, "errored": failed, "incomplete": 0, "total": 100}
        metrics = {"request_totals": totals, "time_to_first_token_ms": spread(ttft_ms), "inter_token_latency_ms": spread(20.0)}
        benchmarks[record.key.trial_id] = {"metrics": metrics | {"request_latency": spread(1.0)}}
        done.append(record)
        loads.append(load)
    return planner.outcome(done), loads


def server(*, knee: float, ttft_ms_each: float = 0.0, breaks_at: float = 1e9) -> Server:
    """Throughput grows up to `knee`; each request in flight adds to the TTFT; from `breaks_at` on half of them fail."""
    return lambda load: (100.0 * min(load, knee), 1.0 + ttft_ms_each * load, 50 if load >= breaks_at else 0)


def test_the_largest_load_within_a_mean_is_found_to_the_request() -> None:
    outcome, loads = drive(
        a_ramp(SloLimit(aggregate="avg", metric="ttft", limit_ms=501.0), low=4, high=256), server(knee=1e9, ttft_ms_each=10.0)
    )
    assert outcome["slo_bracket"] == [50.0, 51.0]
    assert loads[:5] == [4.0, 8.0, 16.0, 32.0, 64.0]
    assert (outcome["bracket_reason"], outcome["stop_reason"], outcome["target"]) == ("slo_failed", "converged", "slo")


@pytest.mark.parametrize(("aggregate", "found"), [("avg", 50), ("p95", 25), ("p99", 16)])
def test_each_aggregate_is_held_to_its_own_value(aggregate: str, found: int) -> None:
    limit = SloLimit(aggregate=aggregate, metric="ttft", limit_ms=510.0)
    outcome, _ = drive(a_ramp(limit, low=4, high=256), lambda load: (100.0 * load, 10.0 * load + 1e-9, 0))
    assert outcome["slo_bracket"][0] == pytest.approx(found, abs=1)


def test_all_limits_hold_together_and_what_was_not_measured_is_not_kept() -> None:
    loose = SloLimit(aggregate="avg", metric="latency", limit_ms=5000.0)
    tight = SloLimit(aggregate="avg", metric="itl", limit_ms=10.0)
    outcome, loads = drive(a_ramp(loose, tight, low=4, high=256), server(knee=1e9))
    assert outcome["slo_bracket"] == [None, 4.0]
    assert loads == [4.0]
    zeros = {"inter_token_latency_ms": {"successful": {"mean": 0.0, "percentiles": {"p95": None}}}}
    assert not tight.met(zeros)
    assert not SloLimit(aggregate="p95", metric="itl", limit_ms=10.0).met(zeros)


def test_without_limits_it_ends_where_throughput_is_flat() -> None:
    outcome, loads = drive(a_ramp(low=4, high=4096), server(knee=32))
    assert (outcome["target"], outcome["bracket_reason"], outcome["stop_reason"]) == (
        "saturation",
        "capacity_plateau",
        "converged",
    )
    assert max(loads) <= 128
    assert outcome["slo_bracket"] is None


def test_failures_end_the_way_up() -> None:
    outcome, loads = drive(a_ramp(low=4, high=4096), server(knee=1e9, breaks_at=64))
    assert outcome["bracket_reason"] == "overloaded"
    assert sum(load >= 64 for load in loads) <= 4  # one on the way up, and those that narrow it down
    assert max(load for load in loads if load < 64) >= 56


def test_the_end_of_the_range_and_both_budgets_are_told_apart() -> None:
    endless = server(knee=1e9)
    ranged, _ = drive(a_ramp(SloLimit(aggregate="avg", metric="ttft", limit_ms=1e6), low=4, high=16), endless)
    assert (ranged["bracket_reason"], ranged["stopped_at"]) == ("upper_bound", 16.0)
    few, loads = drive(a_ramp(low=4, high=4096, points=2), endless)
    assert (few["stop_reason"], len(loads)) == ("budget_points", 2)
    slow, loads = drive(a_ramp(low=4, high=4096), endless, each_s=2000.0)
    assert (slow["stop_reason"], len(loads), slow["elapsed_seconds"]) == ("budget_seconds", 3, 6000.0)


def test_rates_are_searched_as_rates() -> None:
    outcome, loads = drive(
        a_ramp(SloLimit(aggregate="avg", metric="ttft", limit_ms=101.0), axis="request_rate", low=4.0, high=256.0),
        server(knee=1e9, ttft_ms_each=10.0),
    )
    best, above = outcome["slo_bracket"]
    assert best <= 10.0 < above <= 1.03 * best
    assert outcome["axis"] == "rate"
    assert any(not load.is_integer() for load in loads)


def test_only_limits_that_are_given_count() -> None:
    assert slo_limits({}) == ()
    assert slo_limits({"slo_p95_itl_ms": 50.0, "slo_avg_ttft_ms": None}) == (
        SloLimit(aggregate="p95", metric="itl", limit_ms=50.0),
    )
