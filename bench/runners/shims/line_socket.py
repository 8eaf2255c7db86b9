"""Messages between two processes of one server: JSON, one a line, over a socket. Standard library only, Python 3.10 and newer.

For libraries that hold Python's lock while they compute: tokens would be sent only between two of their steps, so such a library
has a process of its own.
"""

from __future__ import annotations

import json
import select
import socket
from typing import Any

_BLOCK_B = 1 << 16


class LineSocket:
    """One end. `send` from one thread at a time, `receive` from one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._rest = b""

    def send(self, message: Any) -> None:
        """Raises: OSError where the other end is gone."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, *, wait: bool) -> list[Any] | None:
        """What has come, after waiting for something if `wait`; None once the other end is closed."""
        lines: list[bytes] = []
        while (wait and not lines) or select.select([self._socket], [], [], 0)[0]:
            block = self._socket.recv(_BLOCK_B)
            if not block:
                return None
            *complete, self._rest = (self._rest + block).split(b"\n")
            lines += complete
        return [json.loads(line) for line in lines]
