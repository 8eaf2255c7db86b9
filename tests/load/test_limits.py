"""Numbers, texts and bytes from a server have bounds, and whatever a worker trips over is an error and never a wait."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import psutil
import pytest

from bench.errors import LoadError, TargetError, UsageError
from bench.load import arrival_offsets_s, recover
from bench.load.arrivals import MOST_ARRIVALS
from bench.load.columns import parse_spill, spill_path
from bench.load.gather import read_log
from bench.load.keys import strike_out
from bench.load.parse import MOST_TOKENS, parse_request
from bench.load.preflight import _LARGEST_REPLY_B
from bench.load.protocols import wire_protocol
from bench.load.spill import End, Meta, SpillWriter
from bench.records import MISSING, LoadSpec, Outcome, Stage
from bench.suite import rules
from tests.load.scripted import DONE, HEAD, Exchange, ScriptedServer, answer, chat, chunked, drive, make_target, sized
from tests.load.test_lifecycle import CHILD, until, workers_of
from tests.load.test_loops import slow
from tests.load.test_spill import put

WRONG = ["-2", "-1", str(MOST_TOKENS + 1), str(1 << 63), str(1 << 64), str(10**30), "1.5", "1e300", "true", '"7"', "[1]"]
PLACES = {
    "prompt_tokens": '{"prompt_tokens": %s}',
    "completion_tokens": '{"completion_tokens": %s}',
    "cached_tokens": '{"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": %s}}',
    "reasoning_tokens": '{"completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": %s}}',
}


def spilled(folder: Path, *bodies: bytes, key_env: str | None = None, protocol: str = "openai-chat") -> None:
    spill = SpillWriter(spill_path(folder, 0), Meta(protocol, 0, key_env))
    for request, body in enumerate(bodies):
        spill.sent(request, MISSING, 5 + request, 1, 1)
        put(spill, request, [50 + request], [body])
        spill.end(request, 50, 60, End.COMPLETE, status=200, error=None)
    spill.close()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_counts_that_can_not_be_are_a_protocol_failure_of_that_request_alone(place: str, streamed: bool, tmp_path: Path) -> None:
    usages = [(PLACES[place] % value).encode() for value in WRONG]
    if streamed:
        bodies = [chat({"content": "a"}, "stop") + b'data: {"choices":[],"usage":' + u + b"}\n\n" + DONE for u in usages]
    else:
        bodies = [b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":' + u + b"}" for u in usages]
    spilled(tmp_path, *bodies, answer(3))
    log = recover(tmp_path)
    assert log.outcome.tolist() == [Outcome.PROTOCOL] * len(WRONG) + [Outcome.OK]
    assert all(place in (error or "") for error in log.error[:-1])
    assert set(log.output_tokens[:-1].tolist()) == {MISSING}
    assert log.output_tokens[-1] == 3


def test_the_largest_count_is_kept(tmp_path: Path) -> None:
    spilled(tmp_path, b'{"choices":[{"message":{"content":"a"}}],"usage":{"completion_tokens":%d}}' % MOST_TOKENS)
    assert recover(tmp_path).output_tokens.tolist() == [MOST_TOKENS]


@pytest.mark.parametrize(
    ("protocol", "event"),
    [
        ("kserve-generate", '{"text_output": "a", "num_output_tokens": %d}'),
        ("sglang-generate", '{"text": "a", "meta_info": {"completion_tokens": %d, "finish_reason": "stop"}}'),
        ("llamacpp-completion", '{"content": "a", "stop": true, "tokens_predicted": %d}'),
        ("openai-chat", '{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"completion_tokens":%d}}'),
    ],
)
def test_no_protocol_lets_a_count_through_that_no_column_holds(protocol: str, event: str) -> None:
    for count in (10**30, 1 << 63, -5):
        body = b"data: " + (event % count).encode() + b"\n\n" + (DONE if protocol == "openai-chat" else b"")
        stamps = np.array([1], np.int64)
        ends = np.array([len(body)], np.int64)
        parsed = parse_request(wire_protocol(protocol), body, stamps, ends, end=End.COMPLETE, status=200)
        assert parsed.outcome is Outcome.PROTOCOL
        assert parsed.usage is None
        assert all(abs(tokens) <= MOST_TOKENS for tokens in parsed.chunk_tokens.tolist())


def test_a_load_against_absurd_counts_ends(tmp_path: Path) -> None:
    body = chat({"content": "a"}, "stop") + b'data: {"choices":[],"usage":{"completion_tokens":%d}}\n\n' % 10**30 + DONE
    with ScriptedServer(lambda x: x.send(chunked(body))) as server:
        assert drive(server.url, tmp_path).log.outcome.tolist() == [Outcome.PROTOCOL] * 3


# --- a worker that trips is an error, not a wait -------------------------------------------------------------------------


def test_whatever_stops_the_parsing_is_told_at_once(tmp_path: Path) -> None:
    """A column that is a folder: what no worker expects, in the last phase of all."""
    (tmp_path / "spill" / "worker-0.chunk_ns.i64").mkdir(parents=True)
    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="load worker"):
        drive(server.url, tmp_path)
    assert workers_of(os.getpid()) == []


def broken_worker(where: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers started from here on do `how` in place of `where`."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('bench.load.worker' in part for part in sys.orig_argv):\n"
        "    import bench.load.worker as w\n"
        "    import time\n"
        f"    def trip(*_, **__): {how}\n"
        f"    w.{where} = trip\n"
    )
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "broken"), root]))


@pytest.mark.parametrize(
    "where",
    [
        *(f"Worker.{name}" for name in ("_build", "_finish", "_react", "_tick")),
        "Preflight.run",
        *(f"ClosedLoop.{name}" for name in ("_begin", "_dial", "ended", "_sweep")),
        "SpillWriter.end",
        "parse_spill",
    ],
)
def test_an_exception_that_nobody_foresaw_is_named(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_worker(where, "raise OverflowError('one\\ntoo big')", tmp_path, monkeypatch)
    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="the load worker failed: OverflowError: too big"):
        drive(server.url, tmp_path, request_timeout_s=5.0)


def test_a_worker_that_is_busy_building_is_ended_by_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_worker("Worker._build", "time.sleep(600)", tmp_path, monkeypatch)
    asked: list[float] = []

    def stop() -> str | None:
        if server.preflights and not asked:
            asked.append(monotonic())
        return "Ctrl-C" if server.preflights else None

    with ScriptedServer(slow) as server:
        result = drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=1), should_stop=stop)
    assert result.interrupted
    assert monotonic() - asked[0] < 20
    assert workers_of(os.getpid()) == []


@pytest.mark.parametrize("signalled", ["worker", "parent"])
def test_a_worker_that_is_busy_building_ends_by_a_signal(signalled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM to itself, or the death of its parent: neither waits until its event loop is free."""
    broken_worker("Worker._build", f"(open({str(tmp_path / 'busy')!r}, 'w').close(), time.sleep(600))", tmp_path, monkeypatch)
    with ScriptedServer(slow) as server:
        root = Path(__file__).parents[2]
        parent = subprocess.Popen(
            [sys.executable, "-c", CHILD, server.url, str(tmp_path / "spill")], cwd=root, stderr=subprocess.DEVNULL
        )
        try:
            until((tmp_path / "busy").exists)
            workers = workers_of(parent.pid)
            assert len(workers) == 1
            if signalled == "worker":
                workers[0].terminate()
                until(lambda: parent.poll() is not None, 5.0)
        finally:
            parent.kill()
            parent.wait()
        until(lambda: not any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in workers), 5.0)


