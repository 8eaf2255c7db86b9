"""Requests of an open loop that wait for a connection take the first that can be had."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from bench.records import MISSING, LoadSpec, Outcome
from tests.load.scripted import Exchange, Script, ScriptedServer, answer, chunked, drive


class FullServer(ScriptedServer):
    """Once `fill` is called it takes no more connections, and its backlog is full: whoever dials waits."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._socket.listen(1)
        self._full = threading.Event()
        self._crowd: list[socket.socket] = []

    def _accept(self) -> None:
        self._socket.settimeout(0.01)
        while not self._full.is_set():
            with contextlib.suppress(TimeoutError):
                sock, _ = self._socket.accept()
                sock.settimeout(None)
                self.connections.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def fill(self) -> None:
        self._full.set()
        while True:
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", self.port))
            self._crowd.append(sock)
            if not select.select([], [sock], [], 0.1)[1]:
                return


def test_a_connection_that_is_freed_goes_to_who_waits_for_one(tmp_path: Path) -> None:
    def reply(x: Exchange) -> None:
        assert isinstance(x.server, FullServer)
        if x.number == 0:
            x.server.fill()
            x.server.release.wait(0.4)  # the others become due meanwhile
        x.send(chunked(answer(2)))

    load = LoadSpec(kind="open", request_rate=20.0, arrivals="constant", num_prompts=5)
    with FullServer(reply) as server:
        result = drive(server.url, tmp_path, load=load)
        used = {exchange.sock.fileno() for exchange in server.exchanges}
    log = result.log
    assert log.outcome.tolist() == [Outcome.OK] * 5
    assert len(used) == 1
    assert np.all(np.diff(log.scheduled_ns) > 0)  # who was due first went first
    assert np.all(log.sent_ns[1:] >= log.closed_ns[:-1])
    assert result.health.send_lag_p99_ms is not None
    assert result.health.send_lag_p99_ms > 100  # and the wait is not hidden


@pytest.mark.parametrize("rate", [40.0, 400.0])
def test_each_request_that_waits_fails_once_where_nobody_listens(rate: float, tmp_path: Path) -> None:
    load = LoadSpec(kind="open", request_rate=rate, arrivals="constant", num_prompts=100)
    with ScriptedServer(lambda x: x.server.stop()) as server:
        log = drive(server.url, tmp_path, load=load).log
    assert len(log) == 100
    assert set(log.outcome) == {Outcome.CONNECT}
    assert np.all(log.sent_ns != MISSING)
    assert len(np.unique(log.scheduled_ns)) == 100
