"""A made-up machine with two BW1000: one idle, one at work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bench.probes.presence import Roots
from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary, Value
from tests.probes.trees import make_roots, replace_text

PLACES = ("0000:09:00.0", "0000:c9:00.0")
UIDS = ("GPU-a000000000000001", "GPU-a000000000000002")
IDLE, BUSY = UIDS

BW1000: dict[str, Value] = {
    "driver": "6.3.31",
    "*.vendor": 0x1D94,
    "*.device_id": 0x6320,
    "*.name": "BW1000",
    "*.vbios": "5.013.000.000000",
    "*.cap": 1_000_000_000,
    "*.total": 65_520 << 20,
    "*.deep": 0,
    "0.unique_id": 0xA000000000000001,
    "0.bdf": 0x900,
    "0.power": 80_000_000,
    "0.used": 2 << 20,
    "0.busy": 0,
    "0.edge": 47_000,
    "0.junction": 50_000,
    "0.core": 49_000,
    "0.clock": 600_000_000,
    "1.unique_id": 0xA000000000000002,
    "1.bdf": 0xC900,
    "1.power": 512_000_000,
    "1.used": 59_622 << 20,
    "1.busy": 99,
    "1.edge": 50_000,
    "1.junction": 52_000,
    "1.core": 52_000,
    "1.clock": 1_500_000_000,
}
"""No energy counter: whether a card has one is not known."""


def add_cards(roots: Roots, files: Mapping[str, str] | None = None) -> None:
    """The two cards on the PCI bus, which is what opens the probe; `files` of the kernel's driver are the same for both."""
    for place in PLACES:
        for name, text in {"vendor": "0x1d94", "class": "0x120000", "device": "0x6320", **(files or {})}.items():
            replace_text(roots.sysfs / f"bus/pci/devices/{place}" / name, text + "\n")


def library(folder: Path, *defines: str) -> Path:
    """The compiled fake under the name that the probe looks for, a link as in the DTK: by that name alone no loader finds it."""
    compiled = shared_library("rocmsmi.c", folder / "librocm_smi64.so.7", defines)
    link = folder / "librocm_smi64.so"
    link.symlink_to(compiled.name)
    return link


def fake(compiled: Path, folder: Path) -> FakeLibrary:
    """It, showing the machine."""
    found = FakeLibrary(
        path=compiled,
        state=folder / "rocmsmi-state",
        variable="FAKE_ROCMSMI_STATE",
        env_of={"ROCM_SMI_LIB_PATH": str(compiled.parent), "PATH": os.defpath},
    )
    found.show(2, BW1000)
    return found


def host(folder: Path) -> dict[str, str]:
    """The environment that shows the machine to a process: `hygon:0` and `hygon:1`."""
    roots = make_roots(folder)
    add_cards(roots)
    return {**fake(library(folder), folder).env(), "BENCH_SYSFS_ROOT": str(roots.sysfs), "BENCH_PROBES": "hygon"}
