"""Requests in, schedule and account out, over a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bench.clock import SYSTEM
from bench.mock.render import token_text
from tests.mock.wire import CHAT, TEXT, LocalMock, ask, chat_body, exchange, request_bytes, text_body


@pytest.fixture(scope="module")
def server() -> Iterator[LocalMock]:
    with LocalMock() as running:
        yield running


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline_ns = SYSTEM.monotonic_ns() + round(seconds * 1e9)
    while SYSTEM.monotonic_ns() < deadline_ns:
        if holds():
            return True
        SYSTEM.sleep(0.005)
    return False


# --- the protocol ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 2, 7, 40])
def test_a_chat_stream_has_role_then_exact_tokens_then_finish_usage_and_done(server: LocalMock, tokens: int) -> None:
    answer = ask(server.port, chat_body(tokens, prompt="five words are in here"))
    assert (answer.status, answer.ended) == (200, "whole")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.deltas[0] == {"role": "assistant", "content": ""}
    assert answer.texts() == [token_text(index) for index in range(tokens)]
    assert answer.objects[-2]["choices"][0]["finish_reason"] == "length"
    assert answer.objects[-1]["choices"] == []
    assert answer.usage == {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    assert answer.events[-1] == "[DONE]"


def test_completions_stream_texts_and_count_token_ids(server: LocalMock) -> None:
    answer = ask(server.port, text_body(list(range(100, 137)), 5), path=TEXT)
    texts = [choice["text"] for found in answer.objects for choice in found["choices"] if choice["text"]]
    assert texts == [token_text(index) for index in range(5)]
    assert answer.usage == {"prompt_tokens": 37, "completion_tokens": 5, "total_tokens": 42}
    assert answer.finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "counted"),
    [("a few  words\nmore", 4), ("", 0), (["only one text"], 3), ([0], 1)],
    ids=["text", "empty", "list", "ids"],
)
def test_prompt_tokens_are_words_or_ids(server: LocalMock, prompt: str | list[int] | list[str], counted: int) -> None:
    answer = ask(server.port, text_body(prompt, 1), path=TEXT)
    assert answer.usage is not None
    assert answer.usage["prompt_tokens"] == counted


def test_message_parts_are_counted(server: LocalMock) -> None:
    body = {"model": "mock", "messages": [{"role": "user", "content": [{"type": "text", "text": "two words"}]}], "max_tokens": 1}
    answer = ask(server.port, json.dumps(body).encode())
    assert json.loads(answer.body)["usage"]["prompt_tokens"] == 2


def test_usage_is_sent_only_when_asked(server: LocalMock) -> None:
    answer = ask(server.port, chat_body(2, stream_options=None))
    assert answer.usage is None
    assert answer.finish_reason == "length"


def test_the_default_length_is_sixteen_and_both_names_of_it_work(server: LocalMock) -> None:
    assert len(ask(server.port, chat_body(2, max_tokens=None)).texts()) == 16
    assert len(ask(server.port, chat_body(2, max_tokens=None, max_completion_tokens=3)).texts()) == 3


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_replies_that_are_not_streamed(server: LocalMock, path: str) -> None:
    body = chat_body(4, stream=False) if path == CHAT else text_body("x y", 4, stream=False)
    answer = ask(server.port, body, path=path)
    told = json.loads(answer.body)
    choice = told["choices"][0]
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert text == "".join(token_text(index) for index in range(4))
    assert told["usage"]["completion_tokens"] == 4
    took_ms = (answer.reads[-1][0] - answer.sent_ns) / 1e6
    assert took_ms >= 20 + 3 * 4 - 1


def test_pages(server: LocalMock) -> None:
    models = json.loads(ask(server.port, path="/v1/models", method="GET").body)
    assert [model["id"] for model in models["data"]] == ["mock"]
    assert ask(server.port, path="/health", method="GET").status == 200
    assert "version" in json.loads(ask(server.port, path="/version", method="GET").body)


@pytest.mark.parametrize(
    ("path", "method", "body", "status", "code"),
    [
        ("/nope", "GET", b"", 404, "not_found"),
        (CHAT, "POST", b"{not json", 400, 400),
        (CHAT, "POST", b'{"model":"mock"}', 400, 400),
        (CHAT, "POST", b'{"model":"mock","messages":[]}', 400, 400),
        (CHAT, "POST", b'{"model":"mock","messages":[{"role":"user","content":"\xff"}]}', 400, 400),
        (CHAT, "POST", chat_body(0), 400, 400),
        (CHAT, "POST", chat_body(10_000_000), 400, 400),
        (CHAT, "POST", chat_body(n=2), 400, 400),
        (CHAT, "POST", chat_body(model="other"), 404, "model_not_found"),
        (TEXT, "POST", text_body(["a", "b"]), 400, 400),
        (TEXT, "POST", text_body([]), 400, 400),
        (CHAT, "GET", b"", 405, 405),
        ("/truth?from_ns=x", "GET", b"", 400, 400),
        ("/truth?from_ns=10&to_ns=10", "GET", b"", 400, 400),
    ],
)
def test_wrong_requests_get_an_openai_error(
    server: LocalMock, path: str, method: str, body: bytes, status: int, code: str | int
) -> None:
    answer = ask(server.port, body, path=path, method=method)
    error = json.loads(answer.body)["error"]
    assert answer.status == status
    assert error["code"] == code
    assert error["message"]


def test_bytes_that_are_not_http_get_400_and_the_end(server: LocalMock) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        answer = exchange(connection, b"BLAH\r\n\r\n")
        assert answer.status == 400
        assert connection.recv(1) == b""


def test_a_key_is_asked_for_and_never_told() -> None:
    with LocalMock(api_key="s3cret") as server:
        refused = ask(server.port, chat_body(1))
        assert refused.status == 401
        assert b"s3cret" not in refused.raw
        assert ask(server.port, chat_body(1), headers={"authorization": "Bearer wrong"}).status == 401
        assert ask(server.port, chat_body(1), headers={"authorization": "Bearer s3cret"}).status == 200
        assert ask(server.port, path="/health", method="GET").status == 200


def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_order(server: LocalMock) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        for tokens in (1, 3, 2):
            assert len(exchange(connection, request_bytes(CHAT, chat_body(tokens))).texts()) == tokens
        connection.sendall(request_bytes("/health", b"", method="GET") * 3)
        got = b""
        while got.count(b"HTTP/1.1 200 OK") < 3:
            got += connection.recv(65536)


def test_connection_close_is_honoured(server: LocalMock) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        answer = exchange(connection, request_bytes(CHAT, chat_body(2), headers={"connection": "close"}))
        assert len(answer.texts()) == 2
        assert connection.recv(1) == b""


def test_a_request_may_come_byte_by_byte_and_its_end_is_its_arrival(server: LocalMock) -> None:
    from_ns = SYSTEM.monotonic_ns()
    request = request_bytes(CHAT, chat_body(2))
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(request) - 1):
            connection.sendall(request[at : at + 1])
        answer = exchange(connection, request[-1:])
    assert len(answer.texts()) == 2
    truth = server.truth(from_ns)
    assert truth["request_read_ms"]["p50"] > 0
    assert truth["ttft_ms"]["p50"] >= 20


def test_expect_continue_is_answered_before_the_body(server: LocalMock) -> None:
    body = chat_body(2)
    head = request_bytes(CHAT, body, headers={"expect": "100-continue"})[: -len(body)]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert len(exchange(connection, body).texts()) == 2


# --- the schedule and its account -----------------------------------------------------------------------------------------


def test_the_client_sees_what_the_truth_tells() -> None:
    with LocalMock(ttft_ms=30.0, gap_ms=8.0) as server:
        from_ns = SYSTEM.monotonic_ns()
        answers = [ask(server.port, chat_body(12)) for _ in range(5)]
        truth = server.truth(from_ns)
    assert truth["requests"] == truth["requests_completed"] == 5
    assert truth["output_tokens"] == truth["output_chunks"] == 60
    assert truth["ttft_ms"]["n"] == 5
    assert truth["icl_ms"]["n"] == 55
    assert truth["ttft_ms"]["p50"] >= 30
    assert truth["lag_ms"]["p50"] >= 0
    seen = [next(ns for ns, data in answer.reads if b"tok0" in data) - answer.sent_ns for answer in answers]
    # the client's first byte leaves before the server's arrival stamp, and its read comes after the server's write
    assert np.median(seen) / 1e6 >= truth["ttft_ms"]["p50"] - 0.5
    ends = [(answer.reads[-1][0] - answer.sent_ns) / 1e6 for answer in answers]
    assert np.median(ends) >= truth["e2e_ms"]["p50"] - 0.5
    assert truth["e2e_ms"]["p50"] >= 30 + 11 * 8


def test_gaps_do_not_drift() -> None:
    with LocalMock(ttft_ms=5.0, gap_ms=2.0) as server:
        ask(server.port, chat_body(150))
        truth = server.truth()
    # lag is not added up: the last chunk is late by its own lag only
    assert truth["e2e_ms"]["p50"] <= 5 + 149 * 2 + truth["lag_ms"]["max"] + 0.01
    assert truth["e2e_ms"]["p50"] >= 5 + 149 * 2


def test_prefill_takes_time_for_each_token_that_is_not_cached() -> None:
    with LocalMock(ttft_ms=5.0, gap_ms=1.0, prefill_us_per_token=1000.0, quirks=("cached=10",)) as server:
        answer = ask(server.port, text_body([1] * 30, 2), path=TEXT)
        truth, metrics = server.truth(), server.metrics()
    assert truth["ttft_ms"]["p50"] >= 25
    assert answer.usage is not None
    assert answer.usage["prompt_tokens_details"] == {"cached_tokens": 10}
    assert metrics["prompt_tokens_cached_total"] == 10
    assert metrics["prompt_tokens_total"] == 30
    assert metrics["generation_tokens_total"] == 2


def test_later_requests_wait_when_the_engine_is_full() -> None:
    with LocalMock(ttft_ms=20.0, gap_ms=20.0, max_in_flight=1) as server:
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=10) as first,
            socket.create_connection(("127.0.0.1", server.port), timeout=10) as second,
        ):
            first.sendall(request_bytes(CHAT, chat_body(20)))
            assert eventually(lambda: server.metrics()["requests_running"] == 1)
            second.sendall(request_bytes(CHAT, chat_body(1)))
            assert eventually(lambda: server.metrics()["requests_waiting"] == 1)
            assert len(exchange(second, b"").texts()) == 1
            assert len(exchange(first, b"").texts()) == 20
        truth, metrics = server.truth(), server.metrics()
    assert truth["requests_completed"] == 2
    assert truth["ttft_ms"]["max"] - truth["lag_ms"]["max"] > 100  # the wait counts and is no lag
    assert (metrics["requests_running"], metrics["requests_waiting"]) == (0, 0)


def test_a_client_that_leaves_frees_its_place_whether_it_runs_or_waits() -> None:
    with LocalMock(ttft_ms=1.0, gap_ms=20.0, max_in_flight=1) as server:
        places = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(3)]
        for running, place in enumerate(places):
            place.sendall(request_bytes(CHAT, chat_body(1000)))
            assert eventually(lambda: sum(map(int, _running_and_waiting(server))) == running + 1)  # noqa: B023
        places[1].close()
        assert eventually(lambda: _running_and_waiting(server) == (1, 1))
        places[0].close()
        assert eventually(lambda: _running_and_waiting(server) == (1, 0))
        places[2].close()
        assert eventually(lambda: _running_and_waiting(server) == (0, 0))
        truth = server.truth()
    assert truth["requests"] == truth["requests_unfinished"] == 3
    assert truth["requests_completed"] == 0


def _running_and_waiting(server: LocalMock) -> tuple[float, float]:
    metrics = server.metrics()
    return metrics["requests_running"], metrics["requests_waiting"]


def test_a_window_whose_stamps_were_let_go_is_refused() -> None:
    from bench.mock import ledger

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger.Ledger.__init__, "__defaults__", (10,))
        with LocalMock(ttft_ms=0.0, gap_ms=0.0, truth_chunks=10) as server:
            for _ in range(8):
                ask(server.port, chat_body(10))
            answer = ask(server.port, path="/truth", method="GET")
    assert answer.status == 410
    assert "truth-chunks" in json.loads(answer.body)["error"]["message"]


def test_it_works_on_the_plain_asyncio_loop_too() -> None:
    with LocalMock(loop=asyncio.new_event_loop()) as server:
        assert len(ask(server.port, chat_body(5)).texts()) == 5
        assert server.truth()["output_tokens"] == 5


def test_a_client_that_reads_slowly_gets_every_byte() -> None:
    with LocalMock(ttft_ms=0.0, gap_ms=0.0, quirks=("big-events=200000",)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            connection.sendall(request_bytes(CHAT, chat_body(60)))
            # nothing is read until the server has sent all that it has
            assert eventually(lambda: server.metrics()["requests_running"] == 0)
            answer = exchange(connection, b"")
        assert server.truth()["output_chunks"] == 60
        assert server.metrics()["chunks_buffered_total"] > 0
    assert [len(text.encode()) for text in answer.texts()] == [200_000] * 60
    assert answer.events[-1] == "[DONE]"


def test_fifty_streams_at_once_each_get_their_own_tokens() -> None:
    with LocalMock(ttft_ms=10.0, gap_ms=2.0) as server:
        places = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(50)]
        for number, place in enumerate(places):
            place.sendall(request_bytes(CHAT, chat_body(10 + number)))
        answers = [exchange(place, b"") for place in places]
        for place in places:
            place.close()
        truth = server.truth()
    assert [len(answer.texts()) for answer in answers] == [10 + number for number in range(50)]
    assert truth["output_tokens"] == sum(10 + number for number in range(50))
