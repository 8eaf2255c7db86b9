"""One keep-alive HTTP/1.1 connection that stamps and keeps what it reads: the hot path of the whole lab.

A read costs one clock call, one pass of `httptools` and two appends. Nothing is decoded here: bodies go to the spill in
blocks and are parsed after the measurement. Everything that is not once per read may be slower.
"""

from __future__ import annotations

import asyncio
import socket
from array import array
from time import perf_counter_ns
from typing import Protocol, cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from bench.load.inflate import Coding, coding_of
from bench.load.spill import End, Sink
from bench.load.watch import ContentWatch
from bench.records import MISSING

_IDLE_CLOSE_NS = 1_000_000_000
"""A kept connection that is lost this soon after a request went into it had been closed before; later, the request is lost."""


_UNASKED = "the server sent an answer that nobody had asked for"


class _StrayError(Exception):
    """Ends the parsing of bytes that no request has asked for."""


class Owner(Protocol):
    """Who a connection works for."""

    @property
    def sink(self) -> Sink: ...

    def ended(self, connection: Connection, end: End, *, reusable: bool) -> None:
        """The request on `connection` is over; `reusable` where the next can go out on it."""
        ...

    def unanswered(self, connection: Connection) -> None:
        """An idle connection turned out to be closed by the server: the request on it was never answered. Send it anew."""
        ...

    def first_content(self, connection: Connection) -> None:
        """The first token of a watched request has arrived."""
        ...


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    __slots__ = (
        "_awaiting",
        "_close_delimited",
        "_content_coding",
        "_feed",
        "_location",
        "_marked_b",
        "_parser",
        "_sock",
        "_stray",
        "_transport",
        "body",
        "coding",
        "dead",
        "ends",
        "in_flight",
        "now_ns",
        "on_body",
        "opened_ns",
        "owner",
        "payload",
        "reads",
        "request",
        "retry_after_s",
        "scheduled_ns",
        "sent_ns",
        "served",
        "slot",
        "stamps",
        "status",
        "watch",
    )  # fmt: skip

    def __init__(self, owner: Owner, sock: socket.socket, *, tls: bool) -> None:
        self.owner = owner
        self._sock = None if tls else sock
        self._transport: asyncio.Transport | None = None
        # packed, and the body's bytes copied at once: small objects kept for a second would spread over megabytes of cache
        self.stamps = array("q")
        self.ends = array("I")
        self.body = bytearray()
        self._marked_b = 0
        self.on_body = self.body.extend  # what the parser calls: no Python in between
        self._parser = HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self.now_ns = self.opened_ns = self.sent_ns = self.scheduled_ns = MISSING
        self.request = self.status = MISSING
        self.reads = self.served = 0
        self.payload = b""
        self.slot = 0
        self.in_flight = self.dead = self._awaiting = self._close_delimited = self._stray = False
        self.watch: ContentWatch | None = None
        self._forget_headers()

    # --- sending

    def send(self, request: int, payload: bytes, scheduled_ns: int, sent_ns: int | None = None) -> int:
        """Put a request on the wire; returns `sent_ns`. `sent_ns` is given where the request was tried before: its time runs
        from the first try on.
        """
        self.request, self.payload, self.scheduled_ns = request, payload, scheduled_ns
        self.opened_ns = self.status = MISSING
        self.in_flight = self._awaiting = True
        self._close_delimited = False
        self._forget_headers()
        now = perf_counter_ns()
        self.sent_ns = now if sent_ns is None else sent_ns
        if not self.dead and self._unread():
            self._stray = True
        if self._stray or self.dead:
            asyncio.get_running_loop().call_soon(self._refuse, request)  # not now: our caller has yet to book it as sent
        else:
            self._write(payload)
        return self.sent_ns

    def _unread(self) -> bool:
        """Whether bytes lie here before the request goes out: they can't be its answer."""
        if self._sock is None:
            return False
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _refuse(self, request: int) -> None:
        """End a request that was never written: its connection had become useless."""
        if not self.in_flight or self.request != request:
            return
        self.now_ns = perf_counter_ns()
        if self._stray:
            self._not_http(_UNASKED)
        else:
            self._finish(End.CONNECT, reusable=False, error="connection lost before the request was sent: closed by the server")

    def _write(self, payload: bytes) -> None:
        transport = self._transport
        assert transport is not None
        # past the transport where possible: it would hold the bytes until the end of the loop's round
        if self._sock is not None and not transport.get_write_buffer_size():
            try:
                payload = payload[self._sock.send(payload) :]
            except BlockingIOError:
                pass
            except OSError:
                return  # the transport will report it as a lost connection
        if payload:
            transport.write(payload)

    # --- the hot path

    def data_received(self, data: bytes) -> None:
        self.now_ns = perf_counter_ns()
        if not self.in_flight or self._stray:
            self._stray = True
            self.close()
            return
        try:
            self._feed(data)
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, _StrayError):
                raise error.__context__ or error from None  # not the server's doing
            self._not_http(_UNASKED)
        except HttpParserError as error:
            self._not_http(f"the answer is not HTTP: {error}")
        except HttpParserUpgrade:
            self._not_http("the answer is not HTTP: the server switched protocols")
        size_b = len(self.body)
        if size_b != self._marked_b:
            if self.watch is not None:
                self._look()
            self.stamps.append(self.now_ns)
            self.ends.append(size_b)
            self._marked_b = size_b

    # --- once a request

    def on_message_begin(self) -> None:
        if not self.in_flight or self.now_ns < self.sent_ns:  # read before the request was sent
            self._stray = True
            raise _StrayError
        self._awaiting = False
        self._close_delimited = True

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-length" | b"transfer-encoding":
                self._close_delimited = False
            case b"content-encoding":
                self.coding, self._content_coding = coding_of(value), value
            case b"retry-after" if value.isdigit():  # the other form is a date: it would tie us to the server's clock
                self.retry_after_s = float(value)
            case b"location":
                self._location = value

    def _forget_headers(self) -> None:
        self.coding = Coding.IDENTITY
        self.retry_after_s = 0.0
        self._location = self._content_coding = b""

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.opened_ns = self.now_ns

    def on_message_complete(self) -> None:
        if self.status < 200:  # 100 Continue, 103 Early Hints: the answer is still to come
            self._awaiting, self.status, self.opened_ns = True, MISSING, MISSING
            self._forget_headers()
        elif self.in_flight:
            reusable = self._parser.should_keep_alive()
            if not reusable:
                self.close()
            self._finish(End.COMPLETE, reusable=reusable, error=self._said_by_headers())

    def _said_by_headers(self) -> str | None:
        """What is wrong with an answer beside its body."""
        if 300 <= self.status < 400 and self._location:
            where = self._location.partition(b"?")[0][:200].decode("latin-1")
            return f"HTTP {self.status}: it redirects to {where}"
        if self.coding is Coding.OTHER:
            return f"the answer is compressed as {self._content_coding[:40].decode('latin-1')}, which nobody asked for"
        return None

    def _look(self) -> None:
        """Is the first token in what this read has brought?"""
        if self.watch is not None and self.status == 200 and self.watch.feed(bytes(self.body[self._marked_b :]), self.coding):
            self.watch = None
            self.owner.first_content(self)

    def flush(self) -> None:
        """Hand what was read since the last flush to the spill."""
        if self.body:
            if len(self.body) != self._marked_b:  # the answer has ended, in the midst of the read that brought its last part
                if self.watch is not None:
                    self._look()
                self.stamps.append(self.now_ns)
                self.ends.append(len(self.body))
            self.reads += len(self.stamps)
            self.owner.sink.data(self.request, self.stamps, self.ends, self.body)
            del self.stamps[:], self.ends[:], self.body[:]
            self._marked_b = 0

    def give_up(self, end: End) -> None:
        """Close the connection under a request that has run out of time, or that nobody waits for."""
        self.now_ns = perf_counter_ns()
        self.close()
        self._finish(end, reusable=False)

    def close(self) -> None:
        """Let go of the connection at once."""
        self.dead = True
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, end: End, *, reusable: bool, error: str | None = None) -> None:
        self.flush()
        status = max(self.status, 0)
        self.owner.sink.end(self.request, self.opened_ns, self.now_ns, end, status=status, error=error, coding=self.coding)
        self.in_flight = False
        self.served += 1
        self.owner.ended(self, end, reusable=reusable)

    def _not_http(self, problem: str) -> None:
        self.close()
        if self.in_flight:
            self._finish(End.NOT_HTTP, reusable=False, error=problem)

    # --- once a connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        self.dead = True
        if not self.in_flight:
            return
        self.now_ns = perf_counter_ns()
        was_idle = self.served > 0 and self.now_ns - self.sent_ns < _IDLE_CLOSE_NS
        if self._awaiting and was_idle and (exc is None or isinstance(exc, ConnectionError)):
            self.in_flight = False
            self.owner.unanswered(self)
        elif self._awaiting:
            self._finish(End.CONNECT, reusable=False, error=f"connection lost before any answer: {exc or 'closed by the server'}")
        elif exc is None and self._close_delimited and self.status != MISSING:
            self._finish(End.COMPLETE, reusable=False)
        else:
            self._finish(End.BROKEN, reusable=False, error=f"connection lost in mid-answer: {exc or 'closed by the server'}")
