"""Failures that other tools counted as quick successes, or let turn into NaN."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from bench.records import LoadSpec, Metric, Outcome, Telemetry
from bench.timing import measure
from tests.lessons.path import measured, middle, number, on_mock
from tests.load.scripted import Exchange, ScriptedServer, answer, chat, chunked, event, sized, usage
from tests.load.test_loops import slow
from tests.mock.wire import LocalMock
from tests.timing.builders import Request, make_case, make_load, make_log, steady, window_ms

TWENTY = LoadSpec(kind="closed", batch_size=2, num_prompts=20)


def test_failures_stay_out_of_latencies_and_do_not_vanish(tmp_path: Path) -> None:
    """A 503 comes in a millisecond. In the latencies it would look like the fastest reply of all."""
    with LocalMock(ttft_ms=60.0, gap_ms=2.0, quirks=("status=503:0.4",), seed=3) as server:
        trial = on_mock(server, tmp_path, load=TWENTY)
    ok = int((trial.log.outcome == Outcome.OK).sum())
    assert 0 < ok < 20
    assert set(trial.log.outcome) == {Outcome.OK, Outcome.HTTP}
    assert trial["ttft_ms"].n == trial["e2e_ms"].n == ok
    assert middle(trial["ttft_ms"]) >= 60.0
    assert trial["ttft_adjusted_ms"].n == trial["e2e_adjusted_ms"].n == 20
    assert number(trial["error_share"]) == pytest.approx((20 - ok) / 20)
    assert number(trial["requests_per_s"]) * trial.window.seconds == pytest.approx(ok)
    assert ("errors", "latency", "invalid") in trial.codes


def every_other(bad: bytes) -> ScriptedServer:
    """Answers half of the requests with `bad`, at once; the others after 20 ms."""

    def reply(x: Exchange) -> None:
        if x.number % 2:
            x.send(bad)
        else:
            slow(x, 0.02)

    return ScriptedServer(reply)


EMPTY = chunked(chat({"role": "assistant", "content": ""}) + chat({}, "stop") + usage(8, 0) + b"data: [DONE]\n\n")


def test_an_empty_reply_is_no_success_and_has_no_ttft(tmp_path: Path) -> None:
    with every_other(EMPTY) as server:
        trial = measured(server.url, tmp_path, load=TWENTY)
    assert np.bincount(trial.log.outcome, minlength=9)[[Outcome.OK, Outcome.EMPTY]].tolist() == [10, 10]
    assert trial["ttft_ms"].n == 10
    assert middle(trial["ttft_ms"]) >= 20.0  # TTFT 0.00 for half of them would pull it to 0
    assert number(trial["error_share"]) == 0.5
    assert not any(reason.code == "impossible" for reason in trial.measured.reasons)


def test_nothing_but_empty_replies_is_no_number_at_all(tmp_path: Path) -> None:
    with LocalMock(ttft_ms=5.0, gap_ms=1.0, quirks=("empty-reply",)) as server:
        trial = on_mock(server, tmp_path, load=TWENTY)
    assert set(trial.log.outcome) == {Outcome.EMPTY}
    for name in ("ttft_ms", "output_tok_per_s", "requests_per_s"):
        assert (trial[name].value, trial[name].p50) == (None, None), name
        assert trial[name].reason


BROKEN = chunked(
    chat({"content": "a"}) + chat({"content": "b"}) + event({"error": {"message": "out of memory"}}) + b"data: [DONE]\n\n"
)


def test_an_error_inside_a_200_is_a_failure(tmp_path: Path) -> None:
    with every_other(BROKEN) as server:
        trial = measured(server.url, tmp_path, load=TWENTY)
    failed = trial.log.outcome == Outcome.STREAM_ERROR
    assert failed.sum() == 10
    assert trial.log.error[int(np.flatnonzero(failed)[0])] == "out of memory"
    assert number(trial["error_share"]) == 0.5
    assert trial["ttft_ms"].n == 10
    assert middle(trial["ttft_ms"]) >= 20.0
    assert number(trial["requests_per_s"]) * trial.window.seconds == pytest.approx(10)


def test_an_http_error_beside_good_replies_keeps_the_servers_words(tmp_path: Path) -> None:
    with every_other(sized(b'{"error": {"message": "queue is full"}}', "429 Too Many Requests")) as server:
        trial = measured(server.url, tmp_path, load=TWENTY)
    (reason,) = [r for r in trial.measured.reasons if r.code == "errors" and r.group == "latency"]
    assert "10 of 20 requests failed (50.0%): HTTP 429: queue is full" in reason.message


def test_failures_at_infinity_never_turn_into_nan() -> None:
    """Interpolating between a number and +inf gives inf, and between two of them NaN."""
    lost = [Request(sent_ms=9_900.0 + i, outcome=Outcome.TIMEOUT, finish=None) for i in range(2)]
    requests = [*(steady(90.0 * i, ttft_ms=50 + i) for i in range(98)), *lost]
    ordered = np.array([50.0 + i for i in range(98)] + [math.inf] * 2)
    with np.errstate(invalid="ignore"):
        assert not np.isfinite(np.percentile(ordered, 99))  # the trap
    found = measure(make_case(), make_load(make_log(requests), window_ms(0, 10_000)), Telemetry(), {}, {}).metrics
    assert found["ttft_adjusted_ms"].p90 == pytest.approx(139.0)
    assert found["ttft_adjusted_ms"].p99 is None
    assert found["ttft_adjusted_ms"].reason == "p99: 2 of 100 requests (2.0%) never succeeded"
    for metric in found.values():
        told = [getattr(metric, field.name) for field in structs.fields(Metric)]
        assert all(math.isfinite(value) for value in told if isinstance(value, float)), metric


def test_all_but_one_failed_still_gives_no_nan(tmp_path: Path) -> None:
    def reply(x: Exchange) -> None:
        x.send(chunked(answer(4)) if x.number == 0 else sized(b"no", "500 No"))

    with ScriptedServer(reply) as server:
        trial = measured(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=1, num_prompts=5))
    adjusted = trial["ttft_adjusted_ms"]
    assert (adjusted.p50, adjusted.p90, adjusted.n) == (None, None, 5)
    assert adjusted.reason == "p50, p90: 4 of 5 requests (80.0%) never succeeded"
