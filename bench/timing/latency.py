"""Latencies from events, in ms. One function a metric; each gives NaN where the metric is undefined for a request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.records import MISSING, ChunkKind, EventLog, FloatArray, IntArray, Outcome
from bench.timing.population import BoolArray
from bench.timing.tokens import Tokens
from bench.units import NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentStamps:
    """First and last content chunk, and first answer chunk, of each request [ns]; MISSING where there is none.

    `whole_ns`: when a reply that came in one piece, not streamed, was there. It says nothing of a first token.
    """

    first_ns: IntArray
    last_ns: IntArray
    first_answer_ns: IntArray
    whole_ns: IntArray
    first_chunk: IntArray
    """Index of each request's first chunk, MISSING where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Gaps [ms] with the request that each belongs to and, for tokens, how many tokens ended it."""

    ms: FloatArray
    request: IntArray
    tokens: IntArray


def content_stamps(log: EventLog) -> ContentStamps:
    """When each request's content began and ended. Chunks are grouped by request and in time order."""
    n = len(log)
    first_ns, last_ns = np.full(n, MISSING, dtype=np.int64), np.full(n, MISSING, dtype=np.int64)
    first_chunk, answer_ns = np.full(n, MISSING, dtype=np.int64), np.full(n, MISSING, dtype=np.int64)
    owner = log.chunk_request
    if len(owner):
        starts = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
        ends = np.concatenate((starts[1:] - 1, [len(owner) - 1]))
        first_chunk[owner[starts]] = starts
        first_ns[owner[starts]] = log.chunk_ns[starts]
        last_ns[owner[ends]] = log.chunk_ns[ends]
        answers = np.flatnonzero(log.chunk_kind != ChunkKind.REASONING)[::-1]
        answer_ns[owner[answers]] = log.chunk_ns[answers]  # of repeated indices the last write stays: the earliest chunk
    return ContentStamps(
        first_ns=first_ns,
        last_ns=last_ns,
        first_answer_ns=answer_ns,
        whole_ns=np.where(_whole(log, first_chunk), log.closed_ns, MISSING),
        first_chunk=first_chunk,
    )


def _whole(log: EventLog, first_chunk: IntArray) -> BoolArray:
    """Replies that were not streamed: complete, tokens were asked for, and no chunk came. One of nothing but hidden reasoning
    shows no content at all.
    """
    shown = (log.output_tokens == MISSING) | (log.output_tokens > np.maximum(log.reasoning_tokens, 0))
    return np.asarray((log.outcome == Outcome.OK) & (first_chunk == MISSING) & (log.output_requested != 0) & shown)


def _between_ms(later_ns: IntArray, earlier_ns: IntArray) -> FloatArray:
    known = (later_ns != MISSING) & (earlier_ns != MISSING)
    return np.where(known, (later_ns - earlier_ns) / NS_PER_MS, np.nan)


def ttft_ms(log: EventLog, stamps: ContentStamps) -> FloatArray:
    """Time to first token [ms]: first content chunk - sent."""
    return _between_ms(stamps.first_ns, log.sent_ns)


def ttft_scheduled_ms(log: EventLog, stamps: ContentStamps) -> FloatArray:
    """Time to first token [ms] from when the request was due: hides no wait of the client (coordinated omission)."""
    return _between_ms(stamps.first_ns, log.scheduled_ns)


def wait_ms(log: EventLog) -> FloatArray:
    """How long a request waited in the client [ms]: sent - scheduled."""
    return _between_ms(log.sent_ns, log.scheduled_ns)


def ttfat_ms(log: EventLog, stamps: ContentStamps) -> FloatArray:
    """Time to first answer token [ms]: first chunk that isn't reasoning - sent."""
    return _between_ms(stamps.first_answer_ns, log.sent_ns)


def e2e_ms(log: EventLog, stamps: ContentStamps) -> FloatArray:
    """End-to-end latency [ms]: last content chunk - sent. A trailing usage chunk or `[DONE]` doesn't count. The content of a
    reply that was not streamed is there when the reply is.
    """
    return _between_ms(np.where(stamps.last_ns != MISSING, stamps.last_ns, stamps.whole_ns), log.sent_ns)


def came_at_once(tokens: Tokens, stamps: ContentStamps) -> BoolArray:
    """Replies of several chunks that one read brought: what lies between their tokens can't be seen, and is not 0."""
    return np.asarray((tokens.chunks > 1) & (stamps.first_ns != MISSING) & (stamps.last_ns <= stamps.first_ns))


def tpot_ms(tokens: Tokens, stamps: ContentStamps) -> FloatArray:
    """Time per output token [ms]: (last content - first content) / (n_out - k1).

    k1 = tokens in the first chunk when known, else 1. A textless stop token arrives in no chunk, so it isn't in n_out here.
    Undefined for n_out <= k1, an unknown n_out, a reply that came in one read, or reasoning that usage counts but the stream
    never showed.
    """
    head = tokens.per_chunk_known & (stamps.first_chunk != MISSING)
    k1 = np.ones(len(tokens.n_out))
    k1[head] = tokens.per_chunk[stamps.first_chunk[head]]
    counted = np.where((tokens.n_out > 0) & ~tokens.hidden, tokens.delivered, np.nan)
    rest = counted - k1
    defined = (stamps.first_ns != MISSING) & (rest > 0) & ~came_at_once(tokens, stamps)  # a comparison with NaN is False
    return np.where(defined, (stamps.last_ns - stamps.first_ns) / NS_PER_MS / np.where(defined, rest, 1.0), np.nan)


def tok_per_s_per_user(tpot: FloatArray) -> FloatArray:
    """Streaming speed that one user sees [tok/s]: 1000 / TPOT."""
    return np.where(tpot > 0, 1000.0 / np.where(tpot > 0, tpot, 1.0), np.nan)


def icl_ms(log: EventLog, of: BoolArray) -> Gaps:
    """Inter-chunk latency [ms]: every gap between consecutive content chunks of the requests `of`. Stalls show here."""
    return _gaps(log, of[log.chunk_request], np.ones(len(log.chunk_ns), dtype=np.int64))


def itl_ms(log: EventLog, tokens: Tokens, of: BoolArray) -> Gaps:
    """Inter-token latency [ms]: gap / k, to be weighted by k, for the requests `of` whose tokens per chunk are known."""
    keep = (of & tokens.per_chunk_known)[log.chunk_request]
    keep &= tokens.per_chunk > 0  # a chunk of no token ends no token's wait: its gap belongs to the next one
    k = np.where(keep, tokens.per_chunk, 1.0).astype(np.int64)
    gaps = _gaps(log, keep, k)
    return Gaps(ms=gaps.ms / gaps.tokens, request=gaps.request, tokens=gaps.tokens)


def _gaps(log: EventLog, keep: BoolArray, tokens: IntArray) -> Gaps:
    owner, stamp_ns, k = log.chunk_request[keep], log.chunk_ns[keep], tokens[keep]
    same = owner[1:] == owner[:-1]
    return Gaps(ms=np.diff(stamp_ns)[same] / NS_PER_MS, request=owner[1:][same], tokens=k[1:][same])