def test_what_a_dying_machine_left_raises_only_what_is_documented(tmp_path: Path) -> None:
    spilled(tmp_path, answer(3))
    good = spill_path(tmp_path, 0).read_bytes()
    rng = np.random.default_rng(3)
    for _ in range(300):
        bad = bytearray(good)
        for at in rng.integers(0, len(bad), 4):
            bad[at] = rng.integers(0, 256)
        spill_path(tmp_path, 0).write_bytes(bad)
        with contextlib.suppress(LoadError, OSError):
            assert len(recover(tmp_path)) <= 1
    (tmp_path / "worker-x.spill").write_bytes(b"")
    with pytest.raises(LoadError, match="ValueError"):
        recover(tmp_path)


def test_a_worker_that_stands_still_is_given_up_and_leaves_what_it_saw(tmp_path: Path) -> None:
    """SIGSTOP, then a stop: the harness comes back in seconds, and nothing is left running."""
    began: list[float] = []

    def stop() -> str | None:
        if len(server.exchanges) > 20 and spill_path(tmp_path / "spill", 0).stat().st_size > 2000:
            if not began:
                for worker in workers_of(os.getpid()):
                    worker.send_signal(signal.SIGSTOP)
                began.append(monotonic())
            return "Ctrl-C"
        return None

    with ScriptedServer(slow) as server, pytest.raises(LoadError, match="did not finish"):
        drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=2), duration_s=60.0, should_stop=stop)
    assert monotonic() - began[0] < 40
    assert workers_of(os.getpid()) == []
    assert len(recover(tmp_path / "spill")) > 5


