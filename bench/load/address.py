"""Where a target listens, out of its base URL, and the head of the requests that go there. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from bench.errors import UsageError
from bench.proxy import Proxy, proxy_for
from bench.unix_url import parse_unix

_VERSIONED = re.compile(r"/v\d+\w*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`unix_path` is set for sockets, `proxy` where one stands in between. `path` is what comes before a protocol's own: empty,
    or begins with `/`, and ends with the API version (`/v1`) where the protocol stands under one.
    """

    host: str
    port: int
    tls: bool
    path: str
    unix_path: str | None = None
    proxy: Proxy | None = None

    @property
    def host_header(self) -> str:
        """The `Host` header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"


def route(base_url: str, environ: Mapping[str, str], *, versioned: bool = True) -> Address:
    """`parse_address`, with the proxy that the environment names for it. Raises: UsageError."""
    address = parse_address(base_url, versioned=versioned)
    if address.unix_path is not None:
        return address
    return replace(address, proxy=proxy_for(address.host, address.port, tls=address.tls, environ=environ))


def parse_address(base_url: str, *, versioned: bool = True) -> Address:
    """`http(s)://host[:port][/path]` or `unix:/path/to/socket[:/path]`, with or without the API version at its end.

    `versioned`: whether the protocol's paths stand under the version, else it is left out. Raises: UsageError for anything else.
    """
    try:
        unix = parse_unix(base_url)
    except ValueError:
        raise UsageError(f"no socket path in {base_url!r}", hint="write unix:/path/to/socket") from None
    if unix is not None:
        path = _api_path(unix.path, versioned=versioned)
        return Address(host="localhost", port=80, tls=False, path=path, unix_path=unix.socket_path)
    parts = urlsplit(base_url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port in (-1, 0):
        raise UsageError(f"{base_url!r} is not a URL to send load to", hint="write http://host:port, https://host or unix:/path")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            "a base URL can't hold credentials or a query", hint="name the variable that holds the key: --api-key-env"
        )
    tls = parts.scheme == "https"
    path = _api_path(parts.path, versioned=versioned)
    return Address(host=parts.hostname, port=port or (443 if tls else 80), tls=tls, path=path)


def _api_path(path: str, *, versioned: bool) -> str:
    path = path.rstrip("/")
    if not versioned:
        return _VERSIONED.sub("", path)
    return path if _VERSIONED.search(path) else f"{path}/v1"


def http_head(address: Address, path: str, body_b: int, key: str | None) -> bytes:
    """Request line and headers of a POST of `body_b` bytes of JSON. A proxy of plain HTTP wants the whole URL; inside a tunnel
    (TLS) it sees nothing.
    """
    proxy = None if address.tls else address.proxy
    where = f"http://{address.host_header}{path}" if proxy is not None else path
    lines = [
        f"POST {where} HTTP/1.1",
        f"Host: {address.host_header}",
        "User-Agent: tokjoule",
        "Content-Type: application/json",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        f"Content-Length: {body_b}",
    ]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if proxy is not None and proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
