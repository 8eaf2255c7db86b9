"""The fake was written from the header, the probe's structures apart from it: their memory layouts must agree to the byte."""

from __future__ import annotations

import ctypes
from pathlib import Path

from bench.probes.biren import library
from tests.fakes import layout

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "brmlPciInfo_t": library.PciInfo,
    "brmlGPUInfo_t": library.GpuInfo,
    "brmlUtilization_t": library.Utilization,
    "brmlMemory_t": library.Memory,
    "brmlProcessInfo_t": library.ProcessInfo,
}


def test_sizes_and_offsets_agree(brml: Path) -> None:
    compiled = layout.of_fake(brml)
    assert layout.of_ctypes(STRUCTS, compiled) == compiled
    assert {name.partition(".")[0] for name in compiled} == set(STRUCTS)
