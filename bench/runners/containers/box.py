"""A container in which an engine runs, seen from the harness: our own child is only the client of it."""

from __future__ import annotations

import signal

import psutil

from bench.errors import EngineStartError
from bench.records import Scalar
from bench.runners.containers.client import Client, State
from bench.runners.diagnosis import Diagnosis

_OUT_OF_MEMORY = Diagnosis(
    kind="memory",
    cause="the kernel ended it because its container or the host was out of memory (OOMKilled)",
    hint="take a smaller model, batch size or context, or close other programs; `dmesg` tells what was killed",
)
_BY_SIGNAL = 128


class RunningContainer:
    """Fills `bench.runners.box.Box`."""

    def __init__(self, client: Client, name: str, settings: dict[str, Scalar], *, shares_network: bool) -> None:
        self.name = name
        self.settings = settings
        self.shares_network = shares_network
        self._client = client
        self._pid = 0
        self._last: State | None = None

    @property
    def removal(self) -> tuple[str, ...]:
        return self._client.removal(self.name)

    def remove(self) -> str | None:
        return self._client.remove(self.name)

    def pids(self) -> tuple[int, ...]:
        """Raises: EngineStartError where the daemon's processes are not those of this host: nothing of it could be measured."""
        if self._pid == 0 and (state := self._client.state(self.name)) is not None and state.pid:
            if not psutil.pid_exists(state.pid):
                raise EngineStartError(
                    f"the container's process {state.pid} is not on this host: its daemon runs on another machine",
                    hint="unset DOCKER_HOST, or see `docker context ls`",
                )
            self._pid = state.pid
        return (self._pid,) if self._pid else ()

    def ended(self, status: int) -> int:
        self._last = self._client.state(self.name)
        number = status - _BY_SIGNAL
        return -number if number in signal.valid_signals() else status

    def cause(self) -> Diagnosis | None:
        return _OUT_OF_MEMORY if self._last is not None and self._last.oom_killed else None
