"""The base URL of an endpoint: what is wrong with it is said before anything is sent."""

from __future__ import annotations

import os
import re
import sys
from urllib.parse import SplitResult, urlsplit

from bench.errors import UsageError
from bench.unix_url import parse_unix

VERSIONED = re.compile(r"/v\d+\w*$")
_REQUEST = re.compile(r"(/chat/completions|(?P<version>/v\d+\w*)/(chat/completions|completions|responses|embeddings|models))$")
"""How the URL of a single request ends, as examples for `curl` show it."""
_QUOTED_CHARS = 100
_LONGEST_SOCKET_PATH_B = 107 if sys.platform == "linux" else 103
"""Bytes that the system's address of a socket has room for, less the zero at their end."""


def api_base(base_url: str | None) -> str:
    """`base_url` with its API version (`/v1` where it names none).

    Raises: UsageError where it is missing, not a URL of a server, can't stand in a request, or holds a password.
    """
    if not base_url:
        raise UsageError("the openai engine needs the URL of a running endpoint", hint="--base-url http://127.0.0.1:8000")
    if (socket_base := _socket_base(base_url)) is not None:
        return socket_base
    parts = server_parts(base_url)
    if parts is None:
        raise UsageError(
            f"base URL {base_url[:_QUOTED_CHARS]!r} can't be used",
            hint="write it as http://host:port, https://host/path or unix:/socket",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            f"the base URL for {parts.hostname} must not hold a user, password, query or fragment",
            hint="put the key into a variable and name it with --api-key-env",
        )
    _check_characters(base_url, parts)
    _check_end(base_url, parts.path)
    return _versioned(base_url, parts.path)


def server_parts(url: str) -> SplitResult | None:
    """The parts of a URL of a server: http or https, with a host, and a port that can be one where it names one. Else None."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def _versioned(url: str, path: str) -> str:
    """`url`, which ends with `path`, with its version."""
    url = url.rstrip("/")
    return url if VERSIONED.search(path.rstrip("/")) else f"{url}/v1"


def _socket_base(base_url: str) -> str | None:
    """`api_base` of a `unix:` URL; None for URLs of other kinds. Raises: UsageError."""
    try:
        unix = parse_unix(base_url)
    except ValueError:
        raise UsageError(
            f"base URL {base_url[:_QUOTED_CHARS]!r} names no socket",
            hint="write its whole path, as in unix:/run/llm.sock, or unix:/run/llm.sock:/prefix",
        ) from None
    if unix is None:
        return None
    if "?" in base_url or "#" in base_url:
        raise UsageError(
            "the base URL of a socket must not hold a query or fragment",
            hint="put a key into a variable and name it with --api-key-env; in a file's name write %3F and %23",
        )
    if (size_b := len(os.fsencode(unix.socket_path))) > _LONGEST_SOCKET_PATH_B:
        raise UsageError(
            f"the path of the socket {unix.socket_path} has {size_b} bytes: the system takes {_LONGEST_SOCKET_PATH_B} at most",
            hint="give a shorter one: a symbolic link to its folder will do",
        )
    _check_path(unix.path)
    _check_end(base_url, unix.path)
    return _versioned(str(unix), unix.path)


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
    _check_path(parts.path)
    if not _visible(base_url):
        raise UsageError(
            f"the base URL {base_url[:_QUOTED_CHARS]!r} holds white space or a control character", hint="correct --base-url"
        )


def _check_end(base_url: str, path: str) -> None:
    """Raises: UsageError where `path`, the end of the URL, is that of a single request."""
    if _REQUEST.search(path.rstrip("/")):
        meant = _REQUEST.sub(r"\g<version>", base_url.rstrip("/"))
        raise UsageError(
            f"the base URL {base_url[:_QUOTED_CHARS]!r} is that of one kind of request, whose path bench adds by itself",
            hint=f"did you mean {meant}?",
        )


def _check_path(path: str) -> None:
    if not path.isascii() or not _visible(path):
        raise UsageError(
            f"the path {path[:_QUOTED_CHARS]!r} of the base URL holds characters that a URL can't",
            hint="write them percent-encoded, as in %C3%A9",
        )


def _visible(text: str) -> bool:
    return text.isprintable() and " " not in text
