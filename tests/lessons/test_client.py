"""Load that other clients did not make as asked, and did not say so."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from bench.load.arrivals import arrival_offsets_s
from bench.records import LengthSpec, LoadSpec, Outcome, Telemetry
from bench.timing import measure
from tests.lessons.path import measured, middle, number, on_mock, one_at_a_time, truth_of
from tests.load.scripted import HEAD, Exchange, ScriptedServer, chat, frame
from tests.load.test_loops import slow
from tests.mock.wire import LocalMock
from tests.timing.builders import HEALTHY, closed_loop, make_case, make_load, make_log, window_ms

MANY = 130
"""More than the 100 connections that a pool holds by default in the usual Python clients."""


def test_no_pool_lowers_the_concurrency_that_was_asked_for(tmp_path: Path) -> None:
    running: list[float] = []
    with LocalMock(ttft_ms=300.0, gap_ms=20.0) as server:
        trial = on_mock(
            server,
            tmp_path,
            load=LoadSpec(kind="closed", batch_size=MANY),
            output_tokens=LengthSpec(mean=20),
            warmup_s=0.3,
            duration_s=0.8,
            told=lambda _: running.append(server.metrics()["requests_running"]),
        )
    assert max(running) == MANY
    assert (trial.result.health.in_flight_asked, trial.result.health.in_flight_reached) == (MANY, MANY)
    assert number(trial["in_flight_mean"]) == pytest.approx(MANY, rel=0.1)


def test_a_concurrency_that_was_not_reached_is_said() -> None:
    log, case = make_log(closed_loop()), make_case(load=LoadSpec(kind="closed", batch_size=MANY))
    capped = replace(HEALTHY, in_flight_asked=MANY, in_flight_reached=100)
    found = measure(case, make_load(log, window_ms(0, 10_000), capped), Telemetry(), {}, {})
    said = {r.group: r.message for r in found.reasons if r.code == "client_saturated"}
    assert set(said) == {"latency", "throughput"}
    assert "130 requests in flight asked for, 100 reached" in said["throughput"]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_worker_hoards_requests_that_another_could_send(workers: int, tmp_path: Path) -> None:
    """No reply comes before all twelve requests have been sent: one that waits in a busy worker would block them all."""
    count, everyone = 12, threading.Event()

    def reply(x: Exchange) -> None:
        if len(x.server.exchanges) == count:
            everyone.set()
        assert everyone.wait(30), f"only {len(x.server.exchanges)} of {count} came"
        slow(x, 0.01)

    load = LoadSpec(kind="open", request_rate=60.0, arrivals="constant", num_prompts=count)
    with ScriptedServer(reply) as server:
        trial = measured(server.url, tmp_path, load=load, client_workers=workers)
    assert trial.log.outcome.tolist() == [Outcome.OK] * count
    assert trial.result.health.in_flight_reached == count
    assert trial.log.sent_ns.max() < trial.log.chunk_ns.min()


def test_waiting_for_a_free_place_is_not_hidden(tmp_path: Path) -> None:
    """Coordinated omission: at most one request at a time, twice as many due as can be served. Each reply is quick once it is
    asked for, and the last has waited for half of the run.
    """
    load = LoadSpec(kind="open", request_rate=40.0, arrivals="constant", max_concurrency=1, num_prompts=24)
    with LocalMock(ttft_ms=40.0, gap_ms=4.0) as server:
        trial = on_mock(server, tmp_path, load=load, output_tokens=LengthSpec(mean=3))
    log = trial.log
    waited_ms = (log.sent_ns - log.scheduled_ns) / 1e6
    assert log.outcome.tolist() == [Outcome.OK] * 24
    assert np.all(np.diff(log.scheduled_ns) == pytest.approx(25e6, abs=2))  # due times are not moved by the wait
    assert waited_ms[-1] > 23 * (48.0 - 25.0)
    assert middle(trial["ttft_scheduled_ms"]) > 3 * middle(trial["ttft_ms"])
    first = log.chunk_ns[np.searchsorted(log.chunk_request, np.arange(24))]
    assert middle(trial["ttft_scheduled_ms"]) == pytest.approx(float(np.median(first - log.scheduled_ns)) / 1e6)


def test_sleeps_do_not_add_up(tmp_path: Path) -> None:
    """A loop that sleeps 5 ms between sends makes 184 requests a second out of 200: its own work adds to each sleep."""
    load = LoadSpec(kind="open", request_rate=200.0, arrivals="constant", num_prompts=240)
    assert arrival_offsets_s(load, 10.0, 0)[-1] == 240 / 200
    with LocalMock(ttft_ms=2.0, gap_ms=1.0) as server:
        trial = on_mock(server, tmp_path, load=load, output_tokens=LengthSpec(mean=1))
    late_ms = (trial.log.sent_ns - trial.log.scheduled_ns) / 1e6
    assert late_ms[-60:].min() < 20.0  # at 184 a second the last quarter would be 80 ms late or more
    scheduled = np.sort(trial.log.scheduled_ns)
    assert np.abs(scheduled - scheduled[0] - np.arange(240) * 5e6).max() <= 2


def test_no_read_buffer_throttles_long_streams(tmp_path: Path) -> None:
    """Each event is four times the 64 KiB at which a stream reader of the usual kind stops reading."""
    with LocalMock(ttft_ms=20.0, gap_ms=25.0, quirks=("big-events=262144",)) as server:
        trial = on_mock(server, tmp_path, load=one_at_a_time(3), output_tokens=LengthSpec(mean=8))
        truth = truth_of(server, trial)
    log = trial.log
    assert log.outcome.tolist() == [Outcome.OK] * 3
    assert len(log.chunk_ns) == 24
    assert log.chunk_bytes.min() >= 262_144
    assert middle(trial["icl_ms"]) == pytest.approx(truth["icl_ms"]["p50"], rel=0.5)


def test_one_event_may_be_of_any_length(tmp_path: Path) -> None:
    """A megabyte in one line: longer than any line buffer."""

    def reply(x: Exchange) -> None:
        x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        x.send(frame(chat({"content": "x" * 1_000_000}) + chat({"content": "y"}, "length") + b"data: [DONE]\n\n") + frame(b""))

    with ScriptedServer(reply) as server:
        trial = measured(server.url, tmp_path)
    assert trial.log.outcome.tolist() == [Outcome.OK] * 3
    assert trial.log.chunk_bytes.tolist() == [1_000_000, 1] * 3


def test_long_prompts_go_out_whole(tmp_path: Path) -> None:
    with LocalMock(ttft_ms=10.0, gap_ms=1.0) as server:
        trial = on_mock(server, tmp_path, load=one_at_a_time(3), input_tokens=LengthSpec(mean=100_000))
    assert trial.log.outcome.tolist() == [Outcome.OK] * 3
    assert middle(trial["input_tokens"]) == 100_000
    assert not {code for code, _, _ in trial.codes} & {"input_length_mismatch", "errors"}