# --- loads that would not fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [1e-308, 1e-9, 0.0, -1.0, float("nan")])
def test_gaps_of_nothing_are_refused(shape: float) -> None:
    with pytest.raises(UsageError, match=r"burstiness must be at least 0\.01"):
        arrival_offsets_s(LoadSpec(kind="open", request_rate=5.0, arrivals="gamma", burstiness=shape), 10.0, 1)


@pytest.mark.parametrize(
    "load",
    [
        LoadSpec(kind="open", request_rate=1e6, arrivals="poisson"),
        LoadSpec(kind="open", request_rate=1e6, arrivals="constant"),
        LoadSpec(kind="open", arrivals="burst", num_prompts=MOST_ARRIVALS + 1),
        LoadSpec(kind="open", request_rate=1.0, arrivals="poisson", num_prompts=10**9),
        LoadSpec(kind="open", arrivals="poisson", stages=(Stage(start=0.0, end=1e6, duration_s=100.0),)),
    ],
)
def test_more_arrivals_than_can_be_drawn_are_refused_with_both_numbers(load: LoadSpec, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\d{2},\d{3},\d{3} requests would come.* 20,000,000 are the most|1,000,000,000"):
        arrival_offsets_s(load, 100.0, 1)
    with pytest.raises(UsageError, match="are the most"):
        drive("http://127.0.0.1:9", tmp_path, load=load, duration_s=100.0)


def test_the_suite_knows_the_same_bound() -> None:
    assert rules.MOST_ARRIVALS == MOST_ARRIVALS


# --- the key ---------------------------------------------------------------------------------------------------------------

KEY = 'sk-"se/cret\\1234567890'


@pytest.mark.parametrize("form", [KEY, KEY.replace("\\", "\\\\").replace('"', '\\"'), KEY[:12] + "...", KEY[:8]])
def test_every_form_of_the_key_is_struck_out(form: str) -> None:
    assert KEY[:8] not in strike_out(f"bad key: {form}", KEY)


def test_no_text_of_the_server_that_is_kept_holds_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-secret-1234567890"
    monkeypatch.setenv("TEST_KEY", key)
    whole = b'{"choices":[{"message":{"content":"a"},"finish_reason":"%b"}]}' % key.encode()
    long = b"x" * 290 + key.encode()
    spilled(
        tmp_path, chat({"content": "a"}, key) + DONE, whole, b"data: {bad %b}\n\n" % key.encode(),
        b'{"error": "no: %b"}' % key.encode(), long, key_env="TEST_KEY",
    )  # fmt: skip
    parse_spill(tmp_path, 0)
    log = read_log(tmp_path, [0])
    kept = repr((log.finish_reason, log.error))
    assert "sk-secret" not in kept
    assert log.finish_reason[:2] == ("***", "***")
    assert repr(recover(tmp_path).finish_reason) == repr(log.finish_reason)


def test_texts_of_a_server_are_short_and_on_one_line(tmp_path: Path) -> None:
    spilled(tmp_path, chat({"content": "a"}, "stop\nnow" * 10_000) + DONE)
    reason = recover(tmp_path).finish_reason[0]
    assert reason is not None
    assert len(reason) <= 300
    assert "\n" not in reason


@pytest.mark.parametrize("status", ["400 Bad", "422 No", "500 Oops", "503 Busy"])
def test_the_servers_own_words_are_kept_with_the_status(status: str, tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(sized(b"<p>model 'tiny' is asleep</p>", status))) as server:
        log = drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=1), warmup_s=0.2, duration_s=0.2).log
    heard = [error for error, outcome in zip(log.error, log.outcome, strict=True) if outcome == Outcome.HTTP]
    assert heard
    assert set(heard) == {f"HTTP {status[:3]}: <p>model 'tiny' is asleep</p>"}


