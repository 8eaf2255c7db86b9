"""Whether a stream has brought its first token yet, told while it comes. Used in warm-up only: it decodes JSON."""

from __future__ import annotations

import zlib

from bench.load.inflate import Coding, Inflater
from bench.load.protocols import WireProtocol
from bench.load.sse import last_complete, split_events


class ContentWatch:
    """Looks for the first content chunk in a stream as it comes."""

    def __init__(self, protocol: WireProtocol) -> None:
        self._protocol = protocol
        self._pending = b""
        self._inflater: Inflater | None = None

    def feed(self, body: bytes, coding: Coding = Coding.IDENTITY) -> bool:
        """True once the stream so far holds a content chunk."""
        if self._inflater is None:
            self._inflater = Inflater(coding)
        try:
            self._pending += self._inflater.feed(body)
        except zlib.error:
            return False
        done = last_complete(self._pending)
        if done == 0:
            return False
        payloads, _ = split_events(self._pending[:done])
        self._pending = self._pending[done:]
        return bool(self._protocol.read(payloads).events)
