"""From the raw bytes of one request to its chunks, counts and outcome. Pure: runs after the measurement."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from bench.load.inflate import Coding, inflate
from bench.load.protocols.base import Answer, Usage, WireProtocol, error_text, printable, utf8_size
from bench.load.retokenize import Retokenizer
from bench.load.spill import End
from bench.load.sse import split_events
from bench.records import MISSING, IntArray, Outcome

_EMPTY = np.zeros(0, np.int64)
_BY_END = {
    End.CONNECT: Outcome.CONNECT,
    End.NOT_HTTP: Outcome.PROTOCOL,
    End.TIMEOUT: Outcome.TIMEOUT,
    End.CANCELLED: Outcome.CANCELLED,
    None: Outcome.CANCELLED,
}
MOST_TOKENS = 1 << 53
"""No count of tokens is above what a JSON number holds exactly."""
_LATE = "the answer was not complete when its time was up (request_timeout)"
_BROKEN = "the connection ended in mid-answer"


@dataclass(slots=True, kw_only=True)
class ParsedRequest:
    """What one request's body holds: stamps [ns], `ChunkKind`, tokens and UTF-8 bytes per content chunk, and the verdict.
    `retokenized`: output tokens that were counted in its text, MISSING where the server told them or nobody counted.
    """

    chunk_ns: IntArray
    chunk_kind: IntArray
    chunk_tokens: IntArray
    chunk_bytes: IntArray
    outcome: Outcome
    error: str | None
    finish_reason: str | None
    usage: Usage | None
    retokenized: int = MISSING


def parse_request(
    protocol: WireProtocol,
    body: bytes,
    stamps_ns: IntArray,
    ends_b: IntArray,
    *,
    end: End | None,
    status: int,
    error: str | None = None,
    asked_tokens: int = 1,
    coding: Coding = Coding.IDENTITY,
    retokenizer: Retokenizer | None = None,
) -> ParsedRequest:
    """Chunks and outcome of one request.

    `stamps_ns[i]` is when the piece of the body that ends at offset `ends_b[i]` was read; an event is stamped with the read
    that brought its last byte. `end` None: it was never seen to end. `coding` is how the body was compressed. `retokenizer`
    counts the tokens of a good answer whose server told no count.
    """
    if coding is Coding.OTHER:
        return _without_chunks(Outcome.PROTOCOL, error or "the answer is compressed in a way that can't be read")
    if coding is not Coding.IDENTITY:
        try:
            body, ends_b = inflate(body, ends_b, coding)
        except zlib.error as problem:
            return _without_chunks(Outcome.PROTOCOL, f"the answer can't be decompressed: {problem}")
    if status not in (200, MISSING):
        verdict = _BY_END.get(end, Outcome.HTTP)
        return _without_chunks(verdict, error or f"HTTP {status}: {error_text(body) or printable(body) or 'empty body'}")
    if body[:64].lstrip()[:1] == b"{":
        return _parse_whole(protocol, body, end, error, asked_tokens=asked_tokens, retokenizer=retokenizer)
    payloads, offsets = split_events(body)
    answer = _bounded(protocol.read(payloads))
    outcome, reason = _judge(answer, payloads, body, end, asked_tokens)
    retokenized = _retokenize(answer, retokenizer) if outcome is Outcome.OK else MISSING
    if answer.events:
        at = offsets[np.array(answer.events, dtype=np.int64)]
        reads = np.searchsorted(ends_b, at)
        stamps = stamps_ns[np.minimum(reads, len(stamps_ns) - 1)]
    else:
        stamps = _EMPTY
    return ParsedRequest(
        chunk_ns=stamps,
        chunk_kind=np.array(answer.kinds, dtype=np.int64),
        chunk_tokens=np.array(answer.tokens, dtype=np.int64),
        chunk_bytes=np.array([utf8_size(text) for text in answer.texts], dtype=np.int64),
        outcome=outcome,
        error=error or reason,
        finish_reason=answer.finish_reason,
        usage=answer.usage,
        retokenized=retokenized,
    )


def _retokenize(answer: Answer, retokenizer: Retokenizer | None) -> int:
    """Count what the server did not, per chunk and in all; MISSING where it did, or where there is nobody to count."""
    told = answer.usage is not None and answer.usage.completion_tokens is not None
    if retokenizer is None or told or not answer.texts or any(count != MISSING for count in answer.tokens):
        return MISSING
    answer.tokens = retokenizer.per_chunk(answer.texts)
    return sum(answer.tokens)


def _bounded(answer: Answer) -> Answer:
    """`answer` without counts that can't be counts: they are missing then, and the answer is malformed."""
    usage = answer.usage
    named = {} if usage is None else named_counts(usage)
    wrong = {name: count for name, count in named.items() if count is not None and not 0 <= count <= MOST_TOKENS}
    if wrong:
        name, count = next(iter(wrong.items()))
        answer.usage = None
        answer.malformed = answer.malformed or f"usage can't be right: {name} is {_brief(count)}"
    if any(not MISSING <= count <= MOST_TOKENS for count in answer.tokens):
        answer.tokens = [count if MISSING <= count <= MOST_TOKENS else MISSING for count in answer.tokens]
        answer.malformed = answer.malformed or "the tokens of its events can't be right: one has more than any server can count"
    return answer


