"""The server of libraries tells how sure its model is: of what it makes, and with `echo` of the prompt."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bench.runners.shims.batching import Batcher
from bench.runners.shims.openai_http import MOST_SCORED_TOKENS, Request, Score, listen
from tests.runners.test_library_server import Bytes, Service

RIVALS = b"ABCDEFGH"


def score_of(token: int, best: int) -> Score:
    """Of each byte -b/100, and of letters that are in no answer -1, -2, ..."""
    return -token / 100, [(token, -token / 100), *((rival, -1.0 - place) for place, rival in enumerate(RIVALS[: best - 1]))]


class Telling(Bytes):
    """`Bytes` that says how sure it is."""

    def join(self, requests: list[Request]) -> list[int]:
        for request in requests:
            if request.echo:
                request.prompt_scores = [score_of(token, request.logprobs or 1) for token in request.ids[1:]]
        return self._told(requests, super().join(requests))

    def step(self) -> list[int]:
        return self._told(self.rows, super().step())

    def _told(self, requests: list[Request], tokens: list[int]) -> list[int]:
        for request, token in zip(requests, tokens, strict=True):
            if request.logprobs is not None:
                request.scores.append(score_of(token, request.logprobs))
        return tokens


class TellingService(Service):
    context = 4000
    gives_logprobs = True

    def __init__(self) -> None:
        super().__init__()
        self.batcher = Batcher(Telling(), slots=4, prefill_tokens=9999)


@pytest.fixture(scope="module", params=[TellingService, Service])
def service(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    made: Service = request.param()
    server = listen(made, 0)
    threading.Thread(target=made.run, daemon=True).start()
    yield request.param.__name__, server.server_address[1]
    server.shutdown()
    server.server_close()


def post(service: tuple[str, int], path: str = "/v1/completions", **body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", service[1], timeout=30)
    connection.request("POST", path, json.dumps({"temperature": 0, **body}), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    found = json.loads(reply.read())
    connection.close()
    return reply.status, found


@pytest.mark.parametrize("service", [TellingService], indirect=True)
def test_each_token_of_an_answer_has_its_logprob_and_the_best_in_its_place(service: tuple[str, int]) -> None:
    _, plain = post(service, prompt="x", max_tokens=5)
    assert "logprobs" not in plain["choices"][0]
    _, found = post(service, prompt="x", max_tokens=5, logprobs=2)
    choice = found["choices"][0]
    assert choice["text"] == plain["choices"][0]["text"]
    told, ids = choice["logprobs"], choice["token_ids"]
    assert told["token_logprobs"] == [-token / 100 for token in ids]
    assert [sorted(best.values()) for best in told["top_logprobs"]] == [sorted([-token / 100, -1.0]) for token in ids]
    assert "".join(told["tokens"]) == choice["text"]
    assert [choice["text"][offset:].startswith(token) for offset, token in zip(told["text_offset"], told["tokens"], strict=True)]


@pytest.mark.parametrize("service", [TellingService], indirect=True)
def test_an_echoed_prompt_comes_first_and_its_first_token_has_no_probability(service: tuple[str, int]) -> None:
    _, found = post(service, prompt="abé", max_tokens=2, logprobs=1, echo=True)
    choice = found["choices"][0]
    told = choice["logprobs"]
    assert choice["text"].startswith("abé")
    assert "".join(told["tokens"]) == choice["text"]
    ids = [*"abé".encode(), *choice["token_ids"]]
    assert told["token_logprobs"] == [None, *(-token / 100 for token in ids[1:])]
    assert told["top_logprobs"][0] is None
    assert len(told["text_offset"]) == len(ids)
    assert found["usage"]["prompt_tokens"] == 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"logprobs": 2, "stream": True}, "not served here: logprobs"),
        ({"echo": True, "stream": True, "logprobs": 1}, "not served here: logprobs, echo"),
        ({"echo": True}, "logprobs"),
        ({"logprobs": 21}, "from 1 to 20"),
        ({"logprobs": True}, "from 1 to 20"),
        ({"logprobs": -1}, "from 1 to 20"),
        ({"logprobs": 1, "echo": True, "prompt": "x" * (MOST_SCORED_TOKENS + 1)}, f"at most {MOST_SCORED_TOKENS}"),
    ],
)
@pytest.mark.parametrize("service", [TellingService], indirect=True)
def test_what_it_can_not_tell_is_refused(service: tuple[str, int], body: dict[str, Any], words: str) -> None:
    status, found = post(service, **{"prompt": "x", "max_tokens": 2, **body})
    assert status == 400
    assert words in found["error"]["message"]


@pytest.mark.parametrize("service", [TellingService], indirect=True)
def test_a_chat_has_none(service: tuple[str, int]) -> None:
    messages = [{"role": "user", "content": "x"}]
    status, found = post(service, "/v1/chat/completions", messages=messages, max_tokens=2, logprobs=True)
    assert (status, "not served here: logprobs" in found["error"]["message"]) == (400, True)


@pytest.mark.parametrize("body", [{"logprobs": 1}, {"echo": True}])
@pytest.mark.parametrize("service", [Service], indirect=True)
def test_a_library_that_does_not_tell_refuses_both(service: tuple[str, int], body: dict[str, Any]) -> None:
    status, found = post(service, prompt="x", max_tokens=2, **body)
    assert status == 400
    assert f"not served here: {next(iter(body))}" in found["error"]["message"]
