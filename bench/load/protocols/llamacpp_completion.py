"""llama.cpp's own protocol, `POST /completion`: token ids in, token ids in each event, no `[DONE]` at the end.

Source: tools/server of llama.cpp; the last event has `stop: true`, the counts and the timings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bench.load.protocols.base import Answer, growth, read_events, usage_of
from bench.records import Case, ChunkKind, Target

_CONTENT = int(ChunkKind.CONTENT)
_REASONS = {"limit": "length", "eos": "stop", "word": "stop"}


class _Timings(msgspec.Struct, gc=False):
    cache_n: int | None = None


class _Event(msgspec.Struct, gc=False):
    content: str | None = None
    tokens: list[int] | None = None
    stop: bool = False
    stop_type: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: _Timings | None = None


def _fold(events: Sequence[_Event], answer: Answer) -> None:
    counted: int | None = 0
    held = 0  # ids that came without text (half a character): their token shows in the next chunk
    for index, event in enumerate(events):
        if event.stop:
            cached = event.timings.cache_n if event.timings else None
            answer.usage = usage_of(event.tokens_evaluated, event.tokens_predicted, cached)
            answer.finish_reason = _REASONS.get(event.stop_type or "", "stop")
        ids = len(event.tokens or ())
        if not event.content:
            held += ids
            continue
        answer.events.append(index)
        answer.kinds.append(_CONTENT)
        answer.texts.append(event.content)
        answer.tokens.append(held + ids if ids else growth(event.tokens_predicted, counted))
        counted, held = event.tokens_predicted, 0


class LlamaCppCompletion:
    """llama.cpp's native completion; prompts are text or token ids."""

    takes_token_ids = True
    versioned = False

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(list[_Event])

    def path(self, target: Target, *, stream: bool = True) -> str:
        return "/completion"

    def body(self, target: Target, case: Case, prompt: str | list[int], output_tokens: int, *, exact: bool) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "n_predict": output_tokens,
            "temperature": case.sampling.temperature,
            "top_p": case.sampling.top_p,
            "ignore_eos": case.sampling.ignore_eos,
            "stream": case.stream,
            "return_tokens": True,
        }

    def read(self, payloads: Sequence[bytes]) -> Answer:
        return read_events(payloads, self._decoder, _fold)

    def whole(self, reply: bytes) -> Answer:
        return self.read([reply])
