"""Small powercap, proc and PCI trees in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.probes.presence import Roots

INTEL_RANGE_UJ = 262_143_328_850
INTEL_DRAM_RANGE_UJ = 65_712_999_613
AMD_RANGE_UJ = 65_532_610_987

TWO_SOCKETS = {
    "intel-rapl/intel-rapl:0/name": "package-0",
    "intel-rapl/intel-rapl:0/energy_uj": "262123456789",
    "intel-rapl/intel-rapl:0/max_energy_range_uj": str(INTEL_RANGE_UJ),
    "intel-rapl/intel-rapl:0/constraint_0_name": "long_term",
    "intel-rapl/intel-rapl:0/constraint_0_power_limit_uw": "270000000",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0/name": "dram",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0/energy_uj": "18273645566",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0/max_energy_range_uj": str(INTEL_DRAM_RANGE_UJ),
    "intel-rapl/intel-rapl:1/name": "package-1",
    "intel-rapl/intel-rapl:1/energy_uj": "1122334455",
    "intel-rapl/intel-rapl:1/max_energy_range_uj": str(INTEL_RANGE_UJ),
    "intel-rapl/intel-rapl:1/intel-rapl:1:0/name": "dram",
    "intel-rapl/intel-rapl:1/intel-rapl:1:0/energy_uj": "9182736455",
    "intel-rapl/intel-rapl:1/intel-rapl:1:0/max_energy_range_uj": str(INTEL_DRAM_RANGE_UJ),
}
AMD = {
    "intel-rapl/intel-rapl:0/name": "package-0",
    "intel-rapl/intel-rapl:0/energy_uj": "42718281828",
    "intel-rapl/intel-rapl:0/max_energy_range_uj": str(AMD_RANGE_UJ),
    "intel-rapl/intel-rapl:0/intel-rapl:0:0/name": "core",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0/energy_uj": "1123581321",
    "intel-rapl/intel-rapl:0/intel-rapl:0:0/max_energy_range_uj": str(AMD_RANGE_UJ),
}


def make_roots(root: Path) -> Roots:
    """Empty trees under `root`."""
    roots = Roots(sysfs=root / "sys", proc=root / "proc", dev=root / "dev")
    for folder in (roots.sysfs, roots.proc, roots.dev):
        folder.mkdir(parents=True, exist_ok=True)
    return roots


def roots_env(roots: Roots) -> dict[str, str]:
    """The same, as the environment of a child."""
    return {"BENCH_SYSFS_ROOT": str(roots.sysfs), "BENCH_PROC_ROOT": str(roots.proc), "BENCH_DEV_ROOT": str(roots.dev)}


def write_powercap(roots: Roots, files: Mapping[str, str]) -> Path:
    """Lay out `class/powercap`; returns it."""
    powercap = roots.sysfs / "class/powercap"
    for name, text in files.items():
        replace_text(powercap / name, text + "\n")
    return powercap


def replace_text(path: Path, text: str) -> None:
    """Change a file at once: a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    fresh.replace(path)


def add_nvidia_card(roots: Roots, address: str = "0000:18:00.0") -> None:
    """A display controller of PCI vendor 10de, as sysfs shows it without any driver."""
    replace_text(roots.sysfs / f"bus/pci/devices/{address}/vendor", "0x10de\n")
    replace_text(roots.sysfs / f"bus/pci/devices/{address}/class", "0x030200\n")
