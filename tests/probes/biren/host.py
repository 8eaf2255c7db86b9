"""A made-up machine with two Biren 166: one idle, one at work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.biren.probe import BirenProbe
from bench.probes.presence import Roots
from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value

SAMPLES = Path(__file__).parent / "samples"
UUIDS = ("GPU-00000000-0000-4000-8000-0000000000d1", "GPU-00000000-0000-4000-8000-0000000000d2")
MIB = 1 << 20

BR166: dict[str, Value] = {
    "driver": "1.11.0",
    "*.name": "Biren166M",
    "*.firmware": "1.8.2",
    "*.limit": 300_000,
    "*.total": 65_536 * MIB,
    "*.svi": 1,
    "0.uuid": UUIDS[0],
    "0.bus_id": "00000000:3B:00.0",
    "0.power": 96_500,
    "0.free": 68_182_605_824,
    "0.used": 536_870_912,
    "0.use": 0,
    "0.temp": 41,
    "0.clock": 800,
    "0.throttle": 0,
    "1.uuid": UUIDS[1],
    "1.bus_id": "00000000:5E:00.0",
    "1.power": 287_400,
    "1.free": 4_184_866_816,
    "1.used": 64_534_609_920,
    "1.use": 98,
    "1.temp": 67,
    "1.clock": 1550,
    "1.throttle": 2,
    "1.pids": "41077:64000000000",
}


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake."""
    return shared_library("brml.c", folder / "libbiren-ml.so.1", defines)


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "brml-state",
        variable="FAKE_BRML_STATE",
        env_of={"BENCH_BRML_LIBRARY": str(compiled), "PATH": os.defpath},
    )
    found.show(2, BR166)
    return found


def bound(compiled: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """It, showing the machine to this process."""
    found = fake(compiled, folder)
    monkeypatch.setenv(found.variable, str(found.state))
    return found


def opened(shown: FakeLibrary, roots: Roots) -> Iterator[BirenProbe]:
    """A probe on it, closed afterwards."""
    probe = BirenProbe(roots, shown.env())
    yield probe
    probe.close()


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `biren:0` and `biren:1`."""
    return {**fake(library(folder), folder).env(), "BENCH_PROBES": "biren"}
