"""The server of libraries, over a model of bytes: which requests are stepped together, and the OpenAI protocol."""

from __future__ import annotations

import http.client
import json
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.protocols.openai_chat import OpenAIChat
from bench.load.protocols.openai_completions import OpenAICompletions
from bench.runners.shims.batching import Batcher, parts_of
from bench.runners.shims.openai_http import Request, listen

ANSWER = "zażółć 🙂 gęślą jaźń ".encode()
EOS = 0


class Bytes:
    """A model whose tokens are bytes: it goes through `ANSWER`, from a place that the prompt says. Keeps what was asked of it."""

    eos: Sequence[int] = (EOS,)

    def __init__(self, *, ends_after: int | None = None) -> None:
        self.rows: list[Request] = []
        self.joined: list[int] = []
        self.widths: list[int] = []
        self._ends_after = ends_after

    def next_of(self, request: Request) -> int:
        if self._ends_after is not None and request.made >= self._ends_after:
            return EOS
        return answer_of(request.ids, request.made + 1)[-1]

    def join(self, requests: list[Request]) -> list[int]:
        self.rows += requests
        self.joined.append(len(requests))
        return [self.next_of(request) for request in requests]

    def step(self) -> list[int]:
        self.widths.append(len(self.rows))
        return [self.next_of(request) for request in self.rows]

    def leave(self, kept: list[int]) -> None:
        assert kept == sorted(set(kept))
        self.rows = [self.rows[row] for row in kept]


def answer_of(ids: list[int], count: int) -> list[int]:
    """The tokens that `Bytes` gives to a prompt."""
    return [ANSWER[(sum(ids) + number) % len(ANSWER)] for number in range(count)]


def drained(request: Request) -> list[tuple[int, str | None]]:
    """What it has been given."""
    found = []
    while not request.events.empty():
        found.append(request.events.get())
    return found


# --- which requests are stepped together ------------------------------------------------------------------------------

REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 255), min_size=1, max_size=9), st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=9
)


@given(wanted=REQUESTS, slots=st.integers(1, 4), prefill_tokens=st.integers(1, 20), static=st.booleans())
def test_everyone_gets_their_own_answer_whoever_comes_and_goes(
    wanted: list[tuple[list[int], int, int]], slots: int, prefill_tokens: int, static: bool
) -> None:
    model = Bytes()
    batcher = Batcher(model, slots=slots, prefill_tokens=prefill_tokens, static=static)
    requests = [Request(ids=ids, max_tokens=count) for ids, count, _ in wanted]
    for request, (_, _, turns_before) in zip(requests, wanted, strict=True):
        for _ in range(turns_before):
            if batcher.counters()["requests_running"]:  # with nothing to do it would wait
                batcher.turn()
        batcher.submit(request)
    while batcher.counters()["requests_running"] or batcher.counters()["requests_waiting"]:
        batcher.turn()
    for request in requests:
        events = drained(request)
        assert [token for token, _ in events] == answer_of(request.ids, request.max_tokens)
        assert [reason for _, reason in events] == [None] * (request.max_tokens - 1) + ["length"]
    assert model.rows == []
    assert max(model.widths, default=0) <= slots
    counters = batcher.counters()
    assert counters["prompt_tokens_total"] == sum(len(request.ids) for request in requests)
    assert counters["generation_tokens_total"] == sum(request.max_tokens for request in requests)


def test_a_request_joins_while_others_run_and_leaves_with_its_last_token() -> None:
    model = Bytes()
    batcher = Batcher(model, slots=2, prefill_tokens=99)
    long, short, late = (Request(ids=[1], max_tokens=count) for count in (6, 2, 2))
    for request in (long, short, late):
        batcher.submit(request)
    batcher.turn()  # the first two join
    batcher.turn()  # a step, with which the short one ends
    assert model.rows == [long]
    batcher.turn()
    assert model.rows == [long, late]
    assert model.joined == [2, 1]


def test_a_static_batch_is_closed_until_its_longest_has_ended() -> None:
    model = Bytes()
    batcher = Batcher(model, slots=2, prefill_tokens=99, static=True)
    long, short, late = (Request(ids=[1], max_tokens=count) for count in (5, 2, 1))
    for request in (long, short, late):
        batcher.submit(request)
    for _ in range(5):
        batcher.turn()
    assert model.widths == [2, 2, 2, 2]  # the row of the short one is computed on
    assert (len(drained(long)), len(drained(short)), len(drained(late))) == (5, 2, 0)
    batcher.turn()
    assert len(drained(late)) == 1
    assert model.joined == [2, 1]


