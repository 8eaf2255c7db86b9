"""One reply on its way: the hot path."""

from __future__ import annotations

from typing import Protocol

from bench.mock.connection import Connection
from bench.mock.emission import Emission
from bench.mock.ledger import Record
from bench.mock.plan import Reply
from bench.mock.schedule import now_ns


class Sender(Protocol):
    """What a stream belongs to."""

    buffered: int
    """Content chunks that the kernel did not take at once, because a client read too slowly: their stamps are early."""
    emission: Emission | None
    """Where tokens are accounted for as they leave; None where nobody asked."""

    def sent_all(self, stream: Stream) -> None:
        """The last byte was written."""
        ...


class Stream:
    """Writes a `Reply` piece by piece and stamps each content chunk."""

    __slots__ = ("_base_ns", "_position", "_sender", "close_after", "connection", "record", "reply")

    def __init__(self, sender: Sender, connection: Connection, reply: Reply, record: Record, *, close_after: bool) -> None:
        self._sender = sender
        self.connection = connection
        self.reply = reply
        self.record = record
        self.close_after = close_after
        self._position = 0
        self._base_ns = 0

    def start(self, admitted_ns: int) -> int | None:
        """Write the opening; returns when the first write is due [ns]."""
        self._base_ns = admitted_ns + self.reply.ttft_ns
        if self.reply.opening:
            self.connection.send(self.reply.opening)
        return self._next_due_ns()

    def write_due(self, due_ns: int) -> int | None:
        """Write what is due; returns when the next write is due [ns], None at the end or when the client has left."""
        reply, position, connection = self.reply, self._position, self.connection
        if connection.on_lost is None or not connection.send(reply.writes[position]):
            return None
        chunks = reply.chunks[position]
        if chunks:
            sent_ns = now_ns()
            if self._sender.emission is not None:
                self._sender.emission.add(sent_ns, self.record.tokens_in_next(chunks))
            self.record.stamps.extend((sent_ns, due_ns) * chunks)
            if connection.buffering:
                self._sender.buffered += chunks
        self._position = position + 1
        return self._next_due_ns()

    def _next_due_ns(self) -> int | None:
        if self._position < len(self.reply.writes):
            return self._base_ns + self.reply.offsets_ns[self._position]
        self._sender.sent_all(self)
        return None
