"""URLs of servers that listen on a socket file, as nginx spells them: `unix:/path/to/socket` or `unix:/path/to/socket:/prefix`.

Pure: nothing is opened here.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixUrl:
    """`socket_path`: absolute. `path`: what is asked for there, empty or beginning with `/`."""

    socket_path: str
    path: str = ""

    def __str__(self) -> str:
        """With the colon that a path can be put behind, as the path of any other URL."""
        return f"unix:{quote(self.socket_path, safe='/@+,=~')}:{self.path}"


def parse_unix(url: str) -> UnixUrl | None:
    """The parts of a `unix:` URL (`unix:///path` is read too); None for URLs of other kinds. A colon in the socket's own path is
    written as `%3A`.

    Raises: ValueError where it has no absolute path, or a prefix that is none.
    """
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "unix":
        return None
    place, _, path = rest.partition(":")
    socket_path = unquote(place.removeprefix("//"))
    if not socket_path.rstrip("/").startswith("/") or "\0" in socket_path or (path and not path.startswith("/")):
        raise ValueError(url)
    return UnixUrl(socket_path=socket_path, path=path)
