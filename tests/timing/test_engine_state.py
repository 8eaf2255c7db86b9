"""What an engine tells of itself in the window, how it started, and whether it counts as the client does."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from bench.records import EngineSamples, Measured, Outcome, Telemetry
from bench.timing import measure
from bench.timing.engine_state import window_state
from tests.factories import make_engine
from tests.timing.builders import Request, closed_loop, make_case, make_load, make_log, window_ms

S = 1_000_000_000
WINDOW = window_ms(0, 10_000)


def each_second(low: int = -2, high: int = 13, **columns: Any) -> EngineSamples:
    """An answer a second, from functions of the second."""
    seconds = range(low, high)
    return EngineSamples(
        at_ns=tuple(second * S for second in seconds),
        counters={name: tuple(value(second) for second in seconds) for name, value in columns.items()},
    )


def measured(samples: EngineSamples, **extra: Any) -> Measured:
    return measure(make_case(), make_load(make_log(closed_loop()), WINDOW), Telemetry(), {}, {}, samples=samples, **extra)


def test_gauges_are_those_of_the_window_alone() -> None:
    def inside(second: int) -> bool:
        return 0 <= second < 10

    found = measured(
        each_second(
            kv_cache_util=lambda second: 0.1 * second if inside(second) else 1.0,
            requests_running=lambda second: 4.0 if inside(second) else 99.0,
            requests_waiting=lambda second: float(second % 3) if inside(second) else 99.0,
        )
    ).metrics
    assert found["kv_cache_util_mean"].value == pytest.approx(0.45)
    assert found["kv_cache_util_peak"].value == pytest.approx(0.9)
    assert found["requests_running_mean"].value == 4.0
    assert found["requests_waiting_mean"].value == pytest.approx(0.9)
    assert found["requests_waiting_peak"].value == 2.0


@pytest.mark.parametrize(
    "samples", [EngineSamples(), each_second(kv_cache_util=lambda _: None), each_second(5, 6, kv_cache_util=float)]
)
def test_what_was_not_told_often_enough_is_no_number(samples: EngineSamples) -> None:
    found = measured(samples).metrics
    for name in ("kv_cache_util_mean", "kv_cache_util_peak", "requests_running_mean", "requests_waiting_peak", "preemptions"):
        assert found[name].value is None
        assert found[name].reason == "the engine does not tell"


def test_answers_that_lack_a_gauge_are_left_out() -> None:
    found = window_state(each_second(kv_cache_util=lambda second: None if second % 2 else 0.5), WINDOW)
    assert (found["kv_cache_util_mean"], found["kv_cache_util_peak"]) == (0.5, 0.5)


def test_a_share_above_one_is_refused() -> None:
    assert "which is no share" in (measured(each_second(kv_cache_util=lambda _: 37.0)).metrics["kv_cache_util_mean"].reason or "")


def test_preemptions_are_counted_from_before_the_window_to_after_it() -> None:
    found = window_state(
        each_second(preemptions_total=lambda second: {-2: 1.0, -1: 3.0}.get(second, 3.0 + max(second, 0))), WINDOW
    )
    assert found["preemptions"] == 10.0


@pytest.mark.parametrize(
    "samples",
    [
        each_second(1, 13, preemptions_total=float),
        each_second(-2, 9, preemptions_total=float),
        each_second(preemptions_total=lambda second: 9.0 if second < 5 else 1.0),
    ],
    ids=["nothing before", "nothing after", "started anew"],
)
def test_preemptions_that_can_not_be_told_are_no_number(samples: EngineSamples) -> None:
    assert "preemptions" not in window_state(samples, WINDOW)


def test_how_the_engine_started() -> None:
    engine = replace(make_engine(), start_s=12.5, load_s=3.25, first_token_s=0.5, pids=(1,))
    found = measured(EngineSamples(), engine=engine).metrics
    assert [found[f"engine_{name}_s"].value for name in ("start", "load", "first_token")] == [12.5, 3.25, 0.5]
    assert found["engine_start_s"].unit == "s"


def test_an_endpoint_that_ran_already_has_no_start() -> None:
    engine = replace(make_engine(), start_s=0.01, load_s=None, first_token_s=None, pids=())
    found = measured(EngineSamples(), engine=engine).metrics
    assert all(found[f"engine_{name}_s"].reason == "it ran already" for name in ("start", "load", "first_token"))
    assert measured(EngineSamples()).metrics["engine_load_s"].reason == "the engine does not tell"


# --- the engine's count and the client's ------------------------------------------------------------------------------


def reasons(requests: list[Request], counted: float, **before: float) -> dict[str, str]:
    start = {"generation_tokens_total": 1000.0} | before
    load = make_load(make_log(requests), WINDOW)
    found = measure(make_case(), load, Telemetry(), start, {"generation_tokens_total": 1000.0 + counted})
    return {reason.group: reason.message for reason in found.reasons if reason.code == "token_counts_disagree"}


TEN = [Request(sent_ms=500.0 * i, chunks=[(500.0 * i + 50 + 20 * k, 1) for k in range(8)], usage=8) for i in range(10)]


@pytest.mark.parametrize("counted", [70.0, 80.0, 90.0])
def test_a_token_a_request_is_rounding(counted: float) -> None:
    assert reasons(TEN, counted) == {}


@pytest.mark.parametrize("counted", [0.0, 69.0, 91.0, 800.0])
def test_more_than_rounding_is_told(counted: float) -> None:
    found = reasons(TEN, counted)
    assert list(found) == ["throughput"]
    assert f"the engine counted {counted:.0f} generated tokens, the client 80" in found["throughput"]


@pytest.mark.parametrize(("counted", "agrees"), [(80.0, True), (106.0, True), (110.0, False)])
def test_a_request_that_was_cut_off_may_have_got_any_number_up_to_what_it_asked_for(counted: float, agrees: bool) -> None:
    cut = Request(sent_ms=9000, chunks=[(9050, 4)], outcome=Outcome.CANCELLED, finish=None, output_requested=16)
    assert (reasons([*TEN, cut], counted) == {}) is agrees


def test_an_engine_that_started_anew_or_does_not_count_is_not_judged() -> None:
    assert reasons(TEN, -900.0) == {}
    load = make_load(make_log(TEN), WINDOW)
    told = {"generation_tokens_total": math.nan}
    assert all(r.code != "token_counts_disagree" for r in measure(make_case(), load, Telemetry(), told, told).reasons)
