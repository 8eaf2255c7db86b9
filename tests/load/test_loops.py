"""Closed and open loop over real sockets: concurrency, windows, schedules."""

from __future__ import annotations

import threading
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.load import worker_count
from bench.load.closed import start_offsets_s
from bench.records import MISSING, LengthSpec, LoadProgress, LoadSpec, Outcome
from tests.load.scripted import HEAD, Exchange, ScriptedServer, answer, chat, chunked, drive, frame, make_case


def slow(x: Exchange, pause_s: float = 0.02) -> None:
    """Headers at once, content after a pause, the end after another."""
    x.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + frame(chat({"role": "assistant", "content": None})))
    x.server.release.wait(pause_s)
    x.send(frame(chat({"content": "a"})))
    x.server.release.wait(pause_s)
    x.send(frame(chat({"content": "b"}, "stop") + b"data: [DONE]\n\n") + frame(b""))


def closed(batch: int) -> LoadSpec:
    return LoadSpec(kind="closed", batch_size=batch)


@pytest.mark.parametrize("workers", [1, 2])
def test_concurrency_is_really_reached_and_held(workers: int, tmp_path: Path) -> None:
    together: list[int] = []
    now = 0
    lock = threading.Lock()

    def reply(x: Exchange) -> None:
        nonlocal now
        with lock:
            now += 1
            together.append(now)
        slow(x)
        with lock:
            now -= 1

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=closed(10), client_workers=workers)
    assert max(together) == 10
    assert result.health.in_flight_reached == 10
    assert result.health.in_flight_asked == 10
    assert result.health.workers == workers
    assert set(result.log.worker.tolist()) == set(range(workers))
    assert len({tuple(x.prompt_words()[:4]) for x in server.exchanges}) == len(server.exchanges)


def test_closed_window_begins_after_every_first_token_and_its_requests_are_followed(tmp_path: Path) -> None:
    def reply(x: Exchange) -> None:
        slow(x, 0.2 if x.number == 3 else 0.01)  # one slot's first token is late

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=closed(4), warmup_s=0.0)
    log, window = result.log, result.window
    assert window is not None
    assert window.kind == "steady"
    assert window.seconds == pytest.approx(0.4)
    first = np.searchsorted(log.chunk_request, np.arange(4))
    assert log.chunk_ns[first].max() < window.t0_ns
    inside = (log.sent_ns >= window.t0_ns) & (log.sent_ns < window.t1_ns)
    assert inside.sum() >= 4
    assert set(log.outcome[inside]) == {Outcome.OK}
    assert log.sent_ns.max() >= window.t1_ns  # refilled while the survivors finished
    assert set(log.outcome) <= {Outcome.OK, Outcome.CANCELLED}
    assert result.health.send_lag_p99_ms is not None
    assert result.health.coalesced_read_share is not None


@given(st.integers(1, 300), st.just(0.0) | st.floats(1e-9, 600), st.integers(0, 99))  # shorter than a tick is no time
def test_slots_begin_one_in_each_part_of_the_first_half_of_the_warm_up(slots: int, warmup_s: float, seed: int) -> None:
    offsets = start_offsets_s(slots, warmup_s, seed)
    assert len(offsets) == slots
    assert offsets == sorted(offsets)
    assert offsets == start_offsets_s(slots, warmup_s, seed)
    assert offsets[0] >= 0.0
    assert offsets[-1] <= warmup_s / 2
    part_s = warmup_s / 2 / slots
    assert slots == 1 or all(i * part_s * 0.999 <= at <= (i + 1) * part_s * 1.001 for i, at in enumerate(offsets))


def test_slots_do_not_begin_in_lockstep() -> None:
    """50 slots over a second would begin 20 ms apart if they began evenly: on the beat of a server with 20 ms between tokens."""
    phases = np.array(start_offsets_s(50, 2.0, 0)) % 0.02
    assert len(np.unique(np.floor(phases / 0.002))) >= 9


@pytest.mark.parametrize("workers", [1, 2])
def test_a_closed_loop_begins_spread_over_the_warm_up_and_is_whole_before_the_window(workers: int, tmp_path: Path) -> None:
    with ScriptedServer(slow) as server:
        result = drive(server.url, tmp_path, load=closed(12), warmup_s=1.0, client_workers=workers)
    log, window = result.log, result.window
    assert window is not None

    def in_flight(at_ns: int) -> int:
        return int(np.sum((log.sent_ns <= at_ns) & (log.closed_ns > at_ns)))

    assert in_flight(int(log.sent_ns.min()) + 1_000_000) <= 6
    assert in_flight(window.t0_ns) >= 10  # some may just be refilled
    assert result.health.in_flight_reached == 12


def test_a_job_bound_by_a_count_begins_at_once(tmp_path: Path) -> None:
    load = LoadSpec(kind="closed", batch_size=8, num_prompts=8)
    with ScriptedServer(lambda x: slow(x, 0.3)) as server:
        result = drive(server.url, tmp_path, load=load, warmup_s=60.0)
    assert result.health.in_flight_reached == 8


