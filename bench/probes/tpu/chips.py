"""TPU chips as the PCI bus shows them. A chip with several functions is one device.

Source: the package `tpu-info` 0.14 (`device.py`): ids of the generations, and numbers that follow those of the device nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.probes.kernel_files import text
from bench.probes.presence import Roots, pci_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A chip by its PCI address. `cores`: how many devices of it the runtime counts."""

    pci: str
    name: str
    cores: int


_V2_OR_V3 = "0x0027"
_OLDEST: Mapping[str, str] = {"0x004e": "TPU v2", "0x004f": "TPU v3"}
"""By subsystem: the two have one device id."""
_GENERATIONS: Mapping[str, str] = {
    "0x005e": "TPU v4",
    "0x0062": "TPU v5p",
    "0x0063": "TPU v5e",
    "0x006f": "TPU v6e",
    "0x0076": "TPU7x",
}
_OF_TWO_CORES = ("TPU v2", "TPU v3", "TPU7x")


def chips(roots: Roots) -> list[Chip]:
    """In the order of their device nodes, which the runtime numbers them by."""
    found: dict[str, tuple[tuple[int, str], Chip]] = {}
    for folder in pci_devices(roots, "tpu"):
        name = _name(folder)
        chip = Chip(pci=folder.name, name=name, cores=2 if name in _OF_TWO_CORES else 1)
        found.setdefault(folder.name.partition(".")[0], ((_node(folder), folder.name), chip))
    return [chip for _, chip in sorted(found.values(), key=lambda one: one[0])]


def _name(folder: Path) -> str:
    device = text(folder / "device")
    if device == _V2_OR_V3:
        return _OLDEST.get(text(folder / "subsystem_device") or "", "TPU v2 or v3")
    return _GENERATIONS.get(device or "", f"TPU {device}")


def _node(folder: Path) -> int:
    """N of `/dev/vfio/N`; 0 where the chip is not passed on that way."""
    group = folder / "iommu_group"
    return int(group.resolve().name) if group.exists() and group.resolve().name.isdecimal() else 0