# --- before the load -------------------------------------------------------------------------------------------------------


def endless(piece: bytes, head: bytes) -> Any:
    def script(x: Exchange) -> None:
        x.send(head)
        while not x.server.release.is_set():
            x.send(piece)

    return script


@pytest.mark.parametrize("status", [b"200 OK", b"500 Oops"])
def test_an_answer_without_end_is_cut_off(status: bytes, tmp_path: Path) -> None:
    script = endless(b"a" * (1 << 16), b"HTTP/1.1 %b\r\n\r\ndata: " % status)
    with ScriptedServer(slow, preflight=script) as server, pytest.raises(TargetError, match="more than 16 MiB"):
        drive(server.url, tmp_path)
    assert _LARGEST_REPLY_B == 16 << 20


@pytest.mark.parametrize(
    ("sent", "said"), [(b"", "sent no answer"), (HEAD, "sent no answer"), (HEAD + b"\r\ndata: ", "did not finish its answer")]
)
def test_a_server_that_takes_the_request_and_says_nothing(sent: bytes, said: str, tmp_path: Path) -> None:
    def preflight(x: Exchange) -> None:
        x.send(sent)
        x.server.release.wait(30)

    with (
        ScriptedServer(slow, preflight=preflight) as server,
        pytest.raises(TargetError, match=f"accepted the request and {said} within 0.4 s"),
    ):
        drive(server.url, tmp_path, request_timeout_s=0.4)
    assert server.exchanges == []


# --- answers that nobody asked for -----------------------------------------------------------------------------------------


def never_early(log: Any) -> None:
    good = log.outcome[log.chunk_request] == Outcome.OK
    assert np.all(log.chunk_ns[good] >= log.sent_ns[log.chunk_request[good]])


def test_two_answers_in_one_read_are_no_answer_to_the_next_request(tmp_path: Path) -> None:
    with ScriptedServer(lambda x: x.send(chunked(answer(2)) * 2)) as server:
        log = drive(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=1, num_prompts=6)).log
    never_early(log)
    assert log.outcome.tolist() == [Outcome.OK, Outcome.PROTOCOL] * 3
    assert log.error[1] == "the server sent an answer that nobody had asked for"


def test_an_answer_that_waits_in_the_socket_is_no_answer_to_the_next_request(tmp_path: Path) -> None:
    """Open loop: the second answer comes while the connection is idle."""

    def reply(x: Exchange) -> None:
        x.send(chunked(answer(2)))
        x.server.release.wait(0.02)
        x.send(chunked(answer(3)))

    load = LoadSpec(kind="open", request_rate=10.0, arrivals="constant", num_prompts=5)
    with ScriptedServer(reply) as server:
        log = drive(server.url, tmp_path, load=load).log
    never_early(log)
    assert log.outcome.tolist() == [Outcome.OK] * 5
    assert log.output_tokens.tolist() == [2] * 5
    assert len(server.connections) >= 5


def test_a_server_that_speaks_first_is_no_wait(tmp_path: Path) -> None:
    """Bytes before any request: the request ends at once, and not with its time-out."""
    server = socket.create_server(("127.0.0.1", 0))
    first = ScriptedServer(slow)

    def greet() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            sock.sendall(sized(answer(2), extra=b"Connection: close\r\n"))
            kept.append(sock)

    kept: list[socket.socket] = []
    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.getsockname()[1]}"
    begun = monotonic()
    with first:
        log = drive(url, tmp_path, target=make_target(url), request_timeout_s=30.0).log
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)
    assert monotonic() - begun < 25
    assert len(log) == 3
    never_early(log)
    until(lambda: not thread.is_alive())
