"""A GET for readiness, settings and counters: never for load. Standard library only.

A failure is a value, not an exception: the caller knows what it means for a starting engine or for an attached endpoint.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

_LIMIT_B = 8 << 20
Kind = Literal["refused", "timeout", "dns", "tls", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer of any status."""

    status: int
    body: bytes
    location: str | None = None

    def json(self) -> Any:
        """The decoded body, None where it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def json_object(self) -> dict[str, Any]:
        """The decoded body where the status is 200 and it is an object, else an empty one."""
        found = self.json() if self.status == 200 else None
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """No HTTP answer at all, and why."""

    kind: Kind
    detail: str


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could carry the key to another host: it is reported instead."""

    def redirect_request(self, *_: object) -> None:
        return None


def is_loopback(url: str) -> bool:
    """Whether the host of `url` is this machine by its very name."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def get(url: str, *, timeout_s: float = 5.0, headers: Mapping[str, str] | None = None) -> Answer | NoAnswer:
    """GET `url` within `timeout_s` [s] per read. Proxies of the environment are used, but never for loopback."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if is_loopback(url):
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(url, headers=dict(headers or {}))  # noqa: S310 - the caller has checked the scheme
    try:
        with opener.open(request, timeout=timeout_s) as reply:
            return Answer(status=reply.status, body=_whole(reply))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(status=error.code, body=_rest_of(error), location=error.headers.get("Location"))
    except urllib.error.URLError as error:
        return _no_answer(error.reason)
    except (OSError, http.client.HTTPException) as error:
        return _no_answer(error)


def _whole(reply: http.client.HTTPResponse) -> bytes:
    """Raises: IncompleteRead, which `read` with a limit does not do by itself."""
    body = reply.read(_LIMIT_B)
    if reply.length and len(body) < _LIMIT_B:
        raise http.client.IncompleteRead(body, reply.length)
    return body


def _rest_of(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_LIMIT_B)
    except (OSError, http.client.HTTPException):
        return b""


def _no_answer(reason: object) -> NoAnswer:
    kinds: tuple[tuple[type[Exception], Kind], ...] = (
        (TimeoutError, "timeout"),
        (ssl.SSLError, "tls"),
        (socket.gaierror, "dns"),
        (ConnectionRefusedError, "refused"),
    )
    kind: Kind = next((word for error, word in kinds if isinstance(reason, error)), "broken")
    return NoAnswer(kind=kind, detail=f"{type(reason).__name__}: {reason}" if isinstance(reason, Exception) else str(reason))
