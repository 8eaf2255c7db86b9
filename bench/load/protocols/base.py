"""What a wire protocol is, and how streamed events fold into an answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from bench.records import MISSING, Case, Target

Content = tuple[int, str]
"""`ChunkKind` and text of a chunk."""

ERROR_TEXT_LIMIT = 300
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no JSON, or JSON nested too deeply."""


class PromptDetails(msgspec.Struct, gc=False):
    """Part of `usage`."""

    cached_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    """Part of `usage`."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts, as the server says them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


def usage_of(prompt: int | None, completion: int | None, cached: int | None = None) -> Usage | None:
    """Counts that a server of another protocol gave, None where it gave none."""
    if prompt is None and completion is None:
        return None
    details = None if cached is None else PromptDetails(cached)
    return Usage(prompt, completion, details)


@dataclass(slots=True, kw_only=True)
class Answer:
    """What the events of one request say. `events` indexes the event of each content chunk; `tokens` is `MISSING` where the
    server did not tell them per chunk.
    """

    events: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    usage: Usage | None = None
    finish_reason: str | None = None
    stream_error: str | None = None
    malformed: str | None = None
    done: bool = False
    unmarked_end: bool = False
    """The protocol marks no end of its own: a stream is whole when its HTTP message is."""


class WireProtocol(Protocol):
    """How requests are written and events are read. Each protocol is one module."""

    takes_token_ids: bool
    versioned: bool
    """Whether its paths stand under the API version (`/v1`), or at the server's root."""

    def path(self, target: Target, *, stream: bool = True) -> str:
        """Appended to the target's base URL, with its API version or without (`versioned`)."""
        ...

    def body(self, target: Target, case: Case, prompt: str | list[int], output_tokens: int, *, exact: bool) -> dict[str, Any]:
        """The JSON of one request; `prompt` is put in as it is."""
        ...

    def read(self, payloads: Sequence[bytes]) -> Answer:
        """Fold all payloads of a stream into an answer. Never raises: what can't be read is `malformed`."""
        ...

    def whole(self, reply: bytes) -> Answer:
        """Read a reply that was not streamed, a JSON object, as if it were the only event of a stream. Never raises."""
        ...


class EventLike(Protocol):
    """What `fold` needs of an event."""

    @property
    def choices(self) -> Sequence[Any] | None: ...

    usage: Usage | None


def fold(events: Iterable[EventLike], content_of: Callable[[Any], Content | None], answer: Answer) -> None:
    """Add events to `answer`. Tokens of a chunk: its token ids, else the growth of cumulative usage since the last chunk."""
    counted: int | None = 0  # cumulative tokens at the last content chunk; None once a chunk came without usage
    held = 0  # ids that came without text (half a character): their token shows in the next chunk
    for index, event in enumerate(events):
        usage = event.usage
        if usage is not None:
            answer.usage = usage
        if not event.choices:
            continue
        choice = event.choices[0]
        if choice.finish_reason is not None:
            answer.finish_reason = choice.finish_reason
        content = content_of(choice)
        ids = len(choice.token_ids) if choice.token_ids else 0
        if content is None:
            held += ids
            continue
        total = usage.completion_tokens if usage is not None else None
        answer.events.append(index)
        answer.kinds.append(content[0])
        answer.texts.append(content[1])
        answer.tokens.append(held + ids if ids else growth(total, counted))
        counted, held = total, 0


def growth(total: int | None, counted: int | None) -> int:
    """Tokens between two cumulative counts, `MISSING` where one of them is not told."""
    if total is None or counted is None or total < counted:
        return MISSING
    return total - counted


def utf8_size(text: str) -> int:
    """Bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


Fold = Callable[[Sequence[Any], Answer], None]
"""Adds decoded events to an answer."""


def read_events(payloads: Sequence[bytes], decoder: msgspec.json.Decoder[Any], fold_events: Fold) -> Answer:
    """Decode and fold an event stream. `decoder` takes a JSON array of events: one call per request, not one per event."""
    answer = Answer()
    count = len(payloads)
    if count and payloads[-1] == b"[DONE]":
        answer.done = True
        count -= 1
    joined = b"[" + b",".join(payloads[:count]) + b"]"
    if b'"error"' not in joined and b"[DONE]" not in joined:
        try:
            events = decoder.decode(joined)
        except _UNREADABLE:
            pass  # one bad event: read them one by one to keep those before it
        else:
            if len(events) == count:
                fold_events(events, answer)
                return answer
    return _read_one_by_one(payloads, decoder, fold_events)


def _read_one_by_one(payloads: Sequence[bytes], decoder: msgspec.json.Decoder[Any], fold_events: Fold) -> Answer:
    answer = Answer()
    events: list[Any] = []
    for payload in payloads:
        text = payload.strip()
        if text == b"[DONE]":
            answer.done = True
            break
        answer.stream_error = error_text(text)
        if answer.stream_error is not None:
            break
        try:
            events.extend(decoder.decode(b"[" + (text or b"{}") + b"]"))
        except _UNREADABLE as error:
            answer.malformed = f"event {len(events)} can't be read ({error}): {printable(payload)}"
            break
    fold_events(events, answer)
    return answer


def read_openai(
    payloads: Sequence[bytes], decoder: msgspec.json.Decoder[Any], content_of: Callable[[Any], Content | None]
) -> Answer:
    """Fold an OpenAI event stream."""
    return read_events(payloads, decoder, lambda events, answer: fold(events, content_of, answer))


def error_text(payload: bytes) -> str | None:
    """The server's own words where a JSON object is an error (`{"error": ...}`, `{"object": "error", ...}`), else None."""
    if b'"error"' not in payload:
        return None
    try:
        value = msgspec.json.decode(payload)
    except _UNREADABLE:
        return None
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if error is None and value.get("object") == "error":
        error = value
    if error is None or error is False:
        return None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return clip(error["message"])
    return clip(error if isinstance(error, str) else msgspec.json.encode(error).decode())


def clip(text: str) -> str:
    """At most `ERROR_TEXT_LIMIT` characters, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= ERROR_TEXT_LIMIT else flat[: ERROR_TEXT_LIMIT - 3] + "..."


def printable(data: bytes) -> str:
    """Bytes as text for a message."""
    return clip(data[:ERROR_TEXT_LIMIT].decode("utf-8", "replace"))