def test_grace_ends_the_wait_for_survivors(tmp_path: Path) -> None:
    measuring = threading.Event()

    def reply(x: Exchange) -> None:
        slow(x, 20 if measuring.is_set() else 0.005)

    def told(progress: LoadProgress) -> None:
        if progress.phase == "measure":
            measuring.set()

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=closed(2), warmup_s=0.0, duration_s=0.8, grace_s=0.3, on_progress=told)
    assert result.window is not None
    assert not result.interrupted
    last = result.log.outcome[-2:]
    assert last.tolist() == [Outcome.CANCELLED] * 2
    assert result.log.closed_ns[-1] >= result.window.t1_ns + 300_000_000


def test_more_slots_than_the_server_serves_at_once(tmp_path: Path) -> None:
    gate = threading.Semaphore(2)

    def reply(x: Exchange) -> None:
        with gate:
            slow(x, 0.01)

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=closed(8), warmup_s=0.0)
    assert result.window is not None
    assert result.health.in_flight_reached == 8


def test_failing_slots_do_not_hold_up_the_window(tmp_path: Path) -> None:
    """The server takes one of two connections only; the other slot is told no again and again."""
    owner: list[object] = []

    def reply(x: Exchange) -> None:
        if not owner:
            owner.append(x.sock)
        if x.sock is owner[0]:
            slow(x, 0.005)
        else:
            x.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=closed(2))
    assert result.window is not None
    assert Outcome.HTTP in result.log.outcome
    assert np.sum(result.log.outcome == Outcome.HTTP) < 20  # backed off