def test_a_static_batch_is_waited_for_until_it_is_full() -> None:
    model = Bytes()
    batcher = Batcher(model, slots=3, prefill_tokens=99, static=True, gather_s=60.0)
    for _ in range(2):
        batcher.submit(Request(ids=[1], max_tokens=1))
    turn = threading.Thread(target=batcher.turn, daemon=True)
    turn.start()
    batcher.submit(Request(ids=[1], max_tokens=1))
    turn.join(30)
    assert model.joined == [3]


def test_a_static_batch_that_does_not_fill_goes_without() -> None:
    model = Bytes()
    batcher = Batcher(model, slots=3, prefill_tokens=99, static=True, gather_s=0.01)
    batcher.submit(Request(ids=[1], max_tokens=1))
    batcher.turn()
    assert model.joined == [1]


@pytest.mark.parametrize(("ignore_eos", "made", "reason"), [(False, 3, "stop"), (True, 6, "length")])
def test_an_end_token_ends_it_unless_it_is_ignored(ignore_eos: bool, made: int, reason: str) -> None:
    batcher = Batcher(Bytes(ends_after=2), slots=1, prefill_tokens=99)
    request = Request(ids=[1], max_tokens=6, ignore_eos=ignore_eos)
    batcher.submit(request)
    for _ in range(made):
        batcher.turn()
    events = drained(request)
    assert (len(events), request.made, events[-1]) == (made, made, (EOS, reason))
    assert batcher.counters()["requests_running"] == 0


@pytest.mark.parametrize("when", ["waiting", "running"])
def test_who_has_gone_takes_no_slot(when: str) -> None:
    model = Bytes()
    batcher = Batcher(model, slots=1, prefill_tokens=99)
    gone, other = Request(ids=[1], max_tokens=50), Request(ids=[2], max_tokens=1)
    batcher.submit(gone)
    if when == "running":
        batcher.turn()
    gone.cancelled = True
    batcher.submit(other)
    while not other.made:
        batcher.turn()
    assert gone.made <= 1
    assert model.rows == []


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=20), most=st.integers(1, 200))
def test_prefills_are_bounded_with_their_padding(lengths: list[int], most: int) -> None:
    requests = [Request(ids=[1] * length, max_tokens=1) for length in lengths]
    parts = parts_of(requests, most)
    assert [request for part in parts for request in part] == requests
    for part in parts:
        assert len(part) == 1 or len(part) * max(len(request.ids) for request in part) <= most


# --- the protocol -----------------------------------------------------------------------------------------------------


class Service:
    """`Bytes` behind the protocol; with `steps`, each turn waits for a word."""

    name = "tiny"
    context = 64
    vocabulary = 256

    def __init__(self) -> None:
        self.info: dict[str, Any] | None = {"engine": "byte_server", "dtype": "int8"}
        self.batcher = Batcher(Bytes(), slots=4, prefill_tokens=999)
        self.steps: queue.SimpleQueue[None] | None = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        return self.encode("".join(f"<{message['role']}>{message['content']}" for message in messages))

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def submit(self, request: Request) -> None:
        self.batcher.submit(request)

    def counters(self) -> dict[str, float]:
        return self.batcher.counters()

    def run(self) -> None:
        while True:
            if self.steps is not None:
                self.steps.get()
            self.batcher.turn()


@dataclass
class Client:
    """One connection that is kept."""

    service: Service
    connection: http.client.HTTPConnection

    def get(self, path: str) -> tuple[int, bytes]:
        self.connection.request("GET", path)
        reply = self.connection.getresponse()
        return reply.status, reply.read()

    def post(self, path: str, **body: Any) -> http.client.HTTPResponse:
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return self.connection.getresponse()

    def payloads(self, path: str, **body: Any) -> list[bytes]:
        """The events of a stream."""
        reply = self.post(path, stream=True, **body)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/event-stream")
        return [event.removeprefix(b"data: ") for event in reply.read().split(b"\n\n") if event]


