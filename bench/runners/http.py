"""A GET for readiness, settings and counters, a POST for a first token: never for load. Standard library only.

A failure is a value, not an exception: the caller knows what it means for a starting engine or for an attached endpoint.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit

from bench.proxy import Proxy, proxy_for
from bench.unix_http import UnixConnection
from bench.unix_url import parse_unix

_LIMIT_B = 16 << 20
_PIECE_B = 1 << 16
Kind = Literal["missing", "denied", "refused", "timeout", "dns", "tls", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer of any status."""

    status: int
    body: bytes
    location: str | None = None

    def json(self) -> Any:
        """The decoded body, None where it is not JSON or is nested too deeply to be an honest answer. Every text in it can be
        encoded: halves of surrogate pairs are replaced.
        """
        try:
            return _encodable(json.loads(self.body))
        except (ValueError, RecursionError):
            return None

    def json_object(self) -> dict[str, Any]:
        """The decoded body where the status is 200 and it is an object, else an empty one."""
        found = self.json() if self.status == 200 else None
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """No HTTP answer at all, and why. `missing`: the socket file of a `unix:` URL; `denied`: by the system, to this user.
    `proxy`: what stood between and may be the one to blame.
    """

    kind: Kind
    detail: str
    proxy: str | None = None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could carry the key to another host: it is reported instead."""

    def redirect_request(self, *_: object) -> None:
        return None


def get(url: str, *, timeout_s: float = 5.0, headers: Mapping[str, str] | None = None) -> Answer | NoAnswer:
    """GET `url` (http, https, unix) within `timeout_s` [s], from the look-up of the name to the last byte. Proxies of the
    environment are used, but never for loopback and sockets.
    """
    return _exchange(url, timeout_s, dict(headers or {}), None)


def post(url: str, document: Any, *, timeout_s: float, headers: Mapping[str, str] | None = None) -> Answer | NoAnswer:
    """POST `document` as JSON; limits and proxies as for `get`."""
    return _exchange(url, timeout_s, {"Content-Type": "application/json", **(headers or {})}, json.dumps(document).encode())


def _exchange(url: str, timeout_s: float, headers: dict[str, str], body: bytes | None) -> Answer | NoAnswer:
    exchange = _Exchange(url, timeout_s, headers, body)
    threading.Thread(target=exchange.run, name="exchange", daemon=True).start()
    return exchange.wait()


class _Known(urllib.request.AbstractHTTPHandler):
    """Tells `opened` of every connection that is made."""

    def __init__(self, opened: Callable[[http.client.HTTPConnection], None]) -> None:
        super().__init__()
        self._opened = opened

    def do_open(self, http_class: Any, req: urllib.request.Request, **http_conn_args: Any) -> http.client.HTTPResponse:
        def connection(*given: Any, **named: Any) -> http.client.HTTPConnection:
            made: http.client.HTTPConnection = http_class(*given, **named)
            self._opened(made)
            return made

        return super().do_open(connection, req, **http_conn_args)


class _Http(_Known, urllib.request.HTTPHandler):
    """`http:`"""


class _Https(_Known, urllib.request.HTTPSHandler):
    """`https:`"""


class _HttpOverSocket(_Known, urllib.request.HTTPHandler):
    """`http:` to whoever listens on a socket file."""

    def __init__(self, opened: Callable[[http.client.HTTPConnection], None], socket_path: str) -> None:
        super().__init__(opened)
        self._socket_path = socket_path

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(UnixConnection, self._socket_path), req)


class _Exchange:
    """One request in a thread of its own: a socket's time-out is for each read, and a look-up of a name has none at all, so that
    a server which sends a byte now and then would never be given up.
    """

    def __init__(self, url: str, timeout_s: float, headers: dict[str, str], body: bytes | None) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._headers = headers
        self._body = body
        self._done = threading.Event()
        self._given_up = threading.Event()
        self._found: Answer | NoAnswer | None = None
        self._bug: Exception | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._proxy = _proxy_to(url)

    def run(self) -> None:
        try:
            self._found = self._ask()
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            self._bug = error
        finally:
            self._done.set()

    def wait(self) -> Answer | NoAnswer:
        in_time = False
        try:
            in_time = self._done.wait(self._timeout_s)
        finally:
            self._give_up()
        if in_time and self._bug is not None:
            raise self._bug
        return (self._found if in_time else None) or self._late()  # what the end of the connection made of it is no answer

    def _opened(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def _give_up(self) -> None:
        """End the thread: a read of headers that goes on sees the end of the connection."""
        self._given_up.set()
        reached = self._connection.sock if self._connection is not None and not self._done.is_set() else None
        if reached is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(reached, socket.SHUT_RDWR)  # not TLS's own, which would wait for the other side

    def _ask(self) -> Answer | NoAnswer:
        unix = parse_unix(self._url)
        plain = _Http(self._opened) if unix is None else _HttpOverSocket(self._opened, unix.socket_path)
        url = self._url if unix is None else f"http://localhost{unix.path}"
        between = {} if self._proxy is None else dict.fromkeys(("http", "https"), f"http://{self._proxy}")
        through = urllib.request.ProxyHandler(between)
        opener = urllib.request.build_opener(_NoRedirect(), plain, _Https(self._opened), through)
        headers = self._headers
        if self._proxy is not None and self._proxy.authorization is not None:
            headers = {**headers, "Proxy-Authorization": self._proxy.authorization}
        request = urllib.request.Request(url, self._body, headers)  # noqa: S310 - the caller has checked the scheme
        try:
            with opener.open(request, timeout=self._timeout_s) as reply:
                return self._whole(reply)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(status=error.code, body=self._rest_of(error), location=error.headers.get("Location"))
        except urllib.error.URLError as error:
            return self._no_answer(error.reason)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            return self._no_answer(error)

    def _whole(self, reply: http.client.HTTPResponse) -> Answer | NoAnswer:
        """Raises: IncompleteRead, which a read with a limit does not do by itself."""
        body = self._read(reply)
        if len(body) > _LIMIT_B:
            return NoAnswer(kind="broken", detail=f"the answer is longer than {_LIMIT_B >> 20} MiB")
        if reply.length:
            raise http.client.IncompleteRead(body, reply.length)
        return Answer(status=reply.status, body=body)

    def _rest_of(self, error: urllib.error.HTTPError) -> bytes:
        try:
            return self._read(error)[:_LIMIT_B]
        except (OSError, http.client.HTTPException):
            return b""

    def _read(self, reply: http.client.HTTPResponse | urllib.error.HTTPError) -> bytes:
        """Piece by piece, so that the thread ends soon after nobody waits for it any more."""
        parts = bytearray()
        while len(parts) <= _LIMIT_B and not self._given_up.is_set():
            part = reply.read1(_PIECE_B)
            if not part:
                break
            parts += part
        return bytes(parts)

    def _late(self) -> NoAnswer:
        return NoAnswer(kind="timeout", detail=f"no whole answer within {self._timeout_s:.3g} s", proxy=self._between())

    def _no_answer(self, reason: object) -> NoAnswer:
        return self._late() if isinstance(reason, TimeoutError) else _no_answer(reason, self._between())

    def _between(self) -> str | None:
        return None if self._proxy is None else str(self._proxy)


def _proxy_to(url: str) -> Proxy | None:
    """The proxy that the environment names for `url`. Raises: UsageError for one that can't be used."""
    parts = urlsplit(url)
    if parts.hostname is None:
        return None
    tls = parts.scheme == "https"
    return proxy_for(parts.hostname, parts.port or (443 if tls else 80), tls=tls, environ=os.environ)


def _no_answer(reason: object, proxy: str | None) -> NoAnswer:
    kinds: tuple[tuple[type[Exception], Kind], ...] = (
        (ssl.SSLError, "tls"),
        (socket.gaierror, "dns"),
        (ConnectionRefusedError, "refused"),
        (FileNotFoundError, "missing"),
        (PermissionError, "denied"),
    )
    kind: Kind = next((word for error, word in kinds if isinstance(reason, error)), "broken")
    detail = f"{type(reason).__name__}: {reason}" if isinstance(reason, Exception) else str(reason)
    return NoAnswer(kind=kind, detail=detail, proxy=proxy)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value
