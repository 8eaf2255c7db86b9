"""The generate extension of the KServe v2 protocol, as Triton serves it: `POST /v2/models/MODEL/generate_stream`.

Its streams have no end mark: they are whole when the HTTP message is. Token counts and the finish reason come from backends that
have outputs for them (vLLM's since 24.12); for all others they stay unknown. Prompts are text.

Source: Triton's generate extension (every name under `parameters` that is an input of the model becomes one) and "Additional
outputs" of its vLLM backend (`num_output_tokens` counts what is new in an event).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from bench.load.protocols.base import Answer, read_events, usage_of
from bench.records import MISSING, Case, ChunkKind, Target

_CONTENT = int(ChunkKind.CONTENT)
_UNFINISHED = ("", "None", "null")
_Number = int | list[int] | None
_Text = str | list[str] | None


class _Event(msgspec.Struct, gc=False):
    text_output: _Text = None
    finish_reason: _Text = None
    num_input_tokens: _Number = None
    num_output_tokens: _Number = None


def _one(value: Any) -> Any:
    """A tensor of one element comes as that element or as a list of it, depending on the model's shape."""
    return value[0] if isinstance(value, list) and value else None if isinstance(value, list) else value


def _fold(events: Sequence[_Event], answer: Answer) -> None:
    answer.unmarked_end = True
    prompt: int | None = None
    total: int | None = None
    held = 0  # tokens of events without text: they show in the next chunk
    for index, event in enumerate(events):
        text, count, reason = _one(event.text_output), _one(event.num_output_tokens), _one(event.finish_reason)
        prompt = _one(event.num_input_tokens) or prompt
        if count is not None:
            total = (total or 0) + count
        if reason is not None and reason not in _UNFINISHED:
            answer.finish_reason = reason
        if not text:
            held += count or 0
            continue
        answer.events.append(index)
        answer.kinds.append(_CONTENT)
        answer.texts.append(text)
        answer.tokens.append(MISSING if count is None else count + held)
        held = 0
    answer.usage = usage_of(prompt, total)


class KserveGenerate:
    """Triton's `generate_stream`, or `generate` where nothing is to be streamed."""

    takes_token_ids = False
    versioned = False

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(list[_Event])

    def path(self, target: Target, *, stream: bool = True) -> str:
        return f"/v2/models/{quote(target.model, safe='')}/{'generate_stream' if stream else 'generate'}"

    def body(self, target: Target, case: Case, prompt: str | list[int], output_tokens: int, *, exact: bool) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "max_tokens": output_tokens,
            "temperature": case.sampling.temperature,
            "top_p": case.sampling.top_p,
            "stream": case.stream,
            "exclude_input_in_output": True,
            "return_num_input_tokens": True,
            "return_num_output_tokens": True,
            "return_finish_reason": True,
        }
        if case.sampling.ignore_eos:
            parameters["ignore_eos"] = True
        if exact:
            parameters["min_tokens"] = output_tokens
        return {"text_input": prompt, "parameters": parameters}

    def read(self, payloads: Sequence[bytes]) -> Answer:
        return read_events(payloads, self._decoder, _fold)

    def whole(self, reply: bytes) -> Answer:
        return self.read([reply])