def _brief(count: int) -> str:
    return str(count) if abs(count) < 1 << 64 else f"a number of {len(f'{abs(count):x}') * 4} bits"


def named_counts(usage: Usage) -> dict[str, int | None]:
    """Every number of a usage, in the order of the log's columns."""
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": prompt.cached_tokens if prompt else None,
        "reasoning_tokens": completion.reasoning_tokens if completion else None,
    }


def _judge(answer: Answer, payloads: list[bytes], body: bytes, end: End | None, asked_tokens: int) -> tuple[Outcome, str | None]:
    """Most telling reason first: the server's own error, then how the wire ended, then what is missing."""
    if end == End.BROKEN and answer.done:
        end = End.COMPLETE  # all was said; only the framing's last bytes are missing
    if answer.stream_error is not None and end in (End.COMPLETE, End.BROKEN):
        return Outcome.STREAM_ERROR, answer.stream_error
    if end in _BY_END:
        return _BY_END[end], _LATE if end == End.TIMEOUT else None
    if end == End.BROKEN:
        return Outcome.TRUNCATED, _BROKEN
    if answer.malformed is not None:
        return Outcome.PROTOCOL, answer.malformed
    if body.strip() and not payloads and b":" not in body[:1]:
        return Outcome.PROTOCOL, f"the answer is not an event stream: {printable(body)}"
    return _judge_complete(answer, asked_tokens, silent=not payloads)


def _judge_complete(answer: Answer, asked_tokens: int, *, silent: bool) -> tuple[Outcome, str | None]:
    if not (answer.done or answer.unmarked_end or answer.finish_reason is not None or silent):
        return Outcome.TRUNCATED, "the stream ended with neither a finish reason nor [DONE]"
    if asked_tokens > 0 and not answer.events and not _counted_tokens(answer.usage):
        return Outcome.EMPTY, "the answer holds no token"
    return Outcome.OK, None


def _counted_tokens(usage: Usage | None) -> bool:
    """True where the server counts tokens that it never streamed (hidden reasoning). One token is only the end-of-text."""
    return usage is not None and (usage.completion_tokens or 0) > 1


def _parse_whole(
    protocol: WireProtocol, body: bytes, end: End | None, error: str | None, *, asked_tokens: int, retokenizer: Retokenizer | None
) -> ParsedRequest:
    """A JSON reply in place of a stream: nothing can be said of its first token, so it has no chunks."""
    if end not in (End.COMPLETE, End.BROKEN):
        return _without_chunks(_BY_END[end], error)
    server_error = error_text(body)
    if server_error is not None:
        return _without_chunks(Outcome.STREAM_ERROR, server_error)
    if end == End.BROKEN:
        return _without_chunks(Outcome.TRUNCATED, error or _BROKEN)
    answer = _bounded(protocol.whole(body))
    if answer.malformed is not None:
        return _without_chunks(Outcome.PROTOCOL, answer.malformed)
    parsed = _without_chunks(Outcome.OK, None)
    if asked_tokens > 0 and not answer.events and not _counted_tokens(answer.usage):
        parsed = _without_chunks(Outcome.EMPTY, "the answer holds no token")
    parsed.finish_reason, parsed.usage = answer.finish_reason, answer.usage
    parsed.retokenized = _retokenize(answer, retokenizer)
    return parsed


def _without_chunks(outcome: Outcome, error: str | None) -> ParsedRequest:
    return ParsedRequest(
        chunk_ns=_EMPTY,
        chunk_kind=_EMPTY,
        chunk_tokens=_EMPTY,
        chunk_bytes=_EMPTY,
        outcome=outcome,
        error=error,
        finish_reason=None,
        usage=None,
    )
