"""The OpenAI request bodies that the mock engine reads, and the error bodies that it answers with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bench.mock.options import MAX_TOKENS

DEFAULT_MAX_TOKENS = 16


class ApiError(Exception):
    """A request that is answered with an HTTP error."""

    def __init__(self, status: int, message: str, *, kind: str = "invalid_request_error", code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code

    def body(self) -> bytes:
        """OpenAI's error object as JSON."""
        error = {"message": str(self), "type": self.kind, "param": None, "code": self.code or self.status}
        return msgspec.json.encode({"error": error})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a generation request wants. `prompt_tokens`: ids where ids were sent, else words. `logprobs`: so many of the best
    tokens are to be told with each; `echo`: the prompt, to be told with its logprobs as well.
    """

    chat: bool
    model: str | None
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    usage_every_chunk: bool
    logprobs: int | None = None
    echo: str | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _Body(msgspec.Struct, kw_only=True):
    model: str | None = None
    max_tokens: int | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    ignore_eos: bool | None = None


class _Chat(_Body):
    messages: list[_Message]
    max_completion_tokens: int | None = None


class _Completion(_Body):
    prompt: str | list[int | str]
    logprobs: int | None = None
    echo: bool | None = None


_CHAT = msgspec.json.Decoder(_Chat)
_COMPLETION = msgspec.json.Decoder(_Completion)


def parse_chat(body: bytes) -> Ask:
    """A `/v1/chat/completions` body. Raises: ApiError 400."""
    asked = _decode(_CHAT, body)
    if not asked.messages:
        raise ApiError(400, "messages is empty: send at least one message")
    words = sum(_words(message) for message in asked.messages)
    return _ask(asked, chat=True, prompt_tokens=words, max_tokens=asked.max_completion_tokens or asked.max_tokens)


def parse_completion(body: bytes) -> Ask:
    """A `/v1/completions` body: the prompt is a text or a list of token ids. Raises: ApiError 400."""
    asked = _decode(_COMPLETION, body)
    ask = _ask(asked, chat=False, prompt_tokens=_prompt_tokens(asked.prompt), max_tokens=asked.max_tokens)
    echo = asked.prompt if asked.echo and isinstance(asked.prompt, str) else None
    return replace(ask, logprobs=asked.logprobs, echo=echo) if asked.logprobs and not asked.stream else ask


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body can't be used: {error}") from None


def _words(message: _Message) -> int:
    if message.content is None:
        return 0
    if isinstance(message.content, str):
        return len(message.content.split())
    return sum(len(part.text.split()) for part in message.content)


def _prompt_tokens(prompt: str | list[int | str]) -> int:
    if isinstance(prompt, str):
        return len(prompt.split())
    if not prompt:
        raise ApiError(400, "prompt is empty: send a text or token ids")
    if isinstance(prompt[0], str):
        if len(prompt) > 1:
            raise ApiError(400, "a batch of prompts is not supported: send one prompt a request")
        return len(prompt[0].split())
    return len(prompt)


def _ask(asked: _Body, *, chat: bool, prompt_tokens: int, max_tokens: int | None) -> Ask:
    wanted = DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
    if not 1 <= wanted <= MAX_TOKENS:
        raise ApiError(400, f"max_tokens is {wanted}: it must be from 1 to {MAX_TOKENS}")
    if asked.n not in {None, 1}:
        raise ApiError(400, f"n is {asked.n}: only 1 is supported")
    stream_options = asked.stream_options or _StreamOptions()
    return Ask(
        chat=chat,
        model=asked.model,
        prompt_tokens=prompt_tokens,
        max_tokens=wanted,
        ignore_eos=bool(asked.ignore_eos),
        stream=bool(asked.stream),
        include_usage=stream_options.include_usage,
        usage_every_chunk=stream_options.continuous_usage_stats,
    )
