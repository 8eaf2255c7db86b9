"""An engine that we started: what every launching runner hands back."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from bench.records import EngineHandle, Target, Window
from bench.runners.counters import Counters
from bench.runners.process import EngineProcess


class LaunchedEngine:
    """Fills `bench.ports.Engine` over an `EngineProcess`."""

    def __init__(self, process: EngineProcess, target: Target, handle: EngineHandle, counters: Counters) -> None:
        self._process = process
        self._counters = counters
        self._target = target
        self._handle = handle

    @property
    def target(self) -> Target:
        return self._target

    @property
    def handle(self) -> EngineHandle:
        return self._handle

    def failure(self) -> str | None:
        return self._process.failure()

    def log_tail(self, lines: int = 40) -> str:
        return self._process.log_tail(lines)

    def server_metrics(self, window: Window | None = None) -> dict[str, float]:
        return self._counters(window)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.stop()
