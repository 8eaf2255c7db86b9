from __future__ import annotations

from array import array
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import LoadError
from bench.load import recover
from bench.load.columns import parse_spill, spill_path
from bench.load.gather import read_log
from bench.load.health import WorkerGauges, coalesced_share, judge_client, most_in_flight
from bench.load.spill import End, Meta, SpillFile, SpillWriter
from bench.records import MISSING, EventLog, Outcome, Window
from tests.load.scripted import DONE, answer, chat


def put(spill: SpillWriter, request: int, stamps_ns: list[int], bodies: list[bytes]) -> None:
    spill.data(request, array("q", stamps_ns), array("I", accumulate(map(len, bodies))), bytearray(b"".join(bodies)))


def write(folder: Path, worker: int, sends: list[tuple[int, int]], *, finish: bool = True) -> None:
    """A spill of requests (number, sent_ns): each gets its answer in two reads, 100 and 200 ns after it was sent."""
    spill = SpillWriter(spill_path(folder, worker), Meta("openai-chat", worker))
    body = answer(2)
    for number, sent_ns in sends:
        spill.sent(number, MISSING, sent_ns, 8, 4)
        put(spill, number, [sent_ns + 100, sent_ns + 200], [body[:200], body[200:]])
        if finish:
            spill.end(number, sent_ns + 50, sent_ns + 300, End.COMPLETE, status=200, error=None)
    spill.close()
    assert spill.failure is None


def test_round_trip(tmp_path: Path) -> None:
    write(tmp_path, 0, [(0, 1000), (1, 2000)])
    log = recover(tmp_path)
    assert log.sent_ns.tolist() == [1000, 2000]
    assert log.opened_ns.tolist() == [1050, 2050]
    assert log.closed_ns.tolist() == [1300, 2300]
    assert log.outcome.tolist() == [Outcome.OK] * 2
    assert log.chunk_request.tolist() == [0, 0, 1, 1]
    assert set(log.chunk_ns.tolist()) <= {1100, 1200, 2100, 2200}
    assert [p.name for p in tmp_path.iterdir()] == ["worker-0.spill"]


def test_workers_merge_in_order_of_sending(tmp_path: Path) -> None:
    write(tmp_path, 0, [(0, 1000), (2, 3000)])
    write(tmp_path, 1, [(1, 2000), (3, 2500)])
    log = recover(tmp_path)
    assert log.sent_ns.tolist() == [1000, 2000, 2500, 3000]
    assert log.worker.tolist() == [0, 1, 1, 0]
    assert log.chunk_request.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.all((log.chunk_ns - log.sent_ns[log.chunk_request]) > 0)
    assert np.all((log.chunk_ns - log.sent_ns[log.chunk_request]) <= 200)


def test_a_request_without_an_end_is_cancelled_and_keeps_its_chunks(tmp_path: Path) -> None:
    write(tmp_path, 0, [(0, 1000)], finish=False)
    log = recover(tmp_path)
    assert log.outcome.tolist() == [Outcome.CANCELLED]
    assert log.closed_ns.tolist() == [MISSING]
    assert len(log.chunk_ns) == 2


def test_a_file_torn_at_any_byte_is_readable(tmp_path: Path) -> None:
    write(tmp_path, 0, [(0, 1000), (1, 2000)])
    whole = spill_path(tmp_path, 0).read_bytes()
    lengths = set()
    for size in range(0, len(whole), 7):
        spill_path(tmp_path, 0).write_bytes(whole[:size])
        lengths.add(len(recover(tmp_path)))
    assert lengths == {0, 1, 2}


def test_nothing_left_is_an_empty_log(tmp_path: Path) -> None:
    log = recover(tmp_path)
    assert len(log) == 0
    assert log.finish_reason == ()
    assert most_in_flight(log, 0, 10) == 0
    assert coalesced_share(log, 0, 10) is None


def test_columns_that_are_gone_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="worker-0"):
        read_log(tmp_path, [0])


def test_keys_that_a_server_quotes_are_struck_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-secret")
    spill = SpillWriter(spill_path(tmp_path, 0), Meta("openai-chat", 0, "TEST_KEY"))
    spill.sent(0, MISSING, 5, 1, 1)
    put(spill, 0, [6], [b'{"error": {"message": "wrong key sk-secret"}}'])
    spill.end(0, 6, 7, End.COMPLETE, status=401, error=None)
    spill.close()
    parse_spill(tmp_path, 0)
    assert read_log(tmp_path, [0]).error == ("HTTP 401: wrong key ***",)


