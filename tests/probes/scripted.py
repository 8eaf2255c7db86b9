"""Devices that play a script: watts and joules as functions of time, shown by a fake library or a fake tree to a real child."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.clock import SYSTEM
from tests.probes.fake_nvml import FakeNvml
from tests.probes.trees import replace_text

Law = Callable[[float], float]
"""A value at seconds since the script's zero, negative before it: time runs on, so that no counter stands still."""
REFRESH_S = 0.01
LEAD_S = 6.0
"""From the start of a script to its zero: long enough for a child to start and to time its sensors."""


@dataclass(slots=True)
class Script:
    """Calls `show(t)` every 10 ms on a thread of its own."""

    show: Callable[[float], None]
    zero_ns: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def seconds_left(self) -> float:
        """Until the zero."""
        return (self.zero_ns - SYSTEM.monotonic_ns()) / 1e9

    def __enter__(self) -> Self:
        self.zero_ns = SYSTEM.monotonic_ns() + round(LEAD_S * 1e9)
        self.show(-LEAD_S)
        self._thread = threading.Thread(target=self._play, name="script", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _play(self) -> None:
        while not self._stop.wait(REFRESH_S):
            self.show(-self.seconds_left())


def nvml_script(fake: FakeNvml, laws: Mapping[str, Law]) -> Script:
    """`laws`: keys of the fake's state (`0.power_mw`), each with its law; the rest of the state stays as it is."""

    def show(t_s: float) -> None:
        fake.change(**{_change_name(key): round(law(t_s)) for key, law in laws.items()})

    return Script(show)


def _change_name(key: str) -> str:
    return "b" + key.replace(".", "__")


def rapl_script(powercap: Path, laws: Mapping[int, Law]) -> Script:
    """`laws`: the counter [J] of each package by its number, before it wraps."""

    def show(t_s: float) -> None:
        for number, law in laws.items():
            replace_text(powercap / f"intel-rapl/intel-rapl:{number}/energy_uj", f"{round(law(t_s) * 1e6)}\n")

    return Script(show)
