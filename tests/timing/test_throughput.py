"""Throughput, goodput and cache shares."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from msgspec.structs import replace

from bench.records import Case, ChunkKind, LoadSpec, Metric, Outcome, Slo, Window
from bench.stats import block_count
from bench.timing.requests import observe, request_metrics
from bench.timing.throughput import rate
from tests.timing.builders import OPEN, Request, closed_loop, make_case, make_log, steady, window_ms

WINDOW = window_ms(0, 10_000)


def metrics_of(requests: list[Request], *, case: Case | None = None, window: Window = WINDOW) -> dict[str, Metric]:
    return request_metrics(observe(case or make_case(), make_log(requests), window), {}, {})


def test_tokens_count_by_their_own_time_whoever_they_belong_to() -> None:
    requests = [
        steady(-100, ttft_ms=50, gap_ms=20, n=8),  # chunks at -50 .. 90: five of them at 10 .. 90
        steady(5000, n=8),
        Request(sent_ms=6000, chunks=[(6050, 4), (6070, 4)], outcome=Outcome.STREAM_ERROR, finish=None, closed_ms=6080),
        Request(sent_ms=9900, chunks=[(9950, 4), (9990, 4), (10_010, 4)], outcome=Outcome.CANCELLED, finish=None),
    ]
    found = metrics_of(requests)["output_tok_per_s"]
    assert found.value == pytest.approx((5 + 8 + 2 + 2) / 10)
    assert found.source == "usage"


def test_the_window_is_half_open() -> None:
    requests = [Request(sent_ms=-50, chunks=[(0, 4), (10_000, 4)], usage=2, closed_ms=10_001)]
    assert metrics_of(requests)["output_tok_per_s"].value == pytest.approx(0.1)
    whole = window_ms(0, 10_000, kind="whole_job")
    assert metrics_of(requests, window=whole)["output_tok_per_s"].value == pytest.approx(0.1)
    a_nanosecond_longer = replace(whole, t1_ns=whole.t1_ns + 1)
    assert metrics_of(requests, window=a_nanosecond_longer)["output_tok_per_s"].value == pytest.approx(0.2)


def test_a_closed_loop_delivers_its_rate_inside_its_interval() -> None:
    found = metrics_of(closed_loop(slots=4, seconds=10, n=8))
    life_s = (50 + 140 + 1) / 1000
    rate = found["output_tok_per_s"]
    assert rate.value == pytest.approx(4 * 8 / life_s, rel=0.01)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low <= 4 * 8 / life_s <= rate.high
    assert found["requests_per_s"].value == pytest.approx(4 / life_s, rel=0.02)
    assert found["input_tok_per_s"].value == pytest.approx(4 * 8 / life_s, rel=0.02)
    assert rate.value is not None
    assert found["input_tok_per_s"].value is not None
    assert found["total_tok_per_s"].value == pytest.approx(rate.value + found["input_tok_per_s"].value)
    assert found["in_flight_mean"].value == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize(("seconds", "forgets_s"), [(10, 0.1), (10, 1.0), (60, 0.1), (60, 1.0), (60, 5.0), (600, 5.0)])
def test_the_interval_of_a_rate_holds_the_truth_95_times_in_100(seconds: int, forgets_s: float) -> None:
    """A server of 500 tok/s that is fast or slow by 20% for a while."""
    rng, n, trials, tick_s = np.random.default_rng(11), block_count(seconds), 400, 0.1
    kept, ticks = np.exp(-tick_s / forgets_s), round(seconds / tick_s)
    speed = np.empty((trials, ticks))
    speed[:, 0] = rng.normal(size=trials)
    for i in range(1, ticks):
        speed[:, i] = kept * speed[:, i - 1] + np.sqrt(1 - kept**2) * rng.normal(size=trials)
    tokens = rng.poisson(np.maximum(500 * tick_s * (1 + 0.2 * speed), 0.0)).reshape(trials, n, -1).sum(axis=2)
    found = [rate("output_tok_per_s", row.astype(float), window_ms(0, seconds * 1000)) for row in tokens]
    hits = [one.low is not None and one.high is not None and one.low <= 500 <= one.high for one in found]
    assert 0.92 <= np.mean(hits) <= 0.99


def test_no_token_is_no_number() -> None:
    found = metrics_of([Request(outcome=Outcome.TIMEOUT, finish=None)])
    assert found["output_tok_per_s"].value is None
    assert found["output_tok_per_s"].reason == "no token arrived in the window"
    assert found["requests_per_s"].value == 0.0
    assert found["requests_per_s"].low is None


def test_chunks_are_not_tokens() -> None:
    found = metrics_of([Request(chunks=[(50, 4), (70, 4)], closed_ms=80)])["output_tok_per_s"]
    assert found.value is None
    assert found.reason == "the server gave no token counts: no usage, no token ids"


def test_prompt_tokens_belong_to_the_first_content() -> None:
    requests = [steady(-100, ttft_ms=150, prompt=100), steady(-100, ttft_ms=50, prompt=1000), steady(9990, ttft_ms=50, prompt=7)]
    assert metrics_of(requests)["input_tok_per_s"].value == pytest.approx(10)


def test_few_unknown_prompts_are_taken_at_the_mean_and_many_are_not() -> None:
    few = [steady(10.0 * i, prompt=100 if i else None) for i in range(40)]
    found = metrics_of(few)["input_tok_per_s"]
    assert found.value == pytest.approx(400)
    assert found.source == "usage; 1 of 40 requests at the mean of the others"
    many = metrics_of([steady(10.0 * i, prompt=100 if i % 2 else None) for i in range(40)])
    assert many["input_tok_per_s"].value is None
    assert many["total_tok_per_s"].reason == "prompt tokens are unknown"


def slo_case(*slos: Slo, open_loop: bool = False) -> Case:
    return make_case(load=OPEN, slos=slos) if open_loop else make_case(slos=slos)


def test_goodput_counts_failures_and_slow_ones_as_misses() -> None:
    requests = [
        steady(0, ttft_ms=50),
        steady(1000, ttft_ms=500),
        steady(2000, gap_ms=90),
        Request(sent_ms=3000, outcome=Outcome.TIMEOUT, finish=None),
        Request(sent_ms=4000, chunks=[(4010, 4)], outcome=Outcome.CANCELLED, finish=None),
    ]
    case = slo_case(Slo(metric="ttft", limit_ms=200), Slo(metric="tpot", limit_ms=50))
    found = metrics_of(requests, case=case)["goodput_rps"]
    assert found.value == pytest.approx(0.1)
    assert found.source == "1 of 5 requests"


def test_a_reply_of_one_token_skips_the_tpot_limit() -> None:
    case = slo_case(Slo(metric="tpot", limit_ms=50))
    found = metrics_of([steady(0, n=1), steady(1000)], case=case)["goodput_rps"]
    assert found.value == pytest.approx(0.2)
    assert found.source == "2 of 2 requests; 1 undefined criteria skipped"


@pytest.mark.parametrize(
    "reply",
    [
        Request(sent_ms=0, chunks=[(50, 40)], usage=4, closed_ms=51),
        Request(sent_ms=0, chunks=[(50, 4)], usage=2, finish="stop", closed_ms=51),
        Request(sent_ms=0, chunks=[(50, 9, ChunkKind.CONTENT, 3)], usage=3, closed_ms=51),
    ],
    ids=["all in one chunk", "textless stop token", "told"],
)
def test_any_reply_without_a_token_after_its_first_chunk_skips_the_tpot_limit(reply: Request) -> None:
    case = slo_case(Slo(metric="ttft", limit_ms=100), Slo(metric="tpot", limit_ms=50))
    found = metrics_of([reply, steady(1000)], case=case)["goodput_rps"]
    assert found.value == pytest.approx(0.2)
    assert found.source == "2 of 2 requests; 1 undefined criteria skipped"


@pytest.mark.parametrize("metric", ["ttft", "tpot"])
def test_a_reply_that_was_not_streamed_can_not_be_judged_by_its_tokens(metric: Literal["ttft", "tpot"]) -> None:
    reply = Request(sent_ms=0, usage=8, closed_ms=100)
    assert metrics_of([reply], case=slo_case(Slo(metric=metric, limit_ms=50)))["goodput_rps"].value is None
    assert metrics_of([reply], case=slo_case(Slo(metric="e2e", limit_ms=150)))["goodput_rps"].value == pytest.approx(0.1)


def test_a_limit_that_nobody_can_judge_leaves_goodput_undefined() -> None:
    case = slo_case(Slo(metric="tpot", limit_ms=50))
    found = metrics_of([Request(chunks=[(50, 4), (60, 4)], closed_ms=70)], case=case)["goodput_rps"]
    assert found.value is None
    assert found.reason == "the tpot of 1 requests can't be told"


def test_goodput_in_open_loop_counts_the_wait_for_sending() -> None:
    requests = [steady(600, ttft_ms=50, scheduled_ms=100.0), steady(1000, ttft_ms=50, scheduled_ms=1000.0)]
    for slo in (Slo(metric="ttft", limit_ms=200), Slo(metric="e2e", limit_ms=300)):
        case = slo_case(slo, open_loop=True)
        assert metrics_of(requests, case=case)["goodput_rps"].value == pytest.approx(0.1), slo


def test_goodput_without_a_limit_is_undefined() -> None:
    assert metrics_of([steady(0)])["goodput_rps"].reason == "no SLO was stated"


def counters(prompt: float, cached: float | None) -> dict[str, float]:
    found = {"prompt_tokens_total": prompt}
    return found if cached is None else found | {"prompt_tokens_cached_total": cached}


@pytest.mark.parametrize(
    ("before", "after", "cached", "expected"),
    [
        ({}, {}, None, None),
        ({}, {}, 4, 0.5),
        (counters(100, 10), counters(300, 30), None, 0.1),
        (counters(100, 10), counters(300, 30), 4, 0.5),
        (counters(300, 10), counters(100, 0), None, None),
        (counters(100, None), counters(200, None), None, None),
    ],
)
def test_prefix_cache_hits(before: dict[str, float], after: dict[str, float], cached: int | None, expected: float | None) -> None:
    seen = observe(make_case(), make_log([steady(0, prompt=8, cached=cached)]), WINDOW)
    found = request_metrics(seen, before, after)["prefix_cache_hit_share"]
    assert found.value == (None if expected is None else pytest.approx(expected))
    assert (found.reason is None) == (expected is not None)


def test_kv_cache_from_the_engine_or_not_at_all() -> None:
    seen = observe(make_case(), make_log([steady(0)]), WINDOW)
    found = request_metrics(seen, {}, {"kv_cache_util_peak": 0.7})
    assert found["kv_cache_util_peak"].value == 0.7
    assert found["kv_cache_util_mean"].reason == "the engine does not tell"


@pytest.mark.parametrize(("mean", "peak"), [(0.7, 0.5), (0.7, 1.4), (-0.1, 0.5)])
def test_a_kv_cache_that_can_not_be_is_no_number(mean: float, peak: float) -> None:
    seen = observe(make_case(), make_log([steady(0)]), WINDOW)
    found = request_metrics(seen, {}, {"kv_cache_util_mean": mean, "kv_cache_util_peak": peak})
    assert found["kv_cache_util_mean"].value is None
    assert "the engine told" in (found["kv_cache_util_peak"].reason or "")


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.TRUNCATED, Outcome.STREAM_ERROR, Outcome.CANCELLED])
def test_a_failure_after_a_quick_first_token_is_still_a_miss(outcome: Outcome) -> None:
    cut = Request(sent_ms=100, chunks=[(110, 4), (120, 4)], outcome=outcome, finish=None, closed_ms=130)
    case = slo_case(Slo(metric="ttft", limit_ms=200), Slo(metric="e2e", limit_ms=5000))
    assert metrics_of([steady(0), cut], case=case)["goodput_rps"].value == pytest.approx(0.1)


def test_asked_and_sent_rates_part_where_requests_are_held_back() -> None:
    """10 a second are due; every other one goes out after the window."""
    open_loop = make_case(load=LoadSpec(kind="open", request_rate=10.0, arrivals="constant"))
    requests = [steady(100.0 * i + (20_000 if i % 2 else 0), scheduled_ms=100.0 * i) for i in range(100)]
    found = metrics_of(requests, case=open_loop)
    assert found["request_rate_asked_rps"].value == pytest.approx(10)
    assert found["request_rate_sent_rps"].value == pytest.approx(5)
    whole = metrics_of(requests, case=open_loop, window=window_ms(0, 40_000, kind="whole_job"))
    assert whole["request_rate_asked_rps"].value == pytest.approx(99 / 9.9)
    assert whole["request_rate_sent_rps"].value == pytest.approx(99 / 29.9)


def test_what_comes_at_once_or_by_itself_has_no_rate() -> None:
    closed = metrics_of(closed_loop())
    assert closed["request_rate_asked_rps"].reason == "closed loop: a request goes out when another ends"
    burst = make_case(load=LoadSpec(kind="open", arrivals="burst", num_prompts=4))
    requests = [steady(5.0, scheduled_ms=0.0) for _ in range(4)]
    found = metrics_of(requests, case=burst, window=window_ms(0, 500, kind="whole_job"))
    assert found["request_rate_asked_rps"].value is None
    assert found["request_rate_asked_rps"].reason == "all at one moment"
    nothing = metrics_of([], case=burst, window=window_ms(0, 500, kind="whole_job"))
    assert nothing["request_rate_sent_rps"].reason == "there was no request"
