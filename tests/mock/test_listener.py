"""Connections of a burst are taken together, whatever the loop."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from bench.mock.listener import Listener, listen_tcp, listen_unix

CLIENTS = 100


class Counting(asyncio.Protocol):
    """Notes in which round of the loop each connection was made; answers with what it gets."""

    def __init__(self, rounds: list[int], made_in: list[int]) -> None:
        self._rounds, self._made_in = rounds, made_in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._made_in.append(self._rounds[0])

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


@contextlib.contextmanager
def crowd(listening: socket.socket) -> Iterator[list[socket.socket]]:
    clients = [socket.socket(listening.family) for _ in range(CLIENTS)]
    for client in clients:
        client.connect(listening.getsockname())
    yield clients
    for client in clients:
        client.close()


async def taken(listening: socket.socket, made_in: list[int]) -> None:
    """Until all are taken, or a hundred rounds are over."""
    loop, rounds = asyncio.get_running_loop(), [0]
    server = Listener(loop, listening, lambda: Counting(rounds, made_in))
    with crowd(listening) as clients:
        while len(made_in) < CLIENTS and rounds[0] < CLIENTS:
            rounds[0] += 1
            await asyncio.sleep(0)
        clients[0].setblocking(False)
        await loop.sock_sendall(clients[0], b"hello")
        assert await loop.sock_recv(clients[0], 10) == b"hello"
    server.close()


@pytest.mark.parametrize("factory", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_burst_is_taken_in_a_few_rounds(factory: Callable[[], asyncio.AbstractEventLoop], kind: str, tmp_path: Path) -> None:
    made_in: list[int] = []
    where = listen_unix(str(tmp_path / "s"), backlog=CLIENTS) if kind == "unix" else listen_tcp("127.0.0.1", 0, backlog=CLIENTS)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(taken(where, made_in))
    assert len(made_in) == CLIENTS
    assert max(made_in) - min(made_in) < CLIENTS / 10


def test_a_socket_that_an_earlier_server_left_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    left = listen_unix(str(tmp_path / "s"), backlog=1)
    left.close()
    listen_unix(str(tmp_path / "s"), backlog=1).close()
    (tmp_path / "file").write_text("dear")
    with pytest.raises(OSError, match="in use"):
        listen_unix(str(tmp_path / "file"), backlog=1)
    assert (tmp_path / "file").read_text() == "dear"


def test_it_goes_on_once_there_are_file_descriptors_again() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    made_in: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        listening = listen_tcp("127.0.0.1", 0, backlog=4)
        server = Listener(loop, listening, lambda: Counting([0], made_in))
        client = socket.create_connection(listening.getsockname())
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
        await asyncio.sleep(0.05)
        refused = len(made_in)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        while not made_in:
            await asyncio.sleep(0.01)
        assert refused == 0
        client.close()
        server.close()

    try:
        asyncio.run(run())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
