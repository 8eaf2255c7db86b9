"""A made-up machine with two S60: one idle, one at work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.enflame.probe import EnflameProbe
from bench.probes.presence import Roots
from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value

UIDS = ("GCU-T00X00000001", "GCU-T00X00000002")
PLACES = ("enflame:pci:0000:17:00.0", "enflame:pci:0000:18:00.0")
"""Their uids where the library tells none."""

S60: dict[str, Value] = {
    "*.name": "S60",
    "*.limit": 300_000,
    "*.total": 42_976 << 20,
    "*.firmware": "31.1.3",
    "0.uuid": UIDS[0].removeprefix("GCU-"),
    "0.power": 96_000,
    "0.used": 0,
    "0.util": 0,
    "0.temp": 35,
    "0.clock": 300,
    "1.uuid": UIDS[1].removeprefix("GCU-"),
    "1.power": 232_000,
    "1.used": 36_160 << 20,
    "1.util": 97,
    "1.temp": 58,
    "1.clock": 1500,
}


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake."""
    return shared_library("efml.c", folder / "fake-libefml.so", defines)


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "efml-state",
        variable="FAKE_EFML_STATE",
        env_of={"BENCH_EFML_LIBRARY": str(compiled), "PATH": os.defpath},
    )
    found.show(2, S60)
    return found


def bound(compiled: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """The same in this process, whose environment it reads."""
    found = fake(compiled, folder)
    monkeypatch.setenv(found.variable, str(found.state))
    return found


def opened(shown: FakeLibrary, roots: Roots) -> Iterator[EnflameProbe]:
    """A probe on it, closed afterwards."""
    probe = EnflameProbe(roots, shown.env())
    yield probe
    probe.close()


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `enflame:0` and `enflame:1`."""
    shown = fake(library(folder), folder)
    shown.set("0.used", 20_000 << 20)
    return {**shown.env(), "BENCH_PROBES": "enflame"}