@pytest.fixture
def client() -> Iterator[Client]:
    service = Service()
    server = listen(service, 0)
    threading.Thread(target=service.run, daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    yield Client(service, connection)
    connection.close()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("prompt", ["żó", [1, 2, 3]])
def test_a_completion_is_streamed_token_by_token(client: Client, prompt: str | list[int]) -> None:
    ids = prompt if isinstance(prompt, list) else list(prompt.encode())
    wanted = {"prompt": prompt, "max_tokens": 30, "temperature": 0, "stream_options": {"include_usage": True}}
    payloads = client.payloads("/v1/completions", **wanted)
    answer = OpenAICompletions().read(payloads)
    assert (answer.done, answer.finish_reason, answer.malformed, answer.stream_error) == (True, "length", None, None)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(ids), 30)
    events = [json.loads(payload) for payload in payloads[:-2]]
    assert [event["choices"][0]["token_ids"] for event in events] == [[token] for token in answer_of(ids, 30)]
    text = "".join(event["choices"][0]["text"] for event in events)
    assert text == bytes(answer_of(ids, 30)).decode("utf-8", "replace")
    assert sum(answer.tokens) <= 30  # those of a character show with its last byte


def test_each_event_is_sent_when_its_token_is_there(client: Client) -> None:
    client.service.steps = queue.SimpleQueue()
    client.service.batcher.submit(Request(ids=[1], max_tokens=1))  # ends the turn that has begun without a word
    reply = client.post("/v1/completions", prompt=[65], max_tokens=3, temperature=0, stream=True)
    for _ in range(3):
        client.service.steps.put(None)
        assert json.loads(reply.readline().removeprefix(b"data: "))["choices"][0]["token_ids"]
        assert reply.readline() == b"\n"
    assert reply.readline() == b"data: [DONE]\n"
    reply.read()


def test_a_chat_is_streamed(client: Client) -> None:
    wanted = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 9, "temperature": 0}
    payloads = client.payloads("/v1/chat/completions", stream_options={"include_usage": True}, **wanted)
    answer = OpenAIChat().read(payloads)
    assert (answer.done, answer.finish_reason) == (True, "length")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len("<user>ab"), 9)
    assert json.loads(payloads[0])["choices"][0]["delta"]["role"] == "assistant"
    whole = json.loads(client.post("/v1/chat/completions", **wanted).read())
    streamed = "".join(json.loads(payload)["choices"][0]["delta"]["content"] for payload in payloads[:-2])
    assert whole["choices"][0]["message"]["content"] == streamed
    assert OpenAIChat().whole(json.dumps(whole).encode()).usage is not None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"prompt": "x" * 60, "max_tokens": 5}, "do not fit a context of 64"),
        ({"prompt": ""}, "do not fit"),
        ({"prompt": [256], "max_tokens": 5}, "token ids below 256"),
        ({"prompt": ["a", "b"], "max_tokens": 5}, "token ids below 256"),
        ({"prompt": [True], "max_tokens": 5}, "token ids below 256"),
        ({"prompt": "x", "n": 2}, "not served here: n"),
        ({"prompt": "x", "stop": ["a"]}, "not served here: stop"),
        ({"prompt": "x", "logprobs": 5}, "not served here: logprobs"),
        ({}, "prompt"),
    ],
)
def test_what_it_can_not_do_is_refused_and_the_connection_goes_on(client: Client, body: dict[str, Any], words: str) -> None:
    reply = client.post("/v1/completions", **body)
    assert reply.status == 400
    assert words in json.loads(reply.read())["error"]["message"]
    assert client.get("/health")[0] == 200


def test_nothing_is_served_before_the_model_is_there(client: Client) -> None:
    client.service.info = None
    assert client.get("/health")[0] == 503
    reply = client.post("/v1/completions", prompt="x")
    assert (reply.status, bool(reply.read())) == (503, True)


def test_its_pages_tell_what_it_is_and_did(client: Client) -> None:
    client.payloads("/v1/completions", prompt="abc", max_tokens=4, temperature=0)
    assert json.loads(client.get("/info")[1])["dtype"] == "int8"
    entry = json.loads(client.get("/v1/models")[1])["data"][0]
    assert (entry["id"], entry["max_model_len"], entry["meta"]["n_vocab"]) == ("tiny", 64, 256)
    told = dict(line.split() for line in client.get("/metrics")[1].decode().splitlines())
    assert told == {
        "byte_server:prompt_tokens_total": "3",
        "byte_server:generation_tokens_total": "4",
        "byte_server:requests_running": "0",
        "byte_server:requests_waiting": "0",
    }
    assert client.get("/nowhere")[0] == 404


def test_who_hangs_up_is_forgotten(client: Client) -> None:
    reply = client.post("/v1/completions", prompt="abc", max_tokens=60, temperature=0, stream=True)
    reply.readline()
    reply.close()
    client.connection.close()
    assert client.get("/health")[0] == 200
    client.payloads("/v1/completions", prompt="abc", max_tokens=4, temperature=0)
    assert client.service.counters()["requests_running"] == 0
