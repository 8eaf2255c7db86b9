"""One client connection: HTTP/1.1 in, bytes out, nothing in between."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import httptools

from bench.mock.api import ApiError
from bench.mock.render import plain_response
from bench.records import MISSING

MAX_BODY_B = 64 << 20
MAX_BUFFERED_B = 256 << 20
"""A client that leaves this much unread is cut off [bytes]."""
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. Stamps are monotonic [ns]: its first byte read, its last byte read."""

    method: str
    path: str
    query: str
    authorization: str | None
    body: bytes
    opened_ns: int
    arrived_ns: int
    keep_alive: bool


class Service(Protocol):
    """What answers requests."""

    def received(self, connection: Connection, data: bytes) -> None:
        """Bytes came: stamp them now, hand them to `connection.feed` when there is time."""
        ...

    def handle(self, connection: Connection, request: Request) -> None:
        """Answer one request and call `connection.answered` at its end."""
        ...

    def connected(self, connection: Connection) -> None: ...

    def gone(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """Requests of one connection are answered one after the other."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._fd = MISSING
        self._parser: httptools.HttpRequestParser | None = None
        self._buffering = False
        self._read_ns = self._opened_ns = MISSING
        self._url = b""
        self._authorization: str | None = None
        self._expects_continue = False
        self._body: list[bytes] = []
        self._body_b = 0
        self._waiting: deque[Request] = deque()
        self._busy = False
        self.on_lost: Callable[[], None] | None = None
        """Called when the client leaves before its reply has ended."""

    # --- from the loop ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without deriving from it
        self._socket = transport.get_extra_info("socket")
        self._fd = self._socket.fileno() if self._socket is not None else MISSING
        self._parser = httptools.HttpRequestParser(self)
        self._service.connected(self)

    def data_received(self, data: bytes) -> None:
        self._service.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fd, self._transport, self._parser = MISSING, None, None
        self._waiting.clear()
        lost, self.on_lost = self.on_lost, None
        if lost is not None:
            lost()
        self._service.gone(self)

    def feed(self, data: bytes, read_ns: int) -> None:
        """Parse bytes that were read at `read_ns`."""
        if self._parser is None:
            return
        self._read_ns = read_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(ApiError(400, "upgrades are not supported"))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ApiError) else ApiError(400, f"not HTTP: {error}"))
        else:
            if not self._busy:
                self._next()

    def _refuse(self, error: ApiError) -> None:
        self.send(plain_response(error.status, error.body(), close=True))
        self.close()

    # --- from the parser ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """First byte of a request."""
        self._opened_ns = self._read_ns
        self._url, self._authorization, self._expects_continue = b"", None, False
        self._body, self._body_b = [], 0

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        lowered = name.lower()
        if lowered == b"authorization":
            self._authorization = value.decode("latin-1")
        elif lowered == b"expect":
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """The body may come."""
        if self._expects_continue:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_b += len(body)
        if self._body_b > MAX_BODY_B:
            raise ApiError(413, f"the body is larger than {MAX_BODY_B} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Last byte of a request."""
        assert self._parser is not None
        path, _, query = self._url.decode("latin-1").partition("?")
        # answered by `feed`: an exception inside a callback would look like bad HTTP
        request = Request(
            method=self._parser.get_method().decode("ascii"),
            path=path,
            query=query,
            authorization=self._authorization,
            body=b"".join(self._body),
            opened_ns=self._opened_ns,
            arrived_ns=self._read_ns,
            keep_alive=self._parser.should_keep_alive(),
        )
        self._waiting.append(request)

    # --- to the client ------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> bool:
        """Hand `data` to the kernel now; what it does not take is left to the transport. False when nobody listens.

        `transport.write` of uvloop waits for the end of the loop's turn, which may be hundreds of streams later: a stamp
        taken after it would be too early.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if self._buffering:
            self._buffering = transport.get_write_buffer_size() > 0
        if self._buffering:
            self._send_buffered(transport, data)
            return True
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            transport.abort()
            return False
        if written < len(data):
            self._send_buffered(transport, data[written:])
        return True

    def _send_buffered(self, transport: asyncio.Transport, data: bytes) -> None:
        self._buffering = True
        transport.write(data)
        if transport.get_write_buffer_size() > MAX_BUFFERED_B:
            transport.abort()

    @property
    def buffering(self) -> bool:
        """Whether the client reads more slowly than we send."""
        return self._buffering

    def answered(self, *, close: bool) -> None:
        """The reply has ended."""
        self.on_lost = None
        self._busy = False
        if close:
            self.close()
        elif self._waiting:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._busy = bool(self._waiting)
        if self._waiting:
            self._service.handle(self, self._waiting.popleft())

    def close(self) -> None:
        """End the connection once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        if self._transport is not None:
            if self._socket is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
            self._transport.abort()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()
