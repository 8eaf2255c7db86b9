"""Asks a running engine to go on with a prompt, greedily, and for the probability of a text: over `/v1/completions`, which all of
them serve. Logprobs of a given text are asked with `echo` (vLLM, SGLang, our own servers of libraries) or, of llama.cpp, token by
token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.analysis.agreement import Continuation, Scored
from bench.clock import SYSTEM, Clock
from bench.errors import TargetError
from bench.records import Target
from bench.runners.http import Answer, NoAnswer, post

LIMIT_S = 300.0
"""Within which an engine must have answered everything."""
_GREEDY = {"temperature": 0, "repetition_penalty": 1.0}
"""The second: some servers take a penalty from the model's folder where none is asked for."""
_BEST = 5
"""Tokens asked for in the place of each: two of them may read alike."""
_FORCED = 1e6
"""Added to the logit of a token that is to be chosen whatever its probability; logprobs are told without it."""
_QUOTED_CHARS = 200
_LATE = NoAnswer(kind="timeout", detail="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One token of an answer: its text, ln of its probability, and those of the best tokens in its place, best first."""

    text: str
    logprob: float
    best: tuple[float, ...]

    @property
    def gap_nats(self) -> float:
        """Between the two best. None of a token that adds no text (the end, part of a character): nobody sees which it was."""
        return self.best[0] - self.best[1] if self.text and len(self.best) > 1 else 0.0


class Asker:
    """Questions to one engine, all within `LIMIT_S` of the first. Each raises TargetError in plain words where it is refused,
    late, or answered with something else.
    """

    def __init__(self, target: Target, engine: str, clock: Clock = SYSTEM) -> None:
        self._target = target
        self._scored = {"llamacpp": self._scored_token_by_token}.get(engine, self._scored_by_echo)
        self._clock = clock
        self._end_ns = clock.monotonic_ns() + round(LIMIT_S * 1e9)

    def answers(self, prompts: Sequence[str], tokens: Sequence[int]) -> list[str]:
        """How it goes on with each prompt, all asked at once: kernels may be right for one request and wrong for a batch."""
        return self._all_at_once(self._answer, prompts, tokens)

    def continuations(self, prompts: Sequence[str], tokens: int) -> list[Continuation]:
        """The same with how sure it is of each token. One after the other: nothing but the prompt may decide."""
        return [self._continuation(prompt, tokens) for prompt in prompts]

    def scored(self, text: str) -> Scored:
        """How probable it finds `text`."""
        return self._scored(text)

    def _all_at_once(self, ask: Callable[[str, int], str], prompts: Sequence[str], tokens: Sequence[int]) -> list[str]:
        pool = ThreadPoolExecutor(len(prompts))
        try:
            return list(pool.map(ask, prompts, tokens))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # a person who interrupts does not wait

    def _answer(self, prompt: str, tokens: int) -> str:
        return str(self._choice(prompt, max(tokens, 1))["text"])

    def _continuation(self, prompt: str, tokens: int) -> Continuation:
        choice = self._choice(prompt, tokens, logprobs=_BEST)
        steps, text = steps_of(choice), str(choice["text"])
        if not steps:
            raise TargetError("the engine tells no logprobs of its tokens", hint="make the reference with another engine")
        if any(step.best and step.logprob < step.best[0] for step in steps):
            raise TargetError("the engine does not choose the likeliest token at temperature 0: it can't be a reference")
        ends, told = [], ""
        for step in steps:
            told += step.text
            if not text.startswith(told):  # a character in several tokens, and what comes after it
                break
            ends.append(len(told))
        gaps_nats = tuple(step.gap_nats for step in steps[: len(ends)])
        return Continuation(prompt=prompt, text=text[: ends[-1] if ends else 0], ends=tuple(ends), gaps_nats=gaps_nats)

    def _scored_by_echo(self, text: str) -> Scored:
        answer = self._post("/v1/completions", self._body(text, 1) | {"echo": True, "logprobs": 1})
        found, usage = (_choice_of(answer) or {}).get("logprobs"), answer.get("usage")
        count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        logprobs = found.get("token_logprobs") if isinstance(found, dict) else None
        if not isinstance(count, int) or not isinstance(logprobs, list) or len(logprobs) <= count:
            raise TargetError("it tells no logprobs of a given text")
        return _sum_of(text, logprobs[1:count])

    def _scored_token_by_token(self, text: str) -> Scored:
        """Each token is forced, and its logprob told as it was before. The prompt stays in the cache, so each costs one step."""
        ids = self._post("/tokenize", {"content": text, "add_special": True}).get("tokens")
        if not isinstance(ids, list):
            raise TargetError("it does not tell the tokens of a text")
        return _sum_of(text, [self._forced(ids[:place], ids[place]) for place in range(1, len(ids))])

    def _forced(self, before: list[int], token: int) -> float | None:
        options = {"n_predict": 1, "n_probs": 1, "cache_prompt": True, "id_slot": 0, "logit_bias": [[token, _FORCED]]}
        steps = steps_of({"logprobs": {"content": self._post("/completion", {"prompt": before, **options}).get(_LLAMA_PROBS)}})
        return steps[0].logprob if steps else None

    def _choice(self, prompt: str, tokens: int, **more: Any) -> dict[str, Any]:
        choice = _choice_of(self._post("/v1/completions", self._body(prompt, tokens) | more))
        if choice is None:
            raise TargetError("it answers a prompt with something that is no completion")
        return choice

    def _body(self, prompt: str, tokens: int) -> dict[str, Any]:
        return {"model": self._target.model, "prompt": prompt, "max_tokens": tokens, "stream": False, **_GREEDY}

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        left_s = (self._end_ns - self._clock.monotonic_ns()) / 1e9
        answer = post(self._target.base_url + path, body, timeout_s=left_s) if left_s > 0 else _LATE
        if not isinstance(answer, Answer):
            if answer.kind == "timeout":
                raise TargetError(f"it did not answer everything within {LIMIT_S:.0f} s")
            raise TargetError(f"it gives no answer to a prompt: {answer.detail}")
        if answer.status != 200:
            said = " ".join(answer.body.decode("utf-8", "replace").split())[:_QUOTED_CHARS]
            raise TargetError(f"it refuses {path}: HTTP {answer.status} {said}".rstrip())
        return answer.json_object()


_LLAMA_PROBS = "completion_probabilities"


def steps_of(choice: dict[str, Any]) -> list[Step]:
    """The tokens of an answer in either of the two shapes in which servers tell them: OpenAI's of completions, and its newer one
    of chats, which llama.cpp uses for both. Empty where there are none.
    """
    found = choice.get("logprobs")
    if not isinstance(found, dict):
        return []
    content = found.get("content")
    try:
        if isinstance(content, list):
            return [_step(one["token"], one["logprob"], [top["logprob"] for top in one["top_logprobs"]]) for one in content]
        tops = [top.values() if top else () for top in found["top_logprobs"]]
        return [_step(*one) for one in zip(found["tokens"], found["token_logprobs"], tops, strict=True)]
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


def _step(text: Any, logprob: Any, best: Any) -> Step:
    return Step(text=str(text), logprob=float(logprob), best=tuple(sorted(map(float, best), reverse=True)))


def _choice_of(answer: dict[str, Any]) -> dict[str, Any] | None:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) and isinstance(first.get("text"), str) else None


def _sum_of(text: str, logprobs: Sequence[Any]) -> Scored:
    """Raises: TargetError where a token has none, or the sum is no number."""
    if not logprobs or not all(isinstance(one, int | float) for one in logprobs):
        raise TargetError("it tells no logprobs of a given text")
    nll_nats = -math.fsum(logprobs)
    if not math.isfinite(nll_nats):
        raise TargetError("it tells logprobs of a given text that are no numbers")
    return Scored(text=text, tokens=len(logprobs) + 1, nll_nats=nll_nats)
