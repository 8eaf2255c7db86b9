"""Latency definitions, populations and percentiles, one request at a time and together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.records import ChunkKind, LoadSpec, Metric, Outcome
from bench.timing.latency import content_stamps, icl_ms, itl_ms, tpot_ms
from bench.timing.population import in_flight_mean, population
from bench.timing.requests import observe, request_metrics
from bench.timing.summary import adjusted, distribution
from bench.timing.tokens import count_tokens
from tests.timing.builders import CLOSED, OPEN, Request, make_case, make_log, steady, window_ms

CONTENT, REASONING = ChunkKind.CONTENT, ChunkKind.REASONING
WINDOW = window_ms(0, 10_000)


def metrics_of(*requests: Request, open_loop: bool = False) -> dict[str, Metric]:
    case = make_case(load=OPEN) if open_loop else make_case()
    return request_metrics(observe(case, make_log(requests), WINDOW), {}, {})


def tpot_of(request: Request) -> float:
    log = make_log([request])
    return float(tpot_ms(count_tokens(log), content_stamps(log))[0])


def test_clockwork_gives_its_own_numbers() -> None:
    found = metrics_of(*(steady(100.0 * i, ttft_ms=50, gap_ms=20, n=8) for i in range(5)))
    assert found["ttft_ms"].p50 == pytest.approx(50)
    assert found["tpot_ms"].p50 == pytest.approx(20)
    assert found["icl_ms"].p50 == pytest.approx(20)
    assert found["itl_ms"].p50 == pytest.approx(20)
    assert found["e2e_ms"].p50 == pytest.approx(190)
    assert found["tok_per_s_per_user"].p50 == pytest.approx(50)
    assert found["output_tokens"].p50 == 8
    assert found["input_tokens"].mean == 8
    assert found["icl_ms"].n == 35


def test_first_answer_comes_after_reasoning() -> None:
    chunks = [(50, 4, REASONING), (70, 4, REASONING), (90, 4), (110, 4)]
    found = metrics_of(Request(chunks=chunks, usage=4, reasoning=2, closed_ms=111))
    assert found["ttft_ms"].p50 == pytest.approx(50)
    assert found["ttfat_ms"].p50 == pytest.approx(90)


def test_reasoning_without_answer_has_no_first_answer() -> None:
    found = metrics_of(Request(chunks=[(50, 4, REASONING)], usage=1, reasoning=1, closed_ms=60))["ttfat_ms"]
    assert found.p50 is None
    assert found.reason == "no request got an answer beside reasoning"


def test_scheduled_ttft_holds_the_clients_own_wait() -> None:
    request = steady(400, ttft_ms=50, scheduled_ms=100.0)
    found = metrics_of(request, open_loop=True)
    assert found["ttft_ms"].p50 == pytest.approx(50)
    assert found["ttft_scheduled_ms"].p50 == pytest.approx(350)
    assert metrics_of(request)["ttft_scheduled_ms"].reason == "closed loop: nothing is scheduled"


def test_tpot_takes_out_the_first_chunks_tokens_when_known() -> None:
    bundled = Request(chunks=[(50, 4, CONTENT, 4), (90, 4, CONTENT, 4)], usage=8)
    assert tpot_of(bundled) == pytest.approx(10)


def test_tpot_of_spread_tokens_takes_out_one() -> None:
    assert tpot_of(Request(chunks=[(50, 10), (150, 10)], usage=11)) == pytest.approx(10)


def test_tpot_ignores_a_textless_stop_token() -> None:
    assert tpot_of(steady(0, gap_ms=20, n=5, usage=6, finish="stop")) == pytest.approx(20)


@pytest.mark.parametrize(
    "request_",
    [
        steady(0, n=1),
        Request(chunks=[(50, 4, CONTENT, 4)], usage=4),
        Request(chunks=[(50, 4), (70, 4)]),
        Request(chunks=[(50, 4), (70, 4)], usage=50, reasoning=48),
        Request(),
    ],
    ids=["one token", "all in the first chunk", "no count", "hidden reasoning", "no content"],
)
def test_tpot_is_undefined(request_: Request) -> None:
    assert np.isnan(tpot_of(request_))


def test_an_undefined_metric_has_no_number_and_a_reason() -> None:
    found = metrics_of(steady(0, n=1))
    for name in ("tpot_ms", "icl_ms", "itl_ms", "tok_per_s_per_user"):
        metric = found[name]
        assert (metric.p50, metric.p90, metric.p99, metric.mean, metric.low, metric.high, metric.n) == (*(None,) * 6, 0)
        assert metric.reason


def test_itl_divides_and_weights_by_tokens() -> None:
    request = Request(chunks=[(50, 4, CONTENT, 1), (90, 4, CONTENT, 4), (100, 4, CONTENT, 1)], usage=6, closed_ms=101)
    found = metrics_of(request)
    assert found["icl_ms"].n == 2
    assert found["icl_ms"].mean == pytest.approx(25)
    assert found["itl_ms"].n == 5
    assert found["itl_ms"].mean == pytest.approx(10)


def test_a_chunk_of_no_token_passes_its_gap_on() -> None:
    log = make_log([Request(chunks=[(50, 4, CONTENT, 1), (60, 4, CONTENT, 0), (70, 4, CONTENT, 1)], usage=2)])
    gaps = itl_ms(log, count_tokens(log), np.array([True]))
    assert gaps.ms.tolist() == [20.0]


def test_itl_leaves_out_requests_whose_chunks_hide_their_tokens() -> None:
    found = metrics_of(steady(0, n=5), Request(chunks=[(50, 9), (90, 9)], usage=9, closed_ms=91))
    assert found["itl_ms"].n == 4
    assert found["itl_ms"].source == "spread_by_bytes; 1 of 2 requests left out"
    alone = metrics_of(Request(chunks=[(50, 9), (90, 9)], usage=9, closed_ms=91))["itl_ms"]
    assert alone.reason == "tokens per chunk are unknown and chunks != tokens"
    assert alone.p50 is None


def test_gaps_do_not_cross_requests() -> None:
    log = make_log([steady(0, n=2), steady(5000, n=2)])
    assert icl_ms(log, np.array([True, True])).ms.tolist() == [20.0, 20.0]


# --- population -------------------------------------------------------------------------------------------------------


def test_closed_loop_population_is_what_was_sent_in_the_window() -> None:
    log = make_log([steady(-1), steady(0), steady(9999.9), steady(10_000)])
    assert population(log, WINDOW, "closed").members.tolist() == [False, True, True, False]


def test_open_loop_population_is_what_was_due_in_the_window() -> None:
    late = steady(10_500, scheduled_ms=9_900)
    early = steady(100, scheduled_ms=-5)
    never_sent = Request(sent_ms=None, scheduled_ms=500, outcome=Outcome.CANCELLED)
    log = make_log([early, late, never_sent])
    assert population(log, WINDOW, "open").members.tolist() == [False, True, True]


def test_outcomes_split_the_population() -> None:
    outcomes = [Outcome.OK, Outcome.TIMEOUT, Outcome.EMPTY, Outcome.CANCELLED]
    found = population(make_log([steady(i, outcome=o) for i, o in enumerate(outcomes)]), WINDOW, "closed")
    assert (found.count, found.ok.sum(), found.failed.sum(), found.unfinished.sum()) == (4, 1, 2, 1)


def test_requests_of_the_warm_up_change_no_latency() -> None:
    inside = [steady(100.0 * i) for i in range(20)]
    before = [steady(-500.0 + i, ttft_ms=400, gap_ms=77) for i in range(9)]
    plain, more = metrics_of(*inside), metrics_of(*before, *inside)
    for name in ("ttft_ms", "tpot_ms", "icl_ms", "itl_ms", "e2e_ms", "ttft_adjusted_ms", "e2e_adjusted_ms", "error_share"):
        assert more[name] == plain[name]


def test_in_flight_mean_is_the_time_average() -> None:
    log = make_log([steady(-1000, closed_ms=5000), steady(0, closed_ms=10_000), steady(2500, closed_ms=None), steady(20_000)])
    assert in_flight_mean(log, WINDOW) == pytest.approx(0.5 + 1.0 + 0.75)


# --- percentiles ------------------------------------------------------------------------------------------------------


def test_p99_is_withheld_below_100_values() -> None:
    assert distribution("ttft_ms", np.arange(1.0, 100.0), "").p99 is None
    found = distribution("ttft_ms", np.arange(1.0, 101.0), "")
    assert found.p99 == pytest.approx(99.01)
    assert found.p99_low is not None
    assert found.p99_high is None
    assert distribution("ttft_ms", np.arange(1.0, 500.0), "").p99_high is not None


@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_values(n: int) -> None:
    found = distribution("ttft_ms", np.arange(1.0, n + 1.0), "")
    assert found.p50 == (n + 1) / 2
    assert (found.low, found.high, found.p99, found.n) == (None, None, None, n)


def test_failures_stand_at_infinity_in_the_adjusted_percentiles() -> None:
    requests = [steady(10.0 * i, ttft_ms=50 + i) for i in range(98)]
    requests += [Request(sent_ms=990.0 + i, outcome=o, finish=None) for i, o in enumerate((Outcome.TIMEOUT, Outcome.CANCELLED))]
    found = metrics_of(*requests)
    assert found["ttft_ms"].n == 98
    assert found["ttft_ms"].p99 is None
    whole = found["ttft_adjusted_ms"]
    assert whole.n == 100
    assert whole.p50 == pytest.approx(99)
    assert whole.p90 == pytest.approx(139)
    assert whole.p99 is None
    assert whole.mean is None
    assert whole.reason == "p99: 2 of 100 requests (2.0%) never succeeded"


def test_a_failure_with_some_content_is_still_at_infinity() -> None:
    cut = Request(sent_ms=10, chunks=[(20, 4)], outcome=Outcome.TRUNCATED, finish=None)
    assert metrics_of(steady(0), cut)["ttft_adjusted_ms"].p90 is None


def test_all_failed_is_all_none() -> None:
    found = adjusted("e2e_ms", np.full(3, np.inf), "")
    assert (found.p50, found.p90, found.p99, found.low, found.high) == (None,) * 5
    assert found.reason == "p50, p90: 3 of 3 requests (100.0%) never succeeded"


def test_adjusted_equals_success_only_up_to_interpolation_when_nothing_failed() -> None:
    found = metrics_of(*(steady(10.0 * i, ttft_ms=50.0 + i) for i in range(101)))
    assert found["ttft_adjusted_ms"].p50 == found["ttft_ms"].p50
    assert found["ttft_adjusted_ms"].reason is None


# --- replies that were not streamed -----------------------------------------------------------------------------------


def whole(sent_ms: float, took_ms: float = 100.0, **changes: Any) -> Request:
    return Request(**({"sent_ms": sent_ms, "closed_ms": sent_ms + took_ms, "usage": 8, "prompt": 5} | changes))


def test_a_reply_that_was_not_streamed_has_an_end_but_no_first_token() -> None:
    found = metrics_of(*(whole(100.0 * i) for i in range(5)))
    assert found["e2e_ms"].p50 == pytest.approx(100)
    assert found["e2e_adjusted_ms"].p50 == pytest.approx(100)
    for name in ("ttft_ms", "ttfat_ms", "tpot_ms", "tok_per_s_per_user", "ttft_adjusted_ms"):
        assert (found[name].p50, found[name].n) == (None, 0), name
        assert found[name].reason == "no reply was streamed: no content chunk came", name
    assert found["output_tok_per_s"].value == pytest.approx(4.0)
    assert found["output_tok_per_s"].source == "usage"
    assert found["input_tok_per_s"].value == pytest.approx(2.5)
    assert found["requests_per_s"].value == pytest.approx(0.5)


def test_a_whole_reply_counts_when_it_is_there() -> None:
    assert metrics_of(whole(9_950))["output_tok_per_s"].value is None
    assert metrics_of(whole(-50))["output_tok_per_s"].value == pytest.approx(0.8)
    assert (
        metrics_of(whole(0, usage=None))["output_tok_per_s"].reason == "the server gave no token counts: no usage, no token ids"
    )


def test_a_success_without_a_first_token_is_no_failure_in_the_adjusted_ttft() -> None:
    found = metrics_of(steady(0, ttft_ms=50), whole(100), whole(200))["ttft_adjusted_ms"]
    assert (found.p50, found.p90, found.n, found.reason) == (50.0, 50.0, 1, None)
    assert found.source == "2 of 3 requests without such a latency left out"


def test_failures_beside_whole_replies_stay_at_infinity() -> None:
    found = metrics_of(steady(0), whole(100), Request(sent_ms=200, outcome=Outcome.TIMEOUT, finish=None))["ttft_adjusted_ms"]
    assert found.n == 2
    assert found.p90 is None


def test_hidden_reasoning_alone_is_no_content() -> None:
    found = metrics_of(whole(0, usage=100, reasoning=100))
    assert found["e2e_ms"].p50 is None
    assert found["output_tok_per_s"].reason == "no token arrived in the window"


def test_a_reply_in_one_chunk_has_no_tpot_whatever_it_holds() -> None:
    """Two stamps that are one: the time between tokens would come out as 0, and the speed as endless."""
    found = metrics_of(Request(chunks=[(50, 400)], usage=64, closed_ms=51))
    assert found["tpot_ms"].p50 is None
    assert found["tok_per_s_per_user"].reason == "no reply has tokens after its first chunk"
    assert found["output_tok_per_s"].value == pytest.approx(6.4)
    assert found["output_tok_per_s"].source == "usage"


# --- whole jobs -------------------------------------------------------------------------------------------------------


def job(*requests: Request, t1_ms: float, open_loop: bool = False) -> dict[str, Metric]:
    """A count-bound job: from its first send to its last content."""
    case = make_case(load=LoadSpec(kind="open", arrivals="burst", num_prompts=len(requests)) if open_loop else CLOSED)
    window = window_ms(min(r.sent_ms or 0.0 for r in requests), t1_ms, kind="whole_job")
    return request_metrics(observe(case, make_log(requests), window), {}, {})


def test_failures_after_the_last_content_belong_to_the_job() -> None:
    lost = [Request(sent_ms=1000.0 + i, outcome=Outcome.HTTP, finish=None, closed_ms=1001.0 + i) for i in range(4)]
    found = job(steady(0, ttft_ms=50, gap_ms=10, n=5), *lost, t1_ms=90)
    assert found["error_share"].value == pytest.approx(0.8)
    assert found["ttft_adjusted_ms"].n == 5
    assert found["ttft_adjusted_ms"].p50 is None


def test_a_burst_that_was_due_before_its_first_send_is_the_whole_population() -> None:
    found = job(*(steady(1.0 + i, scheduled_ms=0.0, ttft_ms=50) for i in range(6)), t1_ms=400, open_loop=True)
    assert found["ttft_scheduled_ms"].n == 6
    assert found["ttft_scheduled_ms"].p50 == pytest.approx(53.5)


def test_every_reply_of_a_job_is_completed_in_it() -> None:
    """The last one closes after its last content: usage and the end of the stream are still to come."""
    found = job(*(steady(100.0 * i, ttft_ms=50, gap_ms=10, n=5, closed_ms=100.0 * i + 95) for i in range(3)), t1_ms=290)
    assert found["requests_per_s"].value == pytest.approx(3 / 0.29)
