"""Texts, endless answers and answers that nobody asked for: what a server may send that must not be kept or believed."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

from bench.errors import TargetError
from bench.load import recover
from bench.load.columns import parse_spill
from bench.load.gather import read_log
from bench.load.keys import strike_out
from bench.load.preflight import _LARGEST_REPLY_B
from bench.records import LoadSpec, Outcome
from tests.load.scripted import DONE, HEAD, Exchange, ScriptedServer, answer, chat, chunked, drive, make_target, sized
from tests.load.test_lifecycle import until
from tests.load.test_limits import spilled
from tests.load.test_loops import slow

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
