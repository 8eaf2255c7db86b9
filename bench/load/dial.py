"""Opens connections to one address, directly, over a socket file, or through a proxy."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from bench.load.address import Address
from bench.load.wire import Connection, Owner

_CONNECT_TIMEOUT_S = 10.0
DIALS_AT_ONCE = 64
"""Below the usual backlog of a listening socket: a dropped SYN costs a second."""
_ANSWER_LIMIT_B = 1 << 16


class Dialer:
    """Opens connections to one address, resolved once."""

    def __init__(self, address: Address, owner: Owner) -> None:
        self._address = address
        self._owner = owner
        self._tls = ssl.create_default_context() if address.tls else None
        self._found: list[tuple[socket.AddressFamily, tuple[Any, ...] | str]] = []
        self._gate = asyncio.Semaphore(DIALS_AT_ONCE)

    async def connect(self) -> Connection:
        """A new connection. Raises: OSError."""
        async with self._gate, asyncio.timeout(_CONNECT_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            if not self._found:
                self._found = await self._resolve(loop)
            sock = await self._open(loop)
            server_name = self._address.host if self._tls is not None else None
            made = lambda: Connection(self._owner, sock, tls=self._tls is not None)  # noqa: E731
            try:
                if self._address.unix_path is not None:
                    _, connection = await loop.create_unix_connection(made, sock=sock)
                else:
                    if self._tls is not None and self._address.proxy is not None:
                        await self._tunnel(loop, sock)
                    _, connection = await loop.create_connection(made, sock=sock, ssl=self._tls, server_hostname=server_name)
            except BaseException:
                sock.close()
                raise
            return connection

    async def _open(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        problem: OSError | None = None
        for family, where in self._found:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            if family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await loop.sock_connect(sock, where)
            except OSError as error:
                sock.close()
                problem = error
            except BaseException:
                sock.close()
                raise
            else:
                self._found = [(family, where)]
                return sock
        raise problem or OSError(f"no address for {self._address.host}")

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> list[tuple[socket.AddressFamily, tuple[Any, ...] | str]]:
        if self._address.unix_path is not None:
            return [(socket.AF_UNIX, self._address.unix_path)]
        first = self._address.proxy or self._address
        found = await loop.getaddrinfo(first.host, first.port, type=socket.SOCK_STREAM)
        return [(family, where) for family, _, _, _, where in found]

    async def _tunnel(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        """Ask the proxy for a tunnel to the target. Raises: OSError where it refuses."""
        proxy = self._address.proxy
        assert proxy is not None
        name = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        lines = [f"CONNECT {name}:{self._address.port} HTTP/1.1", f"Host: {name}:{self._address.port}"]
        if proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        await loop.sock_sendall(sock, ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        answer = b""
        while b"\r\n\r\n" not in answer:  # nothing comes after it before we speak
            piece = await loop.sock_recv(sock, 4096)
            answer += piece
            if not piece or len(answer) > _ANSWER_LIMIT_B:
                raise OSError(f"the proxy {proxy.host}:{proxy.port} did not answer with HTTP")
        words = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].startswith("2"):
            raise OSError(f"the proxy {proxy.host}:{proxy.port} refuses a tunnel: {' '.join(words[1:])[:100] or 'not HTTP'}")
