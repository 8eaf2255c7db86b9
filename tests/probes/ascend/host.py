"""Made-up machines with Ascend cards, each in the numbers of a recorded output of `npu-smi`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value

SAMPLES = Path(__file__).parent / "samples"

A2: dict[str, Value] = {
    "driver": "25.2.0",
    "firmware": "7.7.0.6.236",
    "*.name": "910B2",
    "*.hbm": 65536,
    "*.clock": 1800,
    "0.bus": 0xC1,
    "0.power": 1014,
    "0.hbm_used": 46456,
    "0.temp": 38,
    "0.use": 0,
    "0.pids": "41077:45198868480",
    "1.bus": 0x01,
    "1.power": 969,
    "1.hbm_used": 3395,
    "1.temp": 39,
    "1.use": 0,
}
"""Two 910B2."""

A3: dict[str, Value] = {
    "driver": "24.1.rc3.7",
    "chips": 2,
    "*.name": "Ascend910",
    "*.hbm": 65536,
    "*.temp": 36,
    "*.use": 0,
    "0.bus": 0x9D,
    "0.power": 1788,
    "0.hbm_used": 3397,
    "1.bus": 0x9F,
    "1.hbm_used": 3186,
    "2.bus": 0x99,
    "2.power": 1854,
    "2.hbm_used": 3397,
    "3.bus": 0x9B,
    "3.hbm_used": 3185,
    "3.temp": 37,
}
"""Two cards of two dies (910C): the second die of a card tells no power."""

DUO: dict[str, Value] = {
    "driver": "25.2.0",
    "chips": 2,
    "first_card": 2,
    "counts_mcu": 1,
    "*.name": "310P3",
    "*.bus": 0x01,
    "*.mcu": 452,
    "*.clock": 960,
    "*.use": 0,
    "0.ddr": 44280,
    "0.ddr_free": 42751,
    "0.temp": 45,
    "1.ddr": 43693,
    "1.ddr_free": 42281,
    "1.temp": 43,
}
"""An Atlas 300I Duo: two chips behind one PCI address, and power only by the card's microcontroller."""

A5: dict[str, Value] = {
    "driver": "26.1.rc1",
    "generation": 2,
    "*.name": "Ascend950PR",
    "*.hbm": 131072,
    "*.clock": 1650,
    "0.bus": 0x3A,
    "0.power": 1957,
    "0.hbm_used": 2048,
    "0.temp": 56,
    "0.use": 0,
    "1.bus": 0x3B,
    "1.power": 4210,
    "1.hbm_used": 100_000,
    "1.temp": 71,
    "1.use": 93,
    "1.pids": "77:1000,78:2000",
}
"""Two 950, which only the calls without a card serve."""


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake, where a driver under `folder` has it."""
    return shared_library("dcmi.c", folder / "lib64/driver/libdcmi.so", defines)


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing two 910B2."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "dcmi-state",
        variable="FAKE_DCMI_STATE",
        env_of={"ASCEND_DRIVER_PATH": str(compiled.parents[2]), "PATH": os.defpath},
    )
    found.show(2, A2)
    return found


def host(folder: Path) -> dict[str, str]:
    """The environment that shows two 910B2 to a process: `ascend:0` and `ascend:1`."""
    return {**fake(library(folder / "driver"), folder).env(), "BENCH_PROBES": "ascend"}
