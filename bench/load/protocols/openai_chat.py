"""OpenAI chat completions, streamed: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bench.load.protocols.base import Answer, Content, Usage, read_openai
from bench.load.protocols.openai_completions import request_fields
from bench.records import Case, ChunkKind, Target

_CONTENT, _REASONING = int(ChunkKind.CONTENT), int(ChunkKind.REASONING)
_REFUSAL, _TOOL = int(ChunkKind.REFUSAL), int(ChunkKind.TOOL)


class _Function(msgspec.Struct, gc=False):
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Usage | None = None


def _content_of(choice: _Choice) -> Content | None:
    return _content_in(choice.delta)


def _content_of_whole(choice: _Choice) -> Content | None:
    return _content_in(choice.message)


def _content_in(delta: _Delta | None) -> Content | None:
    if delta is None:
        return None
    text = delta.content
    if text:
        # servers that send a last reasoning piece beside the first answer piece: it is the answer that begins here
        return _CONTENT, text
    text = delta.reasoning or delta.reasoning_content
    if text:
        return _REASONING, text
    if delta.refusal:
        return _REFUSAL, delta.refusal
    if delta.tool_calls:
        arguments = "".join(c.function.arguments for c in delta.tool_calls if c.function and c.function.arguments)
        return (_TOOL, arguments) if arguments else None
    return None


class OpenAIChat:
    """Chat completions; prompts are text in one user message."""

    takes_token_ids = False
    versioned = True

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(list[_Event])

    def path(self, target: Target, *, stream: bool = True) -> str:
        return "/chat/completions"

    def body(self, target: Target, case: Case, prompt: str | list[int], output_tokens: int, *, exact: bool) -> dict[str, Any]:
        messages = [{"role": "user", "content": prompt}]
        return {"model": target.model, "messages": messages, **request_fields(case, output_tokens, exact=exact)}

    def read(self, payloads: Sequence[bytes]) -> Answer:
        return read_openai(payloads, self._decoder, _content_of)

    def whole(self, reply: bytes) -> Answer:
        return read_openai([reply], self._decoder, _content_of_whole)
