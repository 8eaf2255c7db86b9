"""A made-up machine with two Gaudi 3: one idle, one at work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.gaudi.probe import GaudiProbe
from bench.probes.presence import Roots
from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value

UUIDS = ("01P0-HL0000A0-18-U0V001-22-07-00", "01P0-HL0000A0-18-U0V002-03-04-04")
BYTES_PER_MIB = 1 << 20

GAUDI_3: dict[str, Value] = {
    "driver": "1.22.1-97ec1a4",
    "*.name": "HL-325L",
    "*.firmware": "hl-gaudi3-1.22.1-fw-61.3.2-sec-9",
    "*.limit": 850_000,
    "*.default_limit": 850_000,
    "*.total": 131_072 * BYTES_PER_MIB,
    "*.throttle": 0,
    "0.uuid": UUIDS[0],
    "0.bus_id": "0000:21:00.0",
    "0.module": 5,
    "0.power": 226_000,
    "0.energy": 982_134_567,
    "0.energy_rate_w": 226,
    "0.free": 136_734_310_400,
    "0.used": 704_643_072,
    "0.aip": 0,
    "0.temp": 36,
    "0.clock": 800,
    "1.uuid": UUIDS[1],
    "1.bus_id": "0000:6a:00.0",
    "1.module": 2,
    "1.power": 640_000,
    "1.energy": 1_310_000_000,
    "1.energy_rate_w": 640,
    "1.free": 32_768 * BYTES_PER_MIB,
    "1.used": 98_304 * BYTES_PER_MIB,
    "1.aip": 87,
    "1.temp": 61,
    "1.clock": 1600,
    "1.throttle": 1,
}


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake."""
    return shared_library("hlml.c", folder / "libhlml.so", defines)


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "hlml-state",
        variable="FAKE_HLML_STATE",
        env_of={"BENCH_HLML_LIBRARY": str(compiled), "PATH": os.defpath},
    )
    found.show(2, GAUDI_3)
    return found


def bound(compiled: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """It, showing the machine to this process."""
    found = fake(compiled, folder)
    monkeypatch.setenv(found.variable, str(found.state))
    return found


def opened(shown: FakeLibrary, roots: Roots) -> Iterator[GaudiProbe]:
    """A probe on it, closed afterwards."""
    probe = GaudiProbe(roots, shown.env(), check_s=0)
    yield probe
    probe.close()


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `gaudi:0` and `gaudi:1`."""
    return {**fake(library(folder), folder).env(), "BENCH_PROBES": "gaudi"}
