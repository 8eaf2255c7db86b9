"""SGLang's own protocol, `POST /generate`: `input_ids` in, the whole text so far in each event.

Source: `GenerateReqInput` and the streaming reply of SGLang's HTTP server. Servers started with incremental output send only what
is new; which of the two it is shows in the texts themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from bench.load.protocols.base import Answer, growth, read_events, usage_of
from bench.records import Case, ChunkKind, Target

_CONTENT = int(ChunkKind.CONTENT)


class _Finish(msgspec.Struct, gc=False):
    type: str | None = None


class _Meta(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: _Finish | str | None = None


class _Event(msgspec.Struct, gc=False):
    text: str | None = None
    meta_info: _Meta | None = None


def _fold(events: Sequence[_Event], answer: Answer) -> None:
    texts = [event.text or "" for event in events]
    cumulative = all(later.startswith(earlier) for earlier, later in pairwise(texts))
    shown, counted = "", 0
    for index, (event, text) in enumerate(zip(events, texts, strict=True)):
        meta = event.meta_info or _Meta()
        _note(meta, answer)
        new = text[len(shown) :] if cumulative else text
        if not new:
            continue
        answer.events.append(index)
        answer.kinds.append(_CONTENT)
        answer.texts.append(new)
        answer.tokens.append(growth(meta.completion_tokens, counted))
        shown, counted = text, meta.completion_tokens or 0


def _note(meta: _Meta, answer: Answer) -> None:
    answer.usage = usage_of(meta.prompt_tokens, meta.completion_tokens, meta.cached_tokens) or answer.usage
    finish = meta.finish_reason
    if finish is not None:
        answer.finish_reason = finish if isinstance(finish, str) else finish.type


class SglangGenerate:
    """SGLang's native generation; prompts are text or token ids."""

    takes_token_ids = True
    versioned = False

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(list[_Event])

    def path(self, target: Target, *, stream: bool = True) -> str:
        return "/generate"

    def body(self, target: Target, case: Case, prompt: str | list[int], output_tokens: int, *, exact: bool) -> dict[str, Any]:
        sampling: dict[str, Any] = {
            "max_new_tokens": output_tokens,
            "temperature": case.sampling.temperature,
            "top_p": case.sampling.top_p,
            "ignore_eos": case.sampling.ignore_eos,
        }
        if exact:
            sampling["min_new_tokens"] = output_tokens
        return {"input_ids" if target.token_ids else "text": prompt, "sampling_params": sampling, "stream": case.stream}

    def read(self, payloads: Sequence[bytes]) -> Answer:
        return read_events(payloads, self._decoder, _fold)

    def whole(self, reply: bytes) -> Answer:
        return self.read([reply])
