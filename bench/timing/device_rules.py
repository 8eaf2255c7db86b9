"""Validity rules that look at devices: faults of the energy, heat, and probes that stopped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bench.records import Case, Metric, Profile, Reason, StreamEnd, Window
from bench.stats import linear_trend
from bench.timing.energy import NO_SENSOR
from bench.timing.load_rules import moved, moves_by_nature, significant
from bench.timing.readings import DeviceSeries
from bench.timing.scopes import ScopeEnergy
from bench.timing.validity import raise_code, threshold

LIMIT_SLACK = 1.1
"""Mean power above this multiple of the boards' limits is impossible."""
IDLE_SLACK = 0.95
"""Mean power under load below this multiple of the idle power is impossible: a little is left for noise."""


def energy_reasons(energy: ScopeEnergy | None, case: Case, window: Window) -> tuple[Reason, ...]:
    """What is wrong with the headline scope's energy: the faults of its parts, and a trend in its power where none was asked for.

    A stuck counter whose window the integral covers is a warning: there is a number. Without the integral it is invalid.
    """
    if energy is None:
        return ()
    profile = case.profile
    found: tuple[Reason, ...] = ()
    for fault in energy.faults:
        if fault.code == NO_SENSOR:  # nothing went wrong: the metrics say what is not there
            continue
        mended = fault.code == "counter_stuck" and energy.energy_j is not None
        found += raise_code(fault.code, profile, fault.message, groups=("energy",), severity="warning" if mended else None)
    return found if moves_by_nature(case, window) else (*found, *_power_trend(energy, profile))


def _power_trend(energy: ScopeEnergy, profile: Profile) -> tuple[Reason, ...]:
    trend = None if energy.block_j is None else linear_trend(energy.block_j)
    if trend is None or not significant(trend, threshold("not_steady", profile)):
        return ()
    text = f"power {moved(trend)}"
    return raise_code("not_steady", profile, text, groups=("energy",))


def impossible_power(
    energy: ScopeEnergy | None, metrics: Mapping[str, Metric], window: Window, profile: Profile
) -> tuple[Reason, ...]:
    """Mean power (J/token times tok/s) below idle, above 1.1 times the limit, or above its own peak."""
    if energy is None or energy.energy_j is None:
        return ()
    mean_w = energy.energy_j / window.seconds
    limits = [part.device.power_limit_w for part in energy.parts]
    limit_w = None if None in limits or energy.scope == "cpu_package" else sum(limit or 0.0 for limit in limits)
    idle_w = metrics["idle_power_w"].value
    found: list[str] = []
    if limit_w is not None and mean_w > LIMIT_SLACK * limit_w:
        found.append(f"mean power of {mean_w:.1f} W is above {LIMIT_SLACK} times the limit of {limit_w:.1f} W")
    if idle_w is not None and mean_w < IDLE_SLACK * idle_w:
        found.append(f"mean power of {mean_w:.1f} W under load is below the idle {idle_w:.1f} W")
    peaks = [part.peak_w for part in energy.parts]
    if None not in peaks and sum(peak or 0.0 for peak in peaks) < IDLE_SLACK * mean_w:
        found.append(f"mean power of {mean_w:.1f} W is above its own peak")
    return raise_code("impossible", profile, "; ".join(found), groups=("energy",)) if found else ()


def sharing_reasons(series: Iterable[DeviceSeries], window: Window, profile: Profile) -> tuple[Reason, ...]:
    """Boards whose power is not this engine's alone: shared by what they are, or with a process that was seen on them."""
    found: tuple[Reason, ...] = ()
    for one in series:
        if one.device.shared is not None:
            found += raise_code("shared_device", profile, f"{one.device.uid}: {one.device.shared}")
        foreign = one.foreign[one.inside(window)]
        foreign = foreign[~np.isnan(foreign)]
        if len(foreign) and float(foreign.max()) > 0.0:
            share = float((foreign > 0).mean())
            text = f"{one.device.uid}: up to {float(foreign.max()):.0f} other processes in {share:.0%} of readings"
            found += raise_code("foreign_process", profile, text)
            found += raise_code("shared_device", profile, text)
    return found


def heat_reasons(series: Iterable[DeviceSeries], window: Window, profile: Profile) -> tuple[Reason, ...]:
    """Boards that were slowed down by heat, or that were still warming up."""
    found: tuple[Reason, ...] = ()
    for one in series:
        inside = one.inside(window)
        known = [limits for limits in one.throttle[inside] if limits is not None]
        hot = sum(any("thermal" in limit for limit in limits) for limits in known)
        if known and hot / len(known) > threshold("throttled_thermal", profile):
            text = f"{one.device.uid}: slowed down by heat in {hot / len(known):.0%} of readings"
            found += raise_code("throttled_thermal", profile, text)
        found += _drift(one, inside, profile)
    return found


def _drift(one: DeviceSeries, inside: slice, profile: Profile) -> tuple[Reason, ...]:
    """Mean temperature of the window's last tenth beside that of its first."""
    warm = one.temperature_c[inside]
    warm = warm[~np.isnan(warm)]
    tenth = len(warm) // 10
    if tenth == 0:
        return ()
    moved = float(warm[-tenth:].mean() - warm[:tenth].mean())
    if abs(moved) <= threshold("temperature_drift", profile):
        return ()
    text = f"{one.device.uid}: temperature moved by {moved:+.1f} K across the window: warm up longer"
    return raise_code("temperature_drift", profile, text)


def stream_reasons(ends: Iterable[StreamEnd], energy: ScopeEnergy | None, window: Window, profile: Profile) -> tuple[Reason, ...]:
    """Probes that stopped before the window's end; invalid for the energy when the headline scope depends on one."""
    needed = {part.device.probe for part in energy.parts} if energy is not None else set()
    found: tuple[Reason, ...] = ()
    for end in ends:
        if end.at_ns >= window.t1_ns:
            continue
        text = f"probe {end.probe} stopped before the window's end: {end.reason}"
        if end.probe in needed:
            found += raise_code("stream_ended", profile, text, groups=("energy",), severity="invalid")
            found += raise_code("stream_ended", profile, text, groups=("memory",))
        else:
            found += raise_code("stream_ended", profile, text)
    return found
