"""The fake was written from the header, the probe's structures apart from it: their memory layouts must agree to the byte."""

from __future__ import annotations

import ctypes
from pathlib import Path

from bench.probes.ascend import abi
from tests.fakes import layout

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "struct dcmi_chip_info_v2": abi.ChipInfo,
    "struct dcmi_pcie_info_all": abi.PcieInfo,
    "struct dcmi_die_id": abi.DieId,
    "struct dcmi_hbm_info": abi.HbmInfo,
    "struct dcmi_get_memory_info_stru": abi.DdrInfo,
    "struct dcmi_multi_utilization_info": abi.MultiUse,
    "struct dcmi_proc_mem_info": abi.ProcessMemory,
}


def test_sizes_and_offsets_agree(driver: Path) -> None:
    compiled = layout.of_fake(driver)
    assert layout.of_ctypes(STRUCTS, compiled) == compiled
    assert {name.partition(".")[0] for name in compiled} == set(STRUCTS)
