"""How engines are asked, and what is understood of their answers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bench.clock import FakeClock
from bench.errors import TargetError
from bench.lab.correctness.asking import LIMIT_S, Asker, Step, steps_of
from bench.records import Target
from tests.lab.correctness.engines import Pages, completion, serving

OPENAI = {
    "tokens": [" a", " b"],
    "token_logprobs": [-0.25, -1.0],
    "top_logprobs": [{" a": -0.25, " x": -2.0}, {" b": -1.0, " y": -1.5}],
}
LLAMA = {
    "content": [
        {"token": " a", "logprob": -0.25, "top_logprobs": [{"token": " a", "logprob": -0.25}, {"token": " x", "logprob": -2.0}]},
        {"token": " b", "logprob": -1.0, "top_logprobs": [{"token": " b", "logprob": -1.0}, {"token": " y", "logprob": -1.5}]},
    ]
}


def asker(base_url: str, engine: str = "vllm") -> Asker:
    return Asker(Target(base_url=base_url, protocol="openai-completions", model="m"), engine)


@pytest.mark.parametrize("logprobs", [OPENAI, LLAMA])
def test_both_shapes_of_logprobs_say_the_same(logprobs: Any) -> None:
    assert steps_of({"logprobs": logprobs}) == [
        Step(text=" a", logprob=-0.25, best=(-0.25, -2.0)),
        Step(text=" b", logprob=-1.0, best=(-1.0, -1.5)),
    ]


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {},
        [],
        {"tokens": ["a"]},
        {"content": [{"token": "a"}]},
        {"content": ["a"]},
        OPENAI | {"token_logprobs": [-1.0]},
        OPENAI | {"token_logprobs": [-1.0, None]},
        OPENAI | {"top_logprobs": [3, 4]},
    ],
)
def test_anything_else_is_no_logprobs(logprobs: Any) -> None:
    assert steps_of({"logprobs": logprobs}) == []


def test_prompts_are_asked_at_once_and_answered_in_their_order() -> None:
    together = threading.Barrier(3)

    def answer(body: dict[str, Any]) -> Any:
        together.wait(20)
        assert (body["temperature"], body["stream"]) == (0, False)
        return completion(f"{body['prompt']} and {body['max_tokens']} more")

    with serving({"/v1/completions": answer}) as url:
        found = asker(url).answers(["one", "two", "three"], [1, 2, 3])
    assert found == ["one and 1 more", "two and 2 more", "three and 3 more"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"max_tokens is too large", "HTTP 400 max_tokens is too large"),
        ({"choices": []}, "no completion"),
        ({"choices": [{"message": {"content": "hi"}}]}, "no completion"),
        (["hi"], "no completion"),
    ],
)
def test_what_is_no_answer_is_told(answer: Any, told: str) -> None:
    with serving({"/v1/completions": lambda _: answer}) as url, pytest.raises(TargetError, match=told):
        asker(url).answers(["one"], [1])


def test_an_engine_that_has_gone_is_told() -> None:
    with serving({}) as url:
        pass
    with pytest.raises(TargetError, match="gives no answer"):
        asker(url).answers(["one"], [1])


def test_an_engine_that_takes_too_long_over_it_is_left() -> None:
    clock = FakeClock()

    def answer(_: dict[str, Any]) -> Any:
        clock.advance(LIMIT_S * 0.6)
        return completion(" a", {"token_logprobs": [None, -1.0, -1.0, -9.0]})

    with serving({"/v1/completions": answer}) as url:
        slow = Asker(Target(base_url=url, protocol="openai-completions", model="m"), "vllm", clock)
        assert slow.answers(["one"], [1]) == [" a"]
        assert slow.scored("a b c").nll_nats == 2.0
        with pytest.raises(TargetError, match="within 300 s"):
            slow.scored("a b c")


def test_a_continuation_has_the_gap_between_the_two_best_tokens() -> None:
    with serving({"/v1/completions": lambda _: completion(" a b", OPENAI)}) as url:
        (found,) = asker(url).continuations(["Go on:"], 2)
    assert (found.prompt, found.text, found.ends, found.gaps_nats) == ("Go on:", " a b", (2, 4), (1.75, 0.5))


def test_a_token_whose_only_rival_reads_alike_counts_as_a_near_tie() -> None:
    alone = OPENAI | {"top_logprobs": [{" a": -0.25}, {" b": -1.0, " y": -1.5}]}
    with serving({"/v1/completions": lambda _: completion(" a b", alone)}) as url:
        (found,) = asker(url).continuations(["Go on:"], 2)
    assert found.gaps_nats == (0.0, 0.5)


def test_a_token_without_text_is_seen_by_nobody() -> None:
    with serving({"/v1/completions": lambda _: completion(" a", OPENAI | {"tokens": [" a", ""]})}) as url:
        (found,) = asker(url).continuations(["Go on:"], 2)
    assert (found.text, found.ends, found.gaps_nats) == (" a", (2, 2), (1.75, 0.0))


def test_a_continuation_ends_before_a_character_in_several_tokens() -> None:
    with serving({"/v1/completions": lambda _: completion(" a🙂", OPENAI | {"tokens": [" a", "\ufffd"]})}) as url:
        (found,) = asker(url).continuations(["Go on:"], 2)
    assert (found.text, found.ends, found.gaps_nats) == (" a", (2,), (1.75,))


@pytest.mark.parametrize(
    ("logprobs", "told"), [(None, "no logprobs of its tokens"), (OPENAI | {"token_logprobs": [-0.25, -1.5]}, "likeliest")]
)
def test_what_can_be_no_reference_is_refused(logprobs: Any, told: str) -> None:
    with serving({"/v1/completions": lambda _: completion(" a b", logprobs)}) as url, pytest.raises(TargetError, match=told):
        asker(url).continuations(["Go on:"], 2)


def test_a_text_is_scored_by_echo_without_its_first_token_and_the_made_one() -> None:
    def answer(body: dict[str, Any]) -> Any:
        assert (body["echo"], body["prompt"]) == (True, "a b c")
        return completion("a b c d", {"token_logprobs": [None, -1.5, -0.5, -9.0]})

    with serving({"/v1/completions": answer}) as url:
        found = asker(url).scored("a b c")
    assert (found.text, found.tokens, found.nll_nats) == ("a b c", 3, 2.0)
    assert found.ppl == pytest.approx(2.718281828)


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {"token_logprobs": [-9.0]},  # of what it made only: `echo` was passed over
        {"token_logprobs": [None, None, -0.5, -9.0]},
        {"token_logprobs": [None, "-1", -0.5, -9.0]},
        {"token_logprobs": [None, float("-inf"), -0.5, -9.0]},
    ],
)
def test_an_engine_that_scores_no_text_is_told(logprobs: Any) -> None:
    with serving({"/v1/completions": lambda _: completion("a", logprobs)}) as url, pytest.raises(TargetError, match="logprobs"):
        asker(url).scored("a b c")


def llama(ids: list[int], logprobs: dict[int, float]) -> Pages:
    """llama.cpp: what a token is forced to be is what it tells the logprob of."""

    def complete(body: dict[str, Any]) -> Any:
        ((token, bias),) = body["logit_bias"]
        assert bias > 1e3
        assert body["prompt"] == ids[: ids.index(token)]
        one = {"id": token, "token": "?", "logprob": logprobs[token], "top_logprobs": []}
        return {"content": "?", "completion_probabilities": [one]}

    return {"/tokenize": lambda body: {"tokens": ids if body["add_special"] else ids[1:]}, "/completion": complete}


def test_llamacpp_scores_a_text_token_by_token() -> None:
    with serving(llama([1, 70, 80, 90], {70: -3.0, 80: -0.5, 90: -1.0})) as url:
        found = asker(url, "llamacpp").scored("a b c")
    assert (found.tokens, found.nll_nats) == (4, 4.5)


def test_a_llamacpp_that_tells_no_tokens_is_told() -> None:
    with serving({"/tokenize": lambda _: {}}) as url, pytest.raises(TargetError, match="tokens of a text"):
        asker(url, "llamacpp").scored("a b c")
