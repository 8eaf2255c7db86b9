"""AMD cards through the kernel's files: no library, no ROCm.

Source: Linux `Documentation/gpu/amdgpu/thermal.rst` (hwmon: power in uW, temperature in m°C, frequency in Hz) and
`driver-misc.rst` (`mem_info_*` in bytes, `gpu_busy_percent`, `unique_id`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.probes import values
from bench.probes.amd import values as amd_values
from bench.probes.cards import Card, Quantity
from bench.probes.kernel_files import scaled, text
from bench.probes.presence import Roots, pci_devices
from bench.probes.values import believable_w

_APU_METRICS = (2, 3)
"""`gpu_metrics` of these format revisions belong to APUs, whose power is that of CPU and GPU together."""
UNIFIED = {"memory": "unified with the host: carve-out and GTT together"}


def cards(roots: Roots, vendor: str = "amd", drivers: Sequence[str] = ("amdgpu",)) -> list[Card]:
    """Every card of `vendor` that one of these kernel modules serves, in PCI order: amdgpu's descendants make the same files."""
    versions = {driver: version for driver in drivers if (version := text(roots.sysfs / f"module/{driver}/version"))}
    driver = next((" ".join(named) for named in versions.items()), None)
    served = [folder for folder in pci_devices(roots, vendor) if _is_served(folder)]
    return [_card(folder, index, driver) for index, folder in enumerate(served)]


def unserved(roots: Roots) -> list[tuple[str, str]]:
    """PCI address and driver (or `no driver`) of AMD cards that something else than amdgpu holds."""
    found = []
    for folder in pci_devices(roots, "amd"):
        if not _is_served(folder):
            driver = folder / "driver"
            found.append((folder.name, driver.resolve().name if driver.exists() else "no driver"))
    return found


def _is_served(folder: Path) -> bool:
    return (folder / "mem_info_vram_total").exists() or any(folder.glob("hwmon/hwmon*/power1_*"))


def _card(folder: Path, index: int, driver: str | None) -> Card:
    apu = is_apu(folder)
    hwmon = next(iter(sorted(folder.glob("hwmon/hwmon*"))), folder / "hwmon")
    limit = partial(scaled, hwmon / "power1_cap", 1e-6)
    quantities = {
        "power_limit_w": Quantity(get=limit, api="hwmon power1_cap", unit="uW"),
        "utilisation": Quantity(get=partial(_share, folder / "gpu_busy_percent"), api="sysfs gpu_busy_percent", unit="%"),
        "clock_mhz": Quantity(get=partial(scaled, hwmon / "freq1_input", 1e-6), api="hwmon freq1_input", unit="Hz"),
    }
    power = next((name for name in ("power1_input", "power1_average") if text(hwmon / name) is not None), "power1_average")
    quantities["power_w"] = Quantity(get=partial(_power_w, hwmon / power), api=f"hwmon {power}", unit="uW")
    hot = _hottest(hwmon)
    quantities["temperature_c"] = Quantity(get=partial(scaled, hot, 1e-3), api=f"hwmon {hot.name}", unit="mC")
    for name, which in (("memory_used_b", "used"), ("memory_total_b", "total")):
        parts = [folder / f"mem_info_{kind}_{which}" for kind in (("vram", "gtt") if apu else ("vram",))]
        quantities[name] = Quantity(
            get=partial(_sum_b, parts), api=f"sysfs {' + '.join(p.name for p in parts)}", unit="B", preferred=apu
        )
    return Card(
        index=index,
        pci=folder.name,
        unique_id=amd_values.unique_id(text(folder / "unique_id")),
        name=values.named(text(folder / "product_name")),
        device_id=text(folder / "device"),
        driver=driver,
        scope="module" if apu else "accelerator",
        reasons=UNIFIED if apu else {},
        quantities=quantities,
    )


def is_apu(folder: Path) -> bool:
    """Whether CPU and GPU are one part, by the layout of the `gpu_metrics` table (its third byte is the format revision)."""
    try:
        with (folder / "gpu_metrics").open("rb") as file:
            head = file.read(4)
    except OSError:
        return False
    return len(head) == 4 and head[2] in _APU_METRICS


def _hottest(hwmon: Path) -> Path:
    """The junction (hotspot) sensor, else the edge one."""
    labels = {text(label): label for label in hwmon.glob("temp*_label")}
    label = labels.get("junction") or labels.get("edge") or hwmon / "temp1_label"
    return label.with_name(label.name.replace("_label", "_input"))


def _power_w(path: Path) -> float:
    return believable_w(scaled(path, 1e-6), None)


def _share(path: Path) -> float:
    return values.share(scaled(path, 1.0))


def _sum_b(paths: list[Path]) -> int:
    return int(sum(scaled(path, 1.0, marks=(values.MARK_64,)) for path in paths))
