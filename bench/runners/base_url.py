"""The base URL of an endpoint: what is wrong with it is said before anything is sent."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from bench.errors import UsageError

VERSIONED = re.compile(r"/v\d+\w*$")
_QUOTED_CHARS = 100


def api_base(base_url: str | None) -> str:
    """`base_url` with its API version (`/v1` where it names none).

    Raises: UsageError where it is missing, not an http(s) URL, can't stand in a request, or holds a password.
    """
    if not base_url:
        raise UsageError("the openai engine needs the URL of a running endpoint", hint="--base-url http://127.0.0.1:8000")
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(
            f"base URL {base_url[:_QUOTED_CHARS]!r} can't be used", hint="write it as http://host:port or https://host/path"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            f"the base URL for {parts.hostname} must not hold a user, password, query or fragment",
            hint="put the key into a variable and name it with --api-key-env",
        )
    _check_characters(base_url, parts)
    url = base_url.rstrip("/")
    return url if VERSIONED.search(parts.path.rstrip("/")) else f"{url}/v1"


def _check_characters(base_url: str, parts: SplitResult) -> None:
    """Raises: UsageError that names the part of the URL with what no request can carry."""
    host = parts.hostname or ""
    try:
        known_as = host.encode("idna").decode()
    except UnicodeError:
        raise UsageError(
            f"the host {host[:_QUOTED_CHARS]!r} of the base URL is no host name: a part of it is empty, too long or not a word",
            hint="correct --base-url",
        ) from None
    if not host.isascii():
        raise UsageError(f"the host {host!r} of the base URL must be written in ASCII", hint=f"write it as {known_as}")
    if not parts.path.isascii() or not _visible(parts.path):
        raise UsageError(
            f"the path {parts.path[:_QUOTED_CHARS]!r} of the base URL holds characters that a URL can't",
            hint="write them percent-encoded, as in %C3%A9",
        )
    if not _visible(base_url):
        raise UsageError(
            f"the base URL {base_url[:_QUOTED_CHARS]!r} holds white space or a control character", hint="correct --base-url"
        )


def _visible(text: str) -> bool:
    return text.isprintable() and " " not in text
