"""Ctrl-C, SIGTERM and a lost terminal, turned into one exception at a safe moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from bench.errors import InterruptedRun

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """While its `with` block lasts, SIGINT, SIGTERM and SIGHUP raise `InterruptedRun`, except inside `deferred()`, where they
    only set `reason` for the code in there to look at. A second signal in a deferred block that asks to be `hard` raises at once.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._deferred = 0
        self._hard = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            previous = signal.getsignal(number)
            if number == signal.SIGINT or previous is not signal.SIG_IGN:  # `nohup` means it
                signal.signal(number, self._handle)
                self._previous[number] = previous
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    @contextmanager
    def deferred(self, *, hard: bool = True) -> Iterator[None]:
        """Signals only set `reason`. With `hard`, a second one raises; without (saving), none does."""
        outer, self._hard = self._hard, hard
        self._deferred += 1
        try:
            yield
        finally:
            self._deferred -= 1
            self._hard = outer

    def check(self) -> None:
        """Raise what a deferred signal asked for. Raises: InterruptedRun."""
        if self.reason:
            raise InterruptedRun(self.reason)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        again = self.reason is not None
        self.reason = f"interrupted by {signal.Signals(number).name}"
        if self._deferred == 0 or (again and self._hard):
            raise InterruptedRun(self.reason)
