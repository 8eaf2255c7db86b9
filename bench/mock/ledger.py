"""What the mock engine keeps of every request it answered: stamps in compact columns, bounded in memory."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from bench.records import MISSING, IntArray

SEGMENT_CHUNKS = 1 << 18
"""Chunks in a segment; the oldest segment is let go as a whole."""


class Column(IntEnum):
    """Columns of a request row. Stamps are monotonic [ns]."""

    OPENED = 0
    """First byte of the request read."""
    ARRIVED = 1
    """Last byte of the request read."""
    ENDED = 2
    """Last byte of the reply written, or the connection gone; MISSING while it runs."""
    COMPLETE = 3
    """1 when the whole reply was sent."""
    STREAMED = 4
    CHUNKS = 5
    """Content chunks sent so far."""
    TOKENS = 6
    """Tokens of the whole reply."""
    TOKENS_PER_CHUNK = 7
    PROMPT_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Requests (n x columns) and, in the same order, their content chunks: when each was written and when it was due [ns]."""

    requests: IntArray
    sent_ns: IntArray
    due_ns: IntArray


@dataclass(slots=True)
class Record:
    """One request. The hot path appends `sent_ns`, `due_ns` of each content chunk to `stamps`."""

    opened_ns: int
    arrived_ns: int
    streamed: bool
    tokens: int
    tokens_per_chunk: int
    prompt_tokens: int
    ended_ns: int = MISSING
    complete: bool = False
    stamps: array[int] = field(default_factory=lambda: array("q"))

    def row(self) -> tuple[int, ...]:
        """The values in the order of `Column`."""
        chunks = len(self.stamps) // 2
        flags = (int(self.complete), int(self.streamed))
        return (
            self.opened_ns, self.arrived_ns, self.ended_ns, *flags, chunks, self.tokens, self.tokens_per_chunk, self.prompt_tokens
        )  # fmt: skip

    def tokens_sent(self) -> int:
        """Tokens sent so far."""
        return min(self.tokens, self.tokens_per_chunk * (len(self.stamps) // 2))

    def tokens_in_next(self, chunks: int) -> int:
        """Tokens in the next `chunks`: the last chunk of a reply may hold fewer than the others."""
        return min(self.tokens, self.tokens_per_chunk * (len(self.stamps) // 2 + chunks)) - self.tokens_sent()


@dataclass(slots=True)
class _Segment:
    requests: array[int] = field(default_factory=lambda: array("q"))
    stamps: array[int] = field(default_factory=lambda: array("q"))
    last_ns: int = 0


class Ledger:
    """Keeps the stamps of at least the last `max_chunks` content chunks; `forgotten_ns` tells what is lost before it."""

    def __init__(self, max_chunks: int, segment_chunks: int = SEGMENT_CHUNKS) -> None:
        self._max_segments = -(-max_chunks // segment_chunks) + 1
        self._segment_chunks = segment_chunks
        self._segments: deque[_Segment] = deque([_Segment()])
        self._live: dict[int, Record] = {}
        self.forgotten_ns = MISSING
        """Everything that ended after this is still here [ns]; MISSING when nothing was let go."""

    def open(self, record: Record) -> None:
        """A request came."""
        self._live[id(record)] = record

    def close(self, record: Record) -> None:
        """A request ended (its `ended_ns` is set)."""
        if self._live.pop(id(record), None) is None:
            return
        segment = self._segments[-1]
        segment.requests.extend(record.row())
        segment.stamps.extend(record.stamps)
        segment.last_ns = max(segment.last_ns, record.ended_ns)
        full = len(segment.stamps) >= 2 * self._segment_chunks or len(segment.requests) >= len(Column) * self._segment_chunks
        if full:
            self._segments.append(_Segment())
            if len(self._segments) > self._max_segments:
                self.forgotten_ns = max(self.forgotten_ns, self._segments.popleft().last_ns)

    def running_tokens(self) -> int:
        """Tokens sent by requests that still run."""
        return sum(record.tokens_sent() for record in self._live.values())

    def since(self, from_ns: int) -> Rows:
        """A copy of all that ended at or after `from_ns` or still runs (older rows may be among them)."""
        requests, stamps = array("q"), array("q")
        for segment in self._segments:
            if segment.last_ns >= from_ns:
                requests.extend(segment.requests)
                stamps.extend(segment.stamps)
        for record in self._live.values():
            requests.extend(record.row())
            stamps.extend(record.stamps)
        pairs = np.frombuffer(stamps, dtype=np.int64).reshape(-1, 2)
        rows = np.frombuffer(requests, dtype=np.int64).reshape(-1, len(Column))
        return Rows(requests=rows, sent_ns=pairs[:, 0], due_ns=pairs[:, 1])
