"""Intel GPUs through the kernel's files, for the drivers `xe` and `i915`: no library needed, and no memory told.

Source: Linux `Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon` and `-i915-hwmon` (energy in uJ, power in uW, temperature in
m°C), and the drivers' frequency files (MHz). Only cards with a board of their own have an hwmon: a CPU's own GPU has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench.clock import Clock
from bench.probes import values
from bench.probes.cards import Card, Quantity
from bench.probes.intel import affinity
from bench.probes.intel.meter import EnergyMeter, quantities
from bench.probes.kernel_files import scaled, text
from bench.probes.presence import Roots, pci_devices
from bench.probes.values import Unavailable, attempt

_DRIVERS = ("xe", "i915")
_LABELS = ("card", "pkg", None)
"""What a counter holds, best first; older drivers have one without a label."""
_LIMITS = ("max", "rated_max", "crit")
"""Sustained (0: switched off), as sold, and the fast limit of the board."""
_CLOCKS = ("tile0/gt0/freq0/act_freq", "tile0/gt0/freq0/cur_freq", "drm/card*/gt_act_freq_mhz", "drm/card*/gt_cur_freq_mhz")
_THROTTLES = ("tile0/gt0/freq0/throttle/reason_", "drm/card*/gt/gt0/throttle_reason_")
"""Beginnings of these files' names, in `xe` and in `i915`."""
_REASONS = {
    "pl1": "sw_power_cap",
    "pl2": "sw_power_cap",
    "pl4": "hw_power_brake",
    "thermal": "hw_thermal",
    "prochot": "hw_thermal",
    "ratl": "hw_thermal",
    "vr_thermalert": "vr_thermal",
    "vr_tdc": "current_limit",
}
_NS_PER_US = 1000


def cards(roots: Roots, env: Mapping[str, str], clock: Clock) -> list[Card]:
    """Every card with an energy counter, in PCI order."""
    served = [folder for folder in pci_devices(roots, "intel") if _driver(folder) in _DRIVERS]
    called = affinity.numbers([_stacks(folder) for folder in served], env)
    metered = [
        (folder, number) for folder, number in zip(served, called, strict=True) if any(folder.glob("hwmon/*/energy*_input"))
    ]
    return [_card(roots, folder, index, number, clock) for index, (folder, number) in enumerate(metered)]


def _card(roots: Roots, folder: Path, index: int, number: str, clock: Clock) -> Card:
    driver = _driver(folder)
    version = text(roots.sysfs / f"module/{driver}/version")
    found, untold = _metered(_hwmon(folder), clock)
    for name, path, factor, unit in (
        ("temperature_c", _hot(folder), 1e-3, "mC"),
        ("clock_mhz", _first(folder, _CLOCKS), 1.0, "MHz"),
    ):
        if path is not None:
            found[name] = Quantity(get=partial(scaled, path, factor), api=f"sysfs {path.name}", unit=unit)
    if reasons := _reasons(folder):
        found["throttle"] = Quantity(get=partial(_limits, reasons), api="sysfs throttle reasons", unit="flags")
    return Card(
        index=index,
        pci=folder.name,
        device_id=text(folder / "device"),
        driver=f"{driver} {version}" if version else driver,
        visible_as=number,
        quantities=found,
        reasons=untold,
    )


def _driver(folder: Path) -> str:
    return (folder / "driver").resolve().name


def _stacks(folder: Path) -> int:
    return max(1, len(list(folder.glob("tile[0-9]*"))), sum("_gt" in (text(path) or "") for path in folder.glob("hwmon/*/name")))


def _hwmon(folder: Path) -> Path:
    """That of the card: `i915` has one more for each stack."""
    return min(folder.glob("hwmon/hwmon*"), key=lambda path: ("_gt" in (text(path / "name") or ""), path.name))


def _metered(hwmon: Path, clock: Clock) -> tuple[dict[str, Quantity], dict[str, str]]:
    """Energy, power and limit of the counter that holds most of the card and counts, else of the best one; or why not."""
    labels = {path: text(path.with_name(path.name.replace("_input", "_label"))) for path in hwmon.glob("energy*_input")}
    ranked = sorted((path for path, label in labels.items() if label in _LABELS), key=lambda path: _LABELS.index(labels[path]))
    if not ranked:
        reason = f"hwmon counts the energy of {', '.join(sorted(filter(None, labels.values())))} only"
        return {}, {"power_w": reason, "energy_j": reason}
    meters = [(path, EnergyMeter(partial(_counted, path, clock))) for path in ranked]
    path, meter = next(((path, meter) for path, meter in meters if attempt(meter.energy_uj)[1] is None), meters[0])
    limits = [path.with_name(path.name.replace("energy", "power").replace("_input", f"_{kind}")) for kind in _LIMITS]
    limit = next((one for one in limits if attempt(partial(_limit_w, one))[1] is None), limits[0])
    named = f"hwmon {path.name} ({labels[path] or 'unlabelled'})"
    told = {
        **quantities(meter, named, attempt(partial(_limit_w, limit))[0]),
        "power_limit_w": Quantity(get=partial(_limit_w, limit), api=f"hwmon {limit.name}", unit="uW"),
    }
    return told, {}


def _counted(path: Path, clock: Clock) -> tuple[int, int]:
    return int(scaled(path, 1.0, marks=(values.MARK_64,))), clock.monotonic_ns() // _NS_PER_US


def _limit_w(path: Path) -> float:
    found_w = scaled(path, 1e-6)
    if found_w == 0:
        raise Unavailable(f"{path.name} is switched off", lasting=False)
    return found_w


def _hot(folder: Path) -> Path | None:
    """The package's sensor, else the first."""
    labels = {text(path): path.with_name(path.name.replace("_label", "_input")) for path in _hwmon(folder).glob("temp*_label")}
    return labels.get("pkg") or _first(_hwmon(folder), ("temp*_input",))


def _first(folder: Path, patterns: tuple[str, ...]) -> Path | None:
    return next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)


def _reasons(folder: Path) -> dict[Path, str]:
    return {path: name for start in _THROTTLES for word, name in _REASONS.items() for path in folder.glob(f"{start}{word}")}


def _limits(reasons: Mapping[Path, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for path, name in reasons.items() if scaled(path, 1.0) == 1))
