"""Energy of every device over a window that no engine was measured in: what any command, or an idle machine, drew. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.records import DeviceInfo, Quality, Scope, Telemetry, Window
from bench.timing.counters import Fault
from bench.timing.energies import HARMLESS
from bench.timing.error_budget import energy_terms, halves
from bench.timing.readings import DeviceSeries, device_series
from bench.timing.scopes import ScopeEnergy, accountable, scope_energies


@dataclass(frozen=True, slots=True, kw_only=True)
class Joules:
    """An energy [J] with its 95% interval, None where the sensor's gain is unknown. Where there is no energy `reason` says why;
    `warnings` are what to know about it.
    """

    energy_j: float | None
    low_j: float | None
    high_j: float | None
    reason: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDevice:
    """What one device drew over a window. `method` made `joules`; `other_j` is what the other method says. `coverage`: share
    of the window in which power was seen. `counted`: takes part in its scope's sum; else another device's reading includes it.
    """

    device: DeviceInfo
    joules: Joules
    mean_w: float | None
    least_w: float | None
    most_w: float | None
    method: str | None
    coverage: float
    other_j: float | None
    utilisation: float | None
    readings: int
    counted: bool
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScope:
    """The sum over one scope's devices."""

    scope: Scope
    quality: Quality
    joules: Joules


def recorded_devices(telemetry: Telemetry, window: Window) -> tuple[RecordedDevice, ...]:
    """Every device of `telemetry` that has a sensor, in order of scope and uid."""
    sensed = [d for d in telemetry.devices if d.power is not None or d.energy is not None]
    series = device_series(telemetry)
    kinds = {(d.scope, d.quality) for d in sensed}
    counted = {device.uid for kind in kinds for device in accountable(d for d in sensed if (d.scope, d.quality) == kind)}
    found = (_device(series[d.uid], telemetry.period_s, window, counted=d.uid in counted) for d in sensed)
    return tuple(sorted(found, key=lambda one: (one.device.scope, one.device.uid)))


def recorded_scopes(telemetry: Telemetry, window: Window) -> tuple[RecordedScope, ...]:
    """One sum a scope, what is measured apart from what is not; domains without a sensor make a sum missing."""
    energies = scope_energies(device_series(telemetry), window, telemetry.period_s)
    return tuple(RecordedScope(scope=scope, quality=quality, joules=_joules(e)) for (scope, quality), e in energies.items())


def _device(series: DeviceSeries, period_s: float, window: Window, *, counted: bool) -> RecordedDevice:
    alone = scope_energies({series.device.uid: series}, window, period_s)
    (energy,) = alone.values()
    (part,) = energy.parts
    inside = series.inside(window)
    power_w, busy = series.power_w[inside], series.utilisation[inside]
    power_w, busy = power_w[~np.isnan(power_w)], busy[~np.isnan(busy)]
    joules = _joules(energy)
    return RecordedDevice(
        device=series.device,
        joules=joules,
        mean_w=None if joules.energy_j is None else joules.energy_j / window.seconds,
        least_w=float(power_w.min()) if len(power_w) else None,
        most_w=float(power_w.max()) if len(power_w) else None,
        method=part.method,
        coverage=part.coverage,
        other_j=part.other_j,
        utilisation=float(busy.mean()) if len(busy) else None,
        readings=inside.stop - inside.start,
        counted=counted,
        faults=part.faults,
    )


def _joules(energy: ScopeEnergy) -> Joules:
    warnings = tuple(f"{fault.code}: {fault.message}" for fault in energy.faults if fault.code in HARMLESS)
    warnings += tuple(f"shared_device: {part.device.uid}: {part.device.shared}" for part in energy.parts if part.device.shared)
    broken = next((f"{fault.code}: {fault.message}" for fault in energy.faults if fault.code not in HARMLESS), None)
    if energy.energy_j is None or broken is not None:
        reason = broken or energy.reason or "not read"
        return Joules(energy_j=None, low_j=None, high_j=None, reason=reason, warnings=warnings)
    low_j = high_j = None
    if energy.gain_j is not None:
        below, above = halves(energy_terms(energy, energy.gain_j))
        low_j, high_j = energy.energy_j - below, energy.energy_j + above
    return Joules(energy_j=energy.energy_j, low_j=low_j, high_j=high_j, reason=None, warnings=warnings)
