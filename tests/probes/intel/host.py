"""A made-up machine with two Arc Pro B60: one idle, one at work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.intel import meter
from bench.probes.intel.probe import IntelProbe
from bench.probes.presence import Roots
from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value

UUIDS = ("00000000-0000-0000-0000-0000e2118086", "00000000-0000-0001-0000-0000e2118086")
BYTES_PER_MIB = 1 << 20
WINDOW_S = 0.04
"""Shorter than a driver that counts whole joules would need: the fake counts finely."""

B60: dict[str, Value] = {
    "*.name": "Intel(R) Arc(TM) Pro B60 Graphics",
    "*.driver": "1.6.33578",
    "*.domains": "21",
    "*.limits": "21",
    "*.limit": 200_000,
    "*.max_limit": 200_000,
    "*.package_energy": 500_000_000,
    "*.package_power": 20_000,
    "*.size": 24_480 * BYTES_PER_MIB,
    "*.engines": "01 04 02",
    "*.sensors": "01",
    "*.throttle": 0,
    "0.uuid": "868011e2000000000000000000000000",
    "0.energy": 1_049_750_000,
    "0.power": 38_000,
    "0.free": 24_455 * BYTES_PER_MIB,
    "0.gpu_temp": 54.0,
    "0.temp": 60.0,
    "0.clock": 400,
    "1.uuid": "868011e2000000000100000000000000",
    "1.energy": 2_000_000_000,
    "1.power": 175_000,
    "1.free": 4_480 * BYTES_PER_MIB,
    "1.busy_0_1": 97,
    "1.busy_0_4": 60,
    "1.busy_0_2": 100,
    "1.gpu_temp": 71.5,
    "1.clock": 2400,
    "1.throttle": 1,
}


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake."""
    return shared_library("zes.c", folder / "libze_loader.so.1", defines)


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "zes-state",
        variable="FAKE_ZES_STATE",
        env_of={"BENCH_ZE_LOADER_LIBRARY": str(compiled), "PATH": os.defpath},
    )
    found.show(2, B60)
    return found


def bound(compiled: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """It, showing the machine to this process."""
    found = fake(compiled, folder)
    monkeypatch.setenv(found.variable, str(found.state))
    monkeypatch.setattr(meter, "WINDOW_S", WINDOW_S)
    return found


def opened(shown: FakeLibrary, roots: Roots) -> Iterator[IntelProbe]:
    """A probe on it, closed afterwards."""
    probe = IntelProbe(roots, shown.env(), check_s=0)
    yield probe
    probe.close()


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `intel:0` and `intel:1`."""
    return {**fake(library(folder), folder).env(), "BENCH_PROBES": "intel"}
