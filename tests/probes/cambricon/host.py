"""A made-up machine with two MLU590: one idle, one at work."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value

UIDS = ("MLU-00000000-0000-0000-0000-0000aabb0001", "MLU-00000000-0000-0000-0000-0000aabb0002")

MLU590: dict[str, Value] = {
    "*.name": "MLU590-M9",
    "*.cap": 250,
    "*.total": 98_304,
    "*.sn": 0xC0FFEE,
    "0.uuid": UIDS[0].removeprefix("MLU-"),
    "0.power": 106,
    "0.energy": 123_456_789,
    "0.energy_rate_w": 106,
    "0.used": 0,
    "0.util": 0,
    "0.chip": 32,
    "0.board": 30,
    "0.clock": 300,
    "1.uuid": UIDS[1].removeprefix("MLU-"),
    "1.power": 163,
    "1.energy": 987_654_321,
    "1.energy_rate_w": 163,
    "1.used": 65_535,
    "1.util": 98,
    "1.chip": 47,
    "1.board": 41,
    "1.clock": 1300,
    "1.power_setting": 1,
    "1.thermal": 1,
}

MLU370_X8: dict[str, Value] = {
    "*.name": "MLU370-X8",
    "*.cap": 250,
    "*.total": 23_374,
    "*.energy": 5_000_000,
    "*.energy_rate_w": 81,
    "*.sn": 0x1234,
    "*.power": 163,
    "0.uuid": UIDS[0].removeprefix("MLU-"),
    "0.used": 0,
    "0.util": 0,
    "0.chip": 32,
    "0.clock": 300,
    "1.uuid": UIDS[1].removeprefix("MLU-"),
    "1.used": 18_544,
    "1.util": 98,
    "1.chip": 47,
    "1.clock": 1300,
}
"""One card of two chips, which both tell its power."""


def library(folder: Path, *defines: str) -> Path:
    """A NEUWARE folder with the compiled fake, whose own name is another: a loader asked for `libcndev.so` does not take it."""
    path = folder / "lib64/libcndev.so"
    shared_library("cndev.c", path.with_name("fake-cndev.so"), defines).rename(path)
    return folder


def fake(neuware: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=neuware / "lib64/libcndev.so",
        state=folder / "cndev-state",
        variable="FAKE_CNDEV_STATE",
        env_of={"NEUWARE_HOME": str(neuware), "PATH": os.defpath},
    )
    found.show(2, MLU590)
    return found


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `cambricon:0` and `cambricon:1`."""
    shown = fake(library(folder), folder)
    shown.set("0.used", 40_960)
    return {**shown.env(), "BENCH_PROBES": "cambricon"}
