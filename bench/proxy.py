"""Which HTTP proxy stands between us and a target, by the usual environment variables. Pure.

`http_proxy` and `https_proxy` (either case, the lower one first), `all_proxy` for both, and `no_proxy`: a list of host names
(with all that is under them), addresses, networks, and `*`. Loopback addresses and sockets are never sent to a proxy.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from bench.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy. `authorization` is the value of `Proxy-Authorization`: a secret, never shown."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def proxy_for(host: str, port: int, *, tls: bool, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for a host, None where it is reached directly. Raises: UsageError for a proxy that can't be used."""
    name = "https_proxy" if tls else "http_proxy"
    url = _read(environ, name) or _read(environ, "all_proxy")
    if not url or _is_loopback(host) or _excluded(host, port, _read(environ, "no_proxy")):
        return None
    return _parse(url, name)


def _read(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _excluded(host: str, port: int, rules: str) -> bool:
    return any(_matches(host.lower(), port, rule) for rule in rules.lower().replace(",", " ").split())


def _matches(host: str, port: int, rule: str) -> bool:
    if rule == "*":
        return True
    try:
        address = ip_address(host)
        return address in ip_network(rule.strip("[]"), strict=False)
    except (ValueError, TypeError):  # a name on one side
        pass
    name, colon, wanted = rule.rpartition(":")
    if colon and wanted.isdigit():
        if int(wanted) != port:
            return False
        rule = name.strip("[]")
    rule = rule.removeprefix("*").removeprefix(".")
    return bool(rule) and (host == rule or host.endswith(f".{rule}"))


def _parse(url: str, name: str) -> Proxy:
    """`host:port`, or `http://[user:password@]host:port`. The URL is not repeated in messages: it may hold a password."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit("http:"), 0
    if parts.scheme != "http" or not parts.hostname or not port:
        kind = f"of the kind {parts.scheme}" if parts.scheme != "http" else "without a usable address"
        raise UsageError(
            f"{name} names a proxy {kind}",
            hint="write http://host:port, or add the target to no_proxy to reach it directly",
        )
    secret = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        secret = "Basic " + b64encode(pair.encode()).decode()
    return Proxy(host=parts.hostname, port=port, authorization=secret)