def test_when_everything_fails_it_ends_soon_without_a_window(tmp_path: Path) -> None:
    begun = perf_counter_ns()
    with ScriptedServer(lambda x: x.send(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\nboom")) as server:
        result = drive(server.url, tmp_path, load=closed(3), duration_s=60.0)
    assert perf_counter_ns() - begun < 30e9
    assert result.window is None
    assert len(result.log) >= 9
    assert set(result.log.outcome) <= {Outcome.HTTP, Outcome.CANCELLED}
    assert "boom" in (result.log.error[0] or "")


def test_open_loop_sends_on_schedule_whatever_the_answers_take(tmp_path: Path) -> None:
    load = LoadSpec(kind="open", request_rate=100.0, arrivals="constant")
    with ScriptedServer(lambda x: slow(x, 0.06)) as server:
        result = drive(server.url, tmp_path, load=load, duration_s=0.5)
    log, window = result.log, result.window
    assert window is not None
    inside = (log.scheduled_ns >= window.t0_ns) & (log.scheduled_ns < window.t1_ns)
    assert 49 <= inside.sum() <= 51
    assert set(log.outcome[inside]) == {Outcome.OK}
    assert np.allclose(np.diff(np.sort(log.scheduled_ns)), 10_000_000, atol=2)
    assert np.all(log.sent_ns >= log.scheduled_ns)
    assert log.scheduled_ns.max() >= window.t1_ns  # arrivals go on while the window's requests finish
    assert result.health.in_flight_reached > 5


def test_a_concurrency_cap_queues_with_the_schedule_kept(tmp_path: Path) -> None:
    load = LoadSpec(kind="open", request_rate=200.0, arrivals="poisson", max_concurrency=2, num_prompts=30)
    with ScriptedServer(lambda x: slow(x, 0.02)) as server:
        result = drive(server.url, tmp_path, load=load)
    log = result.log
    assert log.outcome.tolist() == [Outcome.OK] * 30
    assert result.health.in_flight_reached == 2
    assert (log.sent_ns - log.scheduled_ns).max() > 100_000_000  # 30 requests in 0.15 s, served at 50/s
    assert result.health.send_lag_p50_ms is not None
    assert result.health.send_lag_p50_ms < 20  # queueing is the load's doing, not the client's


def test_a_burst_goes_out_at_once(tmp_path: Path) -> None:
    load = LoadSpec(kind="open", arrivals="burst", num_prompts=12)
    with ScriptedServer(lambda x: slow(x, 0.1)) as server:
        result = drive(server.url, tmp_path, load=load, client_workers=2)
    assert result.log.outcome.tolist() == [Outcome.OK] * 12
    assert len(set(result.log.scheduled_ns.tolist())) == 1
    assert result.health.in_flight_reached == 12
    assert result.window is not None
    assert result.window.kind == "whole_job"


def test_open_loop_counts_refusals(tmp_path: Path) -> None:
    def reply(x: Exchange) -> None:
        x.server.stop()

    load = LoadSpec(kind="open", request_rate=50.0, arrivals="constant")
    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=load, duration_s=0.3, grace_s=0.5)
    assert set(result.log.outcome) == {Outcome.CONNECT}
    window, due_ns = result.window, result.log.scheduled_ns
    assert window is not None
    assert ((due_ns >= window.t0_ns) & (due_ns < window.t1_ns)).sum() in (14, 15, 16)  # 50/s for 0.3 s, however slow the machine
    assert np.all(result.log.sent_ns != MISSING)


def test_lengths_are_asked_for_and_calibrated(tmp_path: Path) -> None:
    """A server whose template adds 13 tokens and that counts 2 a word."""

    def count(x: Exchange) -> int:
        return 13 + 2 * len(x.prompt_words())

    with ScriptedServer(
        lambda x: x.send(chunked(answer(2, prompt=count(x)))), preflight=lambda x: x.send(chunked(answer(2, prompt=count(x))))
    ) as server:
        result = drive(server.url, tmp_path, input_tokens=LengthSpec(mean=101), output_tokens=LengthSpec(mean=9))
    assert result.log.input_tokens.tolist() == [101] * 3
    assert result.log.input_requested.tolist() == [101] * 3
    assert result.log.output_requested.tolist() == [9] * 3
    assert all(x.body["max_tokens"] == 9 for x in server.exchanges)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[LoadProgress] = []
    with ScriptedServer(lambda x: slow(x, 0.01)) as server:
        drive(server.url, tmp_path, load=closed(3), warmup_s=0.3, duration_s=0.8, on_progress=told.append)
    assert [p.phase for p in told] == sorted((p.phase for p in told), key=["warmup", "measure", "drain"].index)
    assert {"warmup", "measure"} <= {p.phase for p in told}
    assert max(p.in_flight for p in told) <= 3
    assert told[-1].completed > told[0].completed
    assert max(p.chunks_per_s for p in told) > 0


def test_worker_counts() -> None:
    def count(cores: int, workers: int | None = None, **load: object) -> int:
        return worker_count(make_case(load=LoadSpec(**load), client_workers=workers), cores)  # type: ignore[arg-type]

    assert count(8, kind="closed", batch_size=256) == 1
    assert count(8, kind="closed", batch_size=257) == 2
    assert count(2, kind="closed", batch_size=1000) == 1
    assert count(1, kind="closed", batch_size=1000) == 1
    assert count(2, 3, kind="closed", batch_size=4) == 3
    assert count(2, 3, kind="closed", batch_size=1) == 1
    assert count(2, 3, kind="closed", batch_size=4, num_prompts=2) == 2
    assert count(2, 3, kind="open", request_rate=10.0, max_concurrency=2) == 2
    assert count(2, 3, kind="open", request_rate=10.0) == 3
    assert count(16, kind="open", request_rate=4000.0) == 4
    assert count(16, kind="open", arrivals="burst", num_prompts=2) == 1


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"dataset": "sharegpt"}, "sharegpt"),
        ({"load": LoadSpec(kind="closed")}, "batch_size"),
        ({"load": LoadSpec(kind="open", arrivals="poisson")}, "request_rate"),
        ({"load": LoadSpec(kind="open", arrivals="burst")}, "burst"),
    ],
)
def test_loads_that_cannot_be_made_are_refused_at_once(over: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        drive("http://127.0.0.1:9", tmp_path, **over)


@pytest.mark.parametrize("workers", [None, 4])
def test_what_a_cap_held_back_beyond_the_grace_is_owned_up_to(workers: int | None, tmp_path: Path) -> None:
    """One place, answers of 40 ms, a request due each 5 ms: most of the window never gets its turn."""
    load = LoadSpec(kind="open", request_rate=200.0, arrivals="constant", max_concurrency=1)
    with ScriptedServer(slow) as server:
        result = drive(server.url, tmp_path, load=load, duration_s=1.0, grace_s=0.1, client_workers=workers)
    log, window = result.log, result.window
    assert window is not None
    assert result.health.workers == 1  # more could not have a request each
    assert result.health.in_flight_reached == 1
    due = (log.scheduled_ns >= window.t0_ns) & (log.scheduled_ns < window.t1_ns)
    assert due.sum() == pytest.approx(200, abs=1)
    never = due & (log.sent_ns == MISSING)
    assert never.sum() > 100
    assert set(log.outcome[never]) == {Outcome.CANCELLED}
    assert (log.closed_ns[never] >= window.t1_ns).all()


@pytest.mark.parametrize("load", [closed(3), LoadSpec(kind="open", request_rate=30.0, arrivals="constant")])
def test_a_request_on_a_fresh_connection_for_each_is_followed_to_its_end(load: LoadSpec, tmp_path: Path) -> None:
    """A server that closes after every answer makes every request dial: none of the window may be cut off while it does."""

    def reply(x: Exchange) -> None:
        slow(x)
        x.close()

    with ScriptedServer(reply) as server:
        result = drive(server.url, tmp_path, load=load, duration_s=0.6, grace_s=20.0)
    log, window = result.log, result.window
    assert window is not None
    key_ns = np.where(log.scheduled_ns != MISSING, log.scheduled_ns, log.sent_ns)
    inside = (key_ns >= window.t0_ns) & (key_ns < window.t1_ns)
    assert inside.sum() > 5
    assert Outcome.CANCELLED not in set(log.outcome[inside])
