"""A listening socket that takes every connection that waits, at once.

The server of uvloop takes one in each round of its loop: of a burst of clients, the last would wait for as many rounds as there
are clients, and nothing that the server stamps would show it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

_PAUSE_S = 0.1
"""How long no connection is taken where the system has no more to give (file descriptors, memory)."""


class Listener:
    """Serves connections of `sock`, which listens and does not block, with protocols of `factory`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, factory: Callable[[], asyncio.Protocol]) -> None:
        self._loop, self._sock, self._factory = loop, sock, factory
        self._taking: set[asyncio.Task[object]] = set()
        self._open = True
        self._listen()

    def close(self) -> None:
        """Take no more connections. Those that are there stay."""
        self._open = False
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _listen(self) -> None:
        if self._open:
            self._loop.add_reader(self._sock, self._take)

    def _take(self) -> None:
        while True:
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it left before it was taken
            except OSError:
                self._loop.remove_reader(self._sock)
                self._loop.call_later(_PAUSE_S, self._listen)
                return
            accepted.setblocking(False)
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task: asyncio.Task[object] = self._loop.create_task(self._loop.connect_accepted_socket(self._factory, accepted))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)


def listen_tcp(host: str, port: int, *, backlog: int) -> socket.socket:
    """A socket for a `Listener`. Raises: OSError."""
    sock = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog)
    sock.setblocking(False)
    return sock


def listen_unix(path: str, *, backlog: int) -> socket.socket:
    """A socket for a `Listener`, in place of one that an earlier server left. Raises: OSError."""
    if Path(path).is_socket():
        Path(path).unlink()
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(path)
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
