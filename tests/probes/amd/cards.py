"""AMD cards as the kernel's files show them, in a temporary tree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.probes.presence import Roots
from tests.probes.trees import replace_text

RX_7900 = {
    "vendor": "0x1002",
    "class": "0x030000",
    "device": "0x744c",
    "unique_id": "1a2b3c4d5e6f7081",
    "mem_info_vram_total": "25753026560",
    "mem_info_vram_used": "1288490188",
    "mem_info_gtt_total": "33554432000",
    "mem_info_gtt_used": "20000000",
    "gpu_busy_percent": "37",
    "hwmon/hwmon3/name": "amdgpu",
    "hwmon/hwmon3/power1_average": "53000000",
    "hwmon/hwmon3/power1_cap": "327000000",
    "hwmon/hwmon3/temp1_input": "45000",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/temp2_input": "51000",
    "hwmon/hwmon3/temp2_label": "junction",
    "hwmon/hwmon3/freq1_input": "2304000000",
    "hwmon/hwmon3/freq1_label": "sclk",
}
"""A Radeon board under desktop load."""

STRIX_HALO = {
    "vendor": "0x1002",
    "class": "0x038000",
    "device": "0x1586",
    "mem_info_vram_total": "536870912",
    "mem_info_vram_used": "394500000",
    "mem_info_gtt_total": "128849018880",
    "mem_info_gtt_used": "64000000000",
    "gpu_busy_percent": "99",
    "hwmon/hwmon5/power1_average": "96500000",
    "hwmon/hwmon5/temp1_input": "71000",
    "hwmon/hwmon5/temp1_label": "edge",
}
"""An APU (gfx1151): its tools say N/A to everything while the files are right."""


def add_card(roots: Roots, address: str, files: Mapping[str, str], *, metrics_format: int | None = 1) -> Path:
    """Lay out one card at a PCI address; returns its folder. `metrics_format` 2 and 3 are APUs."""
    folder = roots.sysfs / "bus/pci/devices" / address
    for name, text in files.items():
        replace_text(folder / name, text + "\n")
    if metrics_format is not None:
        (folder / "gpu_metrics").write_bytes(bytes([120, 0, metrics_format, 3]) + bytes(116))
    return folder
