"""Pooling of repeats."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from bench.analysis.pool import PoolKey, pool, pool_records
from bench.records import ClockAnchor, HostInfo, Metric, Status, TrialKey, TrialRecord
from bench.stats import student_t
from tests.timing.builders import make_case


def rate(value: float | None) -> dict[str, Metric]:
    return {"output_tok_per_s": Metric(name="output_tok_per_s", unit="tok/s", value=value, reason=None if value else "none")}


def test_three_repeats_give_a_geometric_mean_with_an_interval() -> None:
    found = pool([rate(90.0), rate(100.0), rate(110.0)]).values["output_tok_per_s"]
    logs = [math.log(v) for v in (90.0, 100.0, 110.0)]
    mean = sum(logs) / 3
    half = student_t(0.95, 2) * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2 / 3)
    assert found.value == pytest.approx(math.exp(mean))
    assert found.low == pytest.approx(math.exp(mean - half))
    assert found.high == pytest.approx(math.exp(mean + half))
    assert (found.n, found.unit) == (3, "tok/s")


def test_one_repeat_has_no_interval() -> None:
    found = pool([rate(90.0)]).values["output_tok_per_s"]
    assert found.value == pytest.approx(90)
    assert (found.low, found.high, found.n) == (None, None, 1)


def test_quantiles_pool_apart() -> None:
    trials = [
        {"ttft_ms": Metric(name="ttft_ms", unit="ms", mean=9, p50=p50, p90=None, p99=p99, n=100)}
        for p50, p99 in ((4.0, 8.0), (9.0, 8.0))
    ]
    found = pool(trials).values
    assert found["ttft_ms.p50"].value == pytest.approx(6)
    assert found["ttft_ms.p99"].value == pytest.approx(8)
    assert set(found) == {"ttft_ms.p50", "ttft_ms.p99"}


def test_undefined_is_left_out_and_never_zero() -> None:
    found = pool([rate(100.0), rate(None)])
    assert found.values["output_tok_per_s"].n == 1
    assert found.trials == 2
    assert pool([rate(None)]).values == {}
    assert pool([]).values == {}


def test_a_share_of_zero_is_averaged_plainly() -> None:
    trials = [{"error_share": Metric(name="error_share", unit="share", value=v)} for v in (0.0, 0.02)]
    assert pool(trials).values["error_share"].value == pytest.approx(0.01)


def record(value: float, *, status: Status = Status.VALID, run: str = "r1", config: str = "k1", host: str = "h1") -> TrialRecord:
    moment = ClockAnchor(monotonic_ns=1, wall_ns=1)
    return TrialRecord(
        bench_version="0",
        key=TrialKey(run_id=run, trial_id="t", case_id="c", workload_id="w", repeat=0),
        status=status,
        case=make_case(),
        config_id=config,
        host=HostInfo(host_id=host, system="", release="", machine="", cpu_model=None, cpu_count=1, memory_b=1, python=""),
        started=moment,
        ended=moment,
        metrics=rate(value),
    )


def test_only_valid_trials_of_one_configuration_host_case_and_run_pool() -> None:
    records = [
        record(100),
        record(100),
        record(1, status=Status.INVALID),
        record(50, run="r2"),
        record(60, config="k2"),
        record(70, host="h2"),
    ]
    found = pool_records(records)
    main = PoolKey(config_id="k1", host_id="h1", case_id="c", run_id="r1")
    assert len(found) == 4
    assert found[main].trials == 2
    assert found[main].values["output_tok_per_s"].value == pytest.approx(100)


def test_a_group_without_a_valid_trial_pools_nothing() -> None:
    failed = replace(record(5), status=Status.FAILED)
    assert [pooled.trials for pooled in pool_records([failed]).values()] == [0]


def test_order_changes_nothing() -> None:
    records = [record(v) for v in (80.0, 100.0, 130.0)]
    forward, backward = pool([r.metrics for r in records]), pool([r.metrics for r in records[::-1]])
    assert forward.values["output_tok_per_s"].value == pytest.approx(backward.values["output_tok_per_s"].value)
