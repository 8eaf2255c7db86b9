"""Energy, memory and heat of a trial's devices, put together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bench.records import BOARD_SCOPES, MISSING, Case, DeviceInfo, FloatArray, Metric, Quality, Reason, Scope, Telemetry, Window
from bench.timing.device_rules import energy_reasons, heat_reasons, impossible_power, sharing_reasons, stream_reasons
from bench.timing.joules import Baseline, Work, baseline, baseline_metrics, energy_metrics, energy_total
from bench.timing.occupancy import occupancy_metrics
from bench.timing.readings import DeviceSeries, device_series
from bench.timing.requests import Observed
from bench.timing.scopes import ScopeEnergy, headline_scope, scope_energies
from bench.timing.simulated import simulated_metrics
from bench.timing.spec import ENERGY_METRICS, SCOPES, scope_energy_name, undefined

ATTACHED = "attached endpoint: name its boards with --devices"
_DEVICE_METRICS = (
    *ENERGY_METRICS,
    "idle_power_w",
    "resident_power_w",
    "memory_before_b",
    "memory_loaded_b",
    "memory_used_peak_b",
    "memory_reserved_util",
    "cpu_util_mean",
    "accelerator_util_mean",
)
HARMLESS = frozenset({"power_gap", "part_time_sensor", "counter_stuck", "aliased"})
"""Faults that leave an energy standing where there is one: a wider interval, or the integral in the counter's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesSeen:
    """What the devices tell of a trial."""

    metrics: dict[str, Metric]
    reasons: tuple[Reason, ...]
    scope: Scope | None


def device_metrics(seen: Observed, telemetry: Telemetry, rng: np.random.Generator, *, attached: bool) -> DevicesSeen:
    """Energy, memory and heat over the window. An attached endpoint whose boards nobody named has none: what this machine
    draws is not what serves it.
    """
    if attached and not seen.case.devices:
        missing = {name: undefined(name, ATTACHED) for name in (*_DEVICE_METRICS, *map(scope_energy_name, SCOPES))}
        return DevicesSeen(metrics=missing, reasons=(), scope=None)
    devices, profile, window = _of_case(seen.case, telemetry.devices), seen.case.profile, seen.window
    all_series = device_series(telemetry)
    series = {device.uid: all_series[device.uid] for device in devices}
    scope = headline_scope(devices)
    windows = _Windows(series=series, telemetry=telemetry)
    resting = windows.idle_powers()
    energies = scope_energies(series, window, telemetry.period_s, resting)
    headline = energies.get((scope, "measured")) if scope else None
    real = [one for one in series.values() if one.device.quality != "simulated"]
    metrics = occupancy_metrics(real, window, scope, idle=telemetry.idle, resident=telemetry.resident)
    metrics |= _scope_columns(energies)
    simulated = energies.get((scope, "simulated")) if scope else None
    metrics |= simulated_metrics(simulated, window.seconds, work_of(seen), rng=rng, harmless=HARMLESS)
    idle, resident = windows.baseline(scope, telemetry.idle), windows.baseline(scope, telemetry.resident)
    metrics |= _headline_columns(headline, seen, idle=idle, resident=resident, rng=rng, missing=_no_energy(scope, devices))
    reasons = (
        *energy_reasons(headline, seen.case, window),
        *impossible_power(headline, metrics, window, profile),
        *stream_reasons(telemetry.ends, headline, window, profile),
        *heat_reasons((s for s in real if s.device.scope == scope), window, profile),
        *sharing_reasons((s for s in real if s.device.scope == scope), window, profile),
    )
    return DevicesSeen(metrics=_nulled(metrics, reasons, scope), reasons=reasons, scope=scope)


def _of_case(case: Case, devices: tuple[DeviceInfo, ...]) -> tuple[DeviceInfo, ...]:
    """The devices of a case that names only `cpu` leave out the boards, which stand idle."""
    if case.devices and all(name == "cpu" for name in case.devices):
        return tuple(device for device in devices if device.scope not in BOARD_SCOPES)
    return devices


