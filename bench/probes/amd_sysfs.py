"""AMD cards through the kernel's files: no library, no ROCm.

Source: Linux `Documentation/gpu/amdgpu/thermal.rst` (hwmon: power in uW, temperature in m°C, frequency in Hz) and
`driver-misc.rst` (`mem_info_*` in bytes, `gpu_busy_percent`, `unique_id`).
"""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path

from bench.errors import ProbeError
from bench.probes import amd_values
from bench.probes.amd_card import Card, Quantity
from bench.probes.presence import AMD_PCI, Roots, display_devices
from bench.probes.values import Unavailable, believable_w

_APU_METRICS = (2, 3)
"""`gpu_metrics` of these format revisions belong to APUs, whose power is that of CPU and GPU together."""
_LOST = frozenset({errno.ENODEV, errno.ENXIO})


def cards(roots: Roots) -> list[Card]:
    """Every AMD card that the amdgpu driver serves, in PCI order."""
    version = _text(roots.sysfs / "module/amdgpu/version")
    served = [folder for folder in display_devices(roots, AMD_PCI) if _is_served(folder)]
    return [_card(folder, index, version) for index, folder in enumerate(served)]


def unserved(roots: Roots) -> list[tuple[str, str]]:
    """PCI address and driver (or `no driver`) of AMD cards that something else than amdgpu holds."""
    found = []
    for folder in display_devices(roots, AMD_PCI):
        if not _is_served(folder):
            driver = folder / "driver"
            found.append((folder.name, driver.resolve().name if driver.exists() else "no driver"))
    return found


def _is_served(folder: Path) -> bool:
    return (folder / "mem_info_vram_total").exists() or any(folder.glob("hwmon/hwmon*/power1_*"))


def _card(folder: Path, index: int, version: str | None) -> Card:
    apu = is_apu(folder)
    hwmon = next(iter(sorted(folder.glob("hwmon/hwmon*"))), folder / "hwmon")
    limit = partial(_scaled, hwmon / "power1_cap", 1e-6)
    quantities = {
        "power_limit_w": Quantity(get=limit, api="hwmon power1_cap", unit="uW"),
        "utilisation": Quantity(get=partial(_share, folder / "gpu_busy_percent"), api="sysfs gpu_busy_percent", unit="%"),
        "clock_mhz": Quantity(get=partial(_scaled, hwmon / "freq1_input", 1e-6), api="hwmon freq1_input", unit="Hz"),
    }
    power = next((name for name in ("power1_input", "power1_average") if _text(hwmon / name) is not None), "power1_average")
    quantities["power_w"] = Quantity(get=partial(_power_w, hwmon / power), api=f"hwmon {power}", unit="uW")
    hot = _hottest(hwmon)
    quantities["temperature_c"] = Quantity(get=partial(_scaled, hot, 1e-3), api=f"hwmon {hot.name}", unit="mC")
    for name, which in (("memory_used_b", "used"), ("memory_total_b", "total")):
        parts = [folder / f"mem_info_{kind}_{which}" for kind in (("vram", "gtt") if apu else ("vram",))]
        quantities[name] = Quantity(get=partial(_sum_b, parts), api=f"sysfs {' + '.join(p.name for p in parts)}", unit="B")
    return Card(
        index=index,
        pci=folder.name,
        unique_id=amd_values.unique_id(_text(folder / "unique_id")),
        name=amd_values.named(_text(folder / "product_name")),
        device_id=_text(folder / "device"),
        driver=None if version is None else f"amdgpu {version}",
        apu=apu,
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
    labels = {_text(label): label for label in hwmon.glob("temp*_label")}
    label = labels.get("junction") or labels.get("edge") or hwmon / "temp1_label"
    return label.with_name(label.name.replace("_label", "_input"))


def _power_w(path: Path) -> float:
    return believable_w(_scaled(path, 1e-6), None)


def _share(path: Path) -> float:
    return amd_values.share(_scaled(path, 1.0))


def _sum_b(paths: list[Path]) -> int:
    return int(sum(_scaled(path, 1.0, marks=(amd_values.MARK_64,)) for path in paths))


def _scaled(path: Path, factor: float, marks: tuple[int, ...] = (amd_values.MARK_32, amd_values.MARK_64)) -> float:
    """The file's number times `factor`. Raises: Unavailable, ProbeError where the device is gone."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        if error.errno in _LOST:
            raise ProbeError(f"{path}: {error.strerror}", hint="dmesg tells why the card left the bus") from error
        raise Unavailable(f"{path.name}: {error.strerror or error}", lasting=error.errno == errno.ENOENT) from error
    try:
        value = int(text)
    except ValueError:
        raise Unavailable(f"{path.name} holds {text[:40]!r}, not a number", lasting=False) from None
    return amd_values.number(value, marks=marks) * factor


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
