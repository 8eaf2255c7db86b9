"""The proof that an engine works: a first token. A health page may answer long before a model does, or for ever without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.clock import SYSTEM, Clock
from bench.errors import EngineStartError
from bench.runners.http import Answer, NoAnswer, post
from bench.runners.process import EngineProcess
from bench.runners.readiness import died, late

Question = Callable[[str], tuple[str, dict[str, Any]]]
"""A model's name to the path and body that ask for one token."""
_PROMPT = "The capital of France is"
_PAUSE_S = 0.2
_RETRIED = frozenset({404, 409, 425, 429, 500, 502, 503, 504})
"""What servers answer that are up while their model is not."""
_QUOTED_CHARS = 300


def completion(model: str) -> tuple[str, dict[str, Any]]:
    """One token over `/v1/completions`."""
    return "/v1/completions", {"model": model, "prompt": _PROMPT, "max_tokens": 1, "temperature": 0}


def chat(model: str) -> tuple[str, dict[str, Any]]:
    """One token over `/v1/chat/completions`."""
    message = {"role": "user", "content": _PROMPT}
    return "/v1/chat/completions", {"model": model, "messages": [message], "max_tokens": 1, "temperature": 0}


def await_first_token(
    process: EngineProcess, base_url: str, model: str, question: Question, *, timeout_s: float, clock: Clock = SYSTEM
) -> float:
    """How long the engine takes for one token from now on [s]: compilation at the first request and caches to be filled count.

    Raises: EngineStartError when it ends, refuses, or gives none within `timeout_s` [s].
    """
    began_ns = clock.monotonic_ns()
    path, body = question(model)
    while True:
        waited_s = (clock.monotonic_ns() - began_ns) / 1e9
        answer = post(base_url + path, body, timeout_s=max(timeout_s - waited_s, 0.1))
        waited_s = (clock.monotonic_ns() - began_ns) / 1e9
        if isinstance(answer, Answer) and (found := answer.json_object()) and "error" not in found:
            return waited_s
        if (how := process.failure()) is not None:
            raise died(process, how, "gave a first token")
        if waited_s >= timeout_s or (isinstance(answer, NoAnswer) and answer.kind == "timeout"):
            raise late(process, waited_s, f"it answers its health check but gave no token: {_said(answer)}")
        if isinstance(answer, Answer) and answer.status not in _RETRIED:
            raise _refused(process, path, answer)
        clock.sleep(_PAUSE_S)


def _said(answer: Answer | NoAnswer) -> str:
    if isinstance(answer, NoAnswer):
        return answer.detail
    text = " ".join(answer.body.decode("utf-8", "replace").split())
    return f"HTTP {answer.status} {text[:_QUOTED_CHARS]}".rstrip()


def _refused(process: EngineProcess, path: str, answer: Answer) -> EngineStartError:
    return EngineStartError(
        f"{process.name} is up but refuses {path}: {_said(answer)}",
        hint="try the same request by hand, or another version of the engine",
        log_tail=process.log_tail(20),
        log_path=str(process.log_path),
    )