def _no_energy(scope: Scope | None, devices: tuple[DeviceInfo, ...]) -> str:
    if scope is None:
        return "no probe found a device that measures power"
    qualities = sorted({device.quality for device in devices if device.scope == scope})
    return f"the {scope}'s power is {' and '.join(qualities)}, not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """The idle windows of a trial's devices."""

    series: Mapping[str, DeviceSeries]
    telemetry: Telemetry

    def baseline(self, scope: Scope | None, window: Window | None) -> Baseline:
        """Mean power of the headline scope in an idle window."""
        if window is None or scope is None:
            return Baseline(power_w=None, reason="no idle window was taken" if scope else "no device measures power")
        energy = scope_energies(self.series, window, self.telemetry.period_s).get((scope, "measured"))
        return baseline(energy, window.seconds, f"the {scope}'s power is not measured")

    def idle_powers(self) -> dict[str, float]:
        """Mean power of each device at rest [W], for the bounds of what nobody saw."""
        window = self.telemetry.idle or self.telemetry.resident
        if window is None:
            return {}
        energies = scope_energies(self.series, window, self.telemetry.period_s).values()
        parts = (part for energy in energies for part in energy.parts)
        return {part.device.uid: part.energy_j / window.seconds for part in parts if part.energy_j is not None}


def _scope_columns(energies: Mapping[tuple[Scope, Quality], ScopeEnergy]) -> dict[str, Metric]:
    """One column a scope, what is modelled or simulated in columns of its own. A faulty total is no number."""
    columns = {name: undefined(name, "no such device") for name in map(scope_energy_name, SCOPES)}
    for (scope, quality), energy in energies.items():
        name = scope_energy_name(scope, quality)
        broken = next((fault.message for fault in energy.faults if fault.code not in HARMLESS), None)
        if energy.energy_j is None or broken:
            columns[name] = undefined(name, energy.reason or broken or "not read")
        else:
            columns[name] = energy_total(name, energy)
    return columns


def _headline_columns(
    energy: ScopeEnergy | None,
    seen: Observed,
    *,
    idle: Baseline,
    resident: Baseline,
    rng: np.random.Generator,
    missing: str,
) -> dict[str, Metric]:
    if energy is not None and energy.energy_j is not None:
        return energy_metrics(energy, seen.window.seconds, work_of(seen), idle=idle, resident=resident, rng=rng)
    reason = (energy.reason if energy is not None else None) or missing
    columns = {name: undefined(name, reason) for name in ENERGY_METRICS}
    return columns | {metric.name: metric for metric in baseline_metrics(idle, resident)}


def work_of(seen: Observed) -> Work:
    """What the window's joules were spent on. Where tokens were spread over chunks, a stream that goes on over an edge may have
    one chunk's more or fewer on this side; streams are off in either direction, so these add in quadrature.
    """
    blocks, tokens = seen.blocks, seen.tokens
    output = blocks.output_tokens
    total: FloatArray | None = None
    if output is not None and blocks.input_tokens is not None:
        total = output + blocks.input_tokens
    edge = 0.0
    if tokens.source == "spread_by_bytes" and len(tokens.per_chunk):
        edge = float(np.nanmean(tokens.per_chunk) * np.sqrt(_over_an_edge(seen)))
    return Work(
        output_tokens=output,
        total_tokens=total,
        completed=blocks.completed,
        edge_tokens=edge,
        reason=blocks.output_reason or blocks.input_reason,
    )


def _over_an_edge(seen: Observed) -> int:
    """Streams with chunks on both sides of the window's begin, and of its end."""
    first_ns, last_ns = seen.stamps.first_ns, seen.stamps.last_ns
    edges_ns = (seen.window.t0_ns, seen.window.t1_ns)
    return sum(int(((first_ns != MISSING) & (first_ns < edge_ns) & (last_ns >= edge_ns)).sum()) for edge_ns in edges_ns)


def _nulled(metrics: dict[str, Metric], reasons: tuple[Reason, ...], scope: Scope | None) -> dict[str, Metric]:
    """An invalid energy reason leaves no joule of the headline scope standing."""
    worst = next((r for r in reasons if r.severity == "invalid" and r.group == "energy"), None)
    if worst is None or scope is None:
        return metrics
    joules = {*ENERGY_METRICS, scope_energy_name(scope)}
    text = f"{worst.code}: {worst.message}"
    return {name: undefined(name, text) if name in joules and m.reason is None else m for name, m in metrics.items()}