def test_a_full_disk_is_noticed_and_does_not_hang() -> None:
    spill = SpillWriter(Path("/dev/full"), Meta("openai-chat", 0))
    put(spill, 0, [1], [b"x"])
    spill.close()
    assert spill.failure == "No space left on device"


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=40)), max_size=40))
def test_bodies_come_back_whole_whatever_the_interleaving(pieces: list[tuple[int, bytes]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.spill"
        spill = SpillWriter(path, Meta("openai-chat", 0))
        for request in range(4):
            spill.sent(request, MISSING, request, 1, 1)
        for stamp, (request, body) in enumerate(pieces):
            put(spill, request, [stamp], [body])
        spill.close()
        back = SpillFile(path)
        for request in range(4):
            mine = [(i, body) for i, (owner, body) in enumerate(pieces) if owner == request]
            body, stamps, ends = back.body(back.requests[request])
            assert body == b"".join(b for _, b in mine)
            assert stamps.tolist() == [i for i, _ in mine]
            assert ends.tolist() == np.cumsum([len(b) for _, b in mine]).tolist()
        back.close()


def make_log(folder: Path, spans: list[tuple[int, int]]) -> EventLog:
    spill = SpillWriter(spill_path(folder, 0), Meta("openai-chat", 0))
    for number, (sent, closed) in enumerate(spans):
        spill.sent(number, MISSING, sent, 1, 1)
        spill.end(number, sent, closed, End.COMPLETE, status=200, error=None)
    spill.close()
    return recover(folder)


def test_most_in_flight_counts_a_refill_as_a_replacement(tmp_path: Path) -> None:
    log = make_log(tmp_path, [(0, 10), (10, 20), (5, 12), (20, 25)])
    assert most_in_flight(log, -100, 100) == 2
    assert most_in_flight(log, 13, 100) == 1
    assert most_in_flight(log, 30, 100) == 0


def test_coalesced_share_counts_reads_with_several_events(tmp_path: Path) -> None:
    spill = SpillWriter(spill_path(tmp_path, 0), Meta("openai-chat", 0))
    spill.sent(0, MISSING, 1, 1, 1)
    one = chat({"content": "a"})
    put(spill, 0, [10, 20, 30, 30, 40], [one, one + one + one, one, one, one + chat({}, "stop") + DONE])
    spill.end(0, 2, 50, End.COMPLETE, status=200, error=None)
    spill.close()
    log = recover(tmp_path)
    assert log.chunk_ns.tolist() == [10, 20, 20, 20, 30, 30, 40]
    assert coalesced_share(log, 0, 100) == 2 / 4
    assert coalesced_share(log, 35, 100) == 0.0


def test_health_is_taken_inside_the_window(tmp_path: Path) -> None:
    log = make_log(tmp_path, [(0, 10)])
    at = np.array([0, 1_000_000, 2_000_000, 3_000_000])
    lag = np.array([9_000_000, 1_000_000, 3_000_000, 9_000_000])
    gauges = WorkerGauges(
        beat_at_ns=at, beat_lag_ns=lag, send_at_ns=at, send_lag_ns=lag, cpu_at_ns=at, cpu_ns=np.array([0, 0, 500_000, 500_000])
    )  # fmt: skip
    idle = WorkerGauges(**{name: np.zeros(0, np.int64) for name in WorkerGauges.__slots__})
    window = Window(t0_ns=1_000_000, t1_ns=3_000_000)
    health = judge_client(log, window, [gauges, idle], asked=4, loop="uvloop")
    assert health.send_lag_p50_ms == 2.0
    assert health.loop_lag_p99_ms == pytest.approx(2.98)
    assert health.cpu_share == 0.25
    assert (health.workers, health.in_flight_asked, health.in_flight_reached) == (2, 4, 0)
    alone = judge_client(log, None, [idle], asked=None, loop="asyncio")
    assert alone.cpu_share is alone.send_lag_p50_ms is alone.loop_lag_p99_ms is None
