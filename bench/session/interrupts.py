"""Ctrl-C and SIGTERM, turned into one exception at a safe moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from bench.errors import InterruptedRun

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While its `with` block lasts, SIGINT and SIGTERM raise `InterruptedRun`, except inside `deferred()`, where they only set
    `reason` for the code in there to look at. A second signal in a deferred block that asks to be `hard` raises at once.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._deferred = 0
        self._hard = False
        self._previous: list[signal.Handlers | int | None] = []

    def __enter__(self) -> Self:
        self._previous = [signal.signal(number, self._handle) for number in _SIGNALS]  # type: ignore[misc]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in zip(_SIGNALS, self._previous, strict=True):
            signal.signal(number, handler)

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
