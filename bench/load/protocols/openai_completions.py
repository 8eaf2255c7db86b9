"""OpenAI completions, streamed: `POST /v1/completions`. Prompts may be token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bench.load.protocols.base import Answer, Content, Usage, read_openai
from bench.records import Case, ChunkKind, Target

_CONTENT = int(ChunkKind.CONTENT)


class _Choice(msgspec.Struct, gc=False):
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Usage | None = None


def _content_of(choice: _Choice) -> Content | None:
    text = choice.text
    return (_CONTENT, text) if text else None


def request_fields(case: Case, output_tokens: int, *, exact: bool) -> dict[str, Any]:
    """What chat and completions requests share. `ignore_eos` and `min_tokens` are sent only where they are wanted: servers
    of the strict kind refuse fields that they don't know.
    """
    fields: dict[str, Any] = {
        "max_tokens": output_tokens,
        "temperature": case.sampling.temperature,
        "top_p": case.sampling.top_p,
        "stream": case.stream,
    }
    if case.stream:
        fields["stream_options"] = {"include_usage": True}
    if case.sampling.ignore_eos:
        fields["ignore_eos"] = True
    if exact:
        fields["min_tokens"] = output_tokens
    return fields


class OpenAICompletions:
    """Completions; prompts are text or token ids."""

    takes_token_ids = True
    versioned = True

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(list[_Event])

    def path(self, target: Target, *, stream: bool = True) -> str:
        return "/completions"

    def body(self, target: Target, case: Case, prompt: str | list[int], output_tokens: int, *, exact: bool) -> dict[str, Any]:
        return {"model": target.model, "prompt": prompt, **request_fields(case, output_tokens, exact=exact)}

    def read(self, payloads: Sequence[bytes]) -> Answer:
        return read_openai(payloads, self._decoder, _content_of)

    def whole(self, reply: bytes) -> Answer:
        return read_openai([reply], self._decoder, _content_of)
