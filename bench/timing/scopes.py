"""Energy of a scope (all boards, all packages): each physical board once, and a total with a missing part is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from bench.records import BOARD_SCOPES, DeviceInfo, FloatArray, Quality, Scope, Window
from bench.timing.counters import Fault
from bench.timing.energy import DeviceEnergy, device_energy
from bench.timing.readings import DeviceSeries

HEADLINES: tuple[Scope, ...] = (*BOARD_SCOPES, "cpu_package")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeEnergy:
    """Energy of all domains of one scope over one window. `energy_j` is None with `reason` when any part is missing.

    Fields as in `DeviceEnergy`; `endpoint_j` adds in quadrature (ends are independent), `gain_j` adds plainly: boards of one
    model may share their error.
    """

    scope: Scope
    quality: Quality
    parts: tuple[DeviceEnergy, ...]
    energy_j: float | None
    reason: str | None
    low_j: float | None = None
    high_j: float | None = None
    endpoint_j: float = 0.0
    gain_j: float | None = None
    block_j: FloatArray | None = None
    other_j: float | None = None
    source: str | None = None

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every part's faults, each naming its device."""
        return tuple(
            Fault(code=fault.code, message=f"{part.device.uid}: {fault.message}") for part in self.parts for fault in part.faults
        )


def accountable(devices: Iterable[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """The domains whose readings add up without counting anything twice, in order of uid.

    A domain that another one `covers` is left out, and of several domains of one scope on one board (dies, slices, chip and
    card) one stays: the one that covers most, else the first that has a sensor.
    """
    listed = tuple(devices)
    covered = {uid for device in listed for uid in device.covers if uid != device.uid}
    best: dict[tuple[str, str], DeviceInfo] = {}
    for device in sorted((d for d in listed if d.uid not in covered), key=_preference):
        best.setdefault((device.scope, device.board or device.uid), device)
    return tuple(sorted(best.values(), key=lambda device: device.uid))


def _preference(device: DeviceInfo) -> tuple[int, bool, int, str]:
    return -len(device.covers), device.power is None and device.energy is None, device.index, device.uid


def headline_scope(devices: Iterable[DeviceInfo]) -> Scope | None:
    """The scope whose joules a case is judged by: its boards where it has any, else the CPU packages; None without either."""
    present = {device.scope for device in devices}
    return next((scope for scope in HEADLINES if scope in present), None)


def scope_energies(
    series: Mapping[str, DeviceSeries], window: Window, period_s: float, idle_w: Mapping[str, float] | None = None
) -> dict[tuple[Scope, Quality], ScopeEnergy]:
    """Energy of every scope that has devices, what is measured apart from what is modelled or simulated."""
    kinds = sorted({(s.device.scope, s.device.quality) for s in series.values() if s.device.scope != "process"})
    found: dict[tuple[Scope, Quality], ScopeEnergy] = {}
    for scope, quality in kinds:
        domains = accountable(s.device for s in series.values() if (s.device.scope, s.device.quality) == (scope, quality))
        parts = tuple(device_energy(series[d.uid], window, period_s, (idle_w or {}).get(d.uid)) for d in domains)
        found[scope, quality] = add_up(scope, quality, parts)
    return found


def add_up(scope: Scope, quality: Quality, parts: tuple[DeviceEnergy, ...]) -> ScopeEnergy:
    """The sum over `parts`; missing as soon as one of them is."""
    missing = [part for part in parts if part.energy_j is None]
    if missing or not parts:
        words = "; ".join(f"{part.device.uid}: {part.faults[0].message if part.faults else 'no reading'}" for part in missing)
        return ScopeEnergy(scope=scope, quality=quality, parts=parts, energy_j=None, reason=words or f"no {scope} was read")
    gains, others = [part.gain_j for part in parts], [part.other_j for part in parts]
    return ScopeEnergy(
        scope=scope,
        quality=quality,
        parts=parts,
        energy_j=float(sum(part.energy_j or 0.0 for part in parts)),
        reason=None,
        low_j=float(sum(part.low_j or 0.0 for part in parts)),
        high_j=float(sum(part.high_j or 0.0 for part in parts)),
        endpoint_j=float(np.sqrt(sum(part.endpoint_j**2 for part in parts))),
        gain_j=None if None in gains else float(sum(gain or 0.0 for gain in gains)),
        block_j=np.sum([part.block_j for part in parts if part.block_j is not None], axis=0),
        other_j=None if None in others else float(sum(other or 0.0 for other in others)),
        source="+".join(sorted({part.method or "" for part in parts})),
    )
