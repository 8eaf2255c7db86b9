"""Energy of one device over a window, by its counter and by the integral of its power. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bench.records import DeviceInfo, FloatArray, SensorInfo, Window
from bench.stats import block_count
from bench.timing.counters import Curve, Fault, counter_curve, power_curve
from bench.timing.readings import DeviceSeries, plausible_power_w
from bench.units import NS_PER_S

NO_SENSOR = "no_sensor"
"""Fault of a device that can't measure power at all."""
GAP_PERIODS = 3.0
"""Polls further apart than this many periods leave a gap that nothing was seen in."""
MIN_COVERAGE = 0.99
"""Gaps that leave more than this share of the window seen widen the interval; larger ones leave no energy."""
MAX_DISAGREEMENT = 0.05
"""Counter and integral may differ by this share before neither is believed."""
COMPARE_AFTER = 20.0
"""Counter and integral are compared only in windows of more than this many averaging windows of the power sensor."""
MAX_ENDPOINT_SHARE = 0.05
"""A window whose two ends are less certain than this share of its energy is below the sensor's resolution."""
MIN_AVERAGES = 5.0
STUCK_AFTER_S = 1.0
STUCK_PERIODS = 10.0
"""A counter that stands still this many times longer than usual, while power is drawn, is stuck."""
SEEN_SHARE = 0.9
"""A sensor that sees less than this share of the time is a part-time one."""
ALIASED_STEP = 0.25
"""Neighbouring readings that usually differ by more than this share of the mean don't follow the power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEnergy:
    """Energy of one device over one window. `energy_j` is None when it can't be told, and `faults` say why.

    `low_j`, `high_j`: bounds from what no sensor saw (gaps, part-time sensors); equal to `energy_j` when all was seen.
    `endpoint_j`: half-width from the timing of both ends. `gain_j`: half-width from the sensor's gain, None when no source
    gives one. `block_j`: energy of equal blocks. `other_j`: what the method not used says, None when there is none or when
    it did not see the whole window.
    `peak_w`: highest power read in the window.
    """

    device: DeviceInfo
    method: Literal["counter", "integral"] | None
    energy_j: float | None
    low_j: float | None = None
    high_j: float | None = None
    endpoint_j: float = 0.0
    gain_j: float | None = None
    coverage: float = 0.0
    block_j: FloatArray | None = None
    other_j: float | None = None
    peak_w: float | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Polls:
    """Readings around one window, in seconds from its start."""

    device: DeviceInfo
    t_s: FloatArray
    power_w: FloatArray
    energy_j: FloatArray
    length_s: float
    period_s: float
    refused: int

    @property
    def gap_s(self) -> float:
        return GAP_PERIODS * self.period_s


def device_energy(series: DeviceSeries, window: Window, period_s: float, idle_w: float | None = None) -> DeviceEnergy:
    """Energy [J] of `series` over `window`, polled every `period_s`. `idle_w` bounds from below what a gap may have drawn.

    The counter is preferred; a stuck one gives way to the integral, one that was reset gives nothing.
    """
    device = series.device
    if device.power is None and device.energy is None:
        why = device.power_reason or "no power or energy sensor"
        return DeviceEnergy(device=device, method=None, energy_j=None, faults=(Fault(code=NO_SENSOR, message=why),))
    polls = _around(series, window, period_s)
    counter = _by_counter(polls) if bool((~np.isnan(polls.energy_j)).any()) else None
    integral = _by_integral(polls, idle_w) if bool((~np.isnan(polls.power_w)).any()) else None
    if counter is None and integral is None:
        return _missing(device, _nothing_read(polls))
    stuck = counter is not None and any(f.code == "counter_stuck" for f in counter.faults)
    if counter is None or (stuck and integral is not None and integral.energy_j is not None):
        assert integral is not None
        return replace(integral, faults=(*integral.faults, *(counter.faults if counter else ())))
    return _compared(counter, integral, polls)


def _around(series: DeviceSeries, window: Window, period_s: float) -> _Polls:
    """The readings in the window and a little on either side: a baseline taken long before says nothing of its edges."""
    t_s = (series.t_ns - window.t0_ns) / NS_PER_S
    length_s = window.seconds
    update_s = (series.device.energy.update_period_s if series.device.energy else None) or 0.0
    margin_s = max(5.0, 10.0 * period_s, 10.0 * update_s)
    keep = (t_s >= -margin_s) & (t_s <= length_s + margin_s)
    steps = np.diff(t_s[keep])
    usual_s = float(np.median(steps)) if len(steps) else period_s
    return _Polls(
        device=series.device,
        t_s=t_s[keep],
        power_w=series.power_w[keep],
        energy_j=series.energy_j[keep],
        length_s=length_s,
        period_s=max(period_s, usual_s),
        refused=series.refused,
    )


def _nothing_read(polls: _Polls) -> Fault:
    if polls.refused:
        watts = plausible_power_w(polls.device)
        text = f"{polls.refused} readings above {watts:.0f} W or below 0 refused: likely a unit error of {polls.device.probe}"
        return Fault(code="impossible", message=text)
    return Fault(code="power_coverage", message="no power or energy reading in the window")


def _missing(device: DeviceInfo, *faults: Fault, coverage: float = 0.0) -> DeviceEnergy:
    return DeviceEnergy(device=device, method=None, energy_j=None, coverage=coverage, faults=faults)


# --- by counter -------------------------------------------------------------------------------------------------------


def _by_counter(polls: _Polls) -> DeviceEnergy:
    sensor = polls.device.energy or _UNKNOWN
    if (stuck := _stuck(polls, sensor)) is not None:
        return _missing(polls.device, stuck)
    curve = counter_curve(
        polls.t_s,
        polls.energy_j,
        max_power_w=plausible_power_w(polls.device),
        wrap_j=sensor.wrap_j,
        update_period_s=sensor.update_period_s,
    )
    if isinstance(curve, Fault):
        return _missing(polls.device, curve)
    step_s = max(polls.period_s, float(np.median(np.diff(curve.t_s))))
    late_s = max(float(curve.t_s[0]), polls.length_s - float(curve.t_s[-1]), 0.0)
    if late_s > GAP_PERIODS * step_s:
        seen = max(0.0, min(polls.length_s, float(curve.t_s[-1])) - max(0.0, float(curve.t_s[0]))) / polls.length_s
        fault = Fault(
            code="power_coverage", message=f"the energy counter was last seen to change {late_s:.1f} s from the window's edge"
        )
        return _missing(polls.device, fault, coverage=seen)
    return _over(
        curve, polls, sensor, "counter", endpoint_j=float(np.hypot(curve.endpoint_j(0.0), curve.endpoint_j(polls.length_s)))
    )


def _stuck(polls: _Polls, sensor: SensorInfo) -> Fault | None:
    known = ~np.isnan(polls.energy_j)
    t, e = polls.t_s[known], polls.energy_j[known]
    if len(t) < 2:
        return None
    moves = np.flatnonzero(np.diff(e) != 0) + 1
    bounds = np.unique(np.concatenate(([0], moves, [len(t) - 1])))
    spans = np.diff(t[bounds])
    usual_s = float(np.median(np.diff(t[moves]))) if len(moves) >= 3 else 0.0
    limit_s = max(STUCK_AFTER_S, STUCK_PERIODS * max(usual_s, sensor.update_period_s or 0.0))
    for i in np.flatnonzero(spans > limit_s).tolist():
        begin_s, end_s = float(t[bounds[i]]), float(t[bounds[i + 1]])
        drawn = polls.power_w[(polls.t_s >= begin_s) & (polls.t_s <= end_s)]
        drawn = drawn[~np.isnan(drawn)]
        if end_s > 0 and begin_s < polls.length_s and len(drawn) and float(drawn.mean()) > 0:
            text = f"the energy counter stood still for {end_s - begin_s:.1f} s while {float(drawn.mean()):.0f} W were drawn"
            return Fault(code="counter_stuck", message=text)
    return None


# --- by integral ------------------------------------------------------------------------------------------------------


def _by_integral(polls: _Polls, idle_w: float | None) -> DeviceEnergy:
    sensor = polls.device.power or _UNKNOWN
    curve = power_curve(polls.t_s, polls.power_w)
    if curve is None or curve.power_w is None:
        return _missing(polls.device, Fault(code="power_coverage", message="one power reading: two are needed"))
    least_w, most_w = _power_bounds(curve.power_w, polls.device, idle_w)
    gaps = _gaps(curve.t_s, polls)
    gap_s = float(sum(end - begin for begin, end in gaps))
    averaging_s = sensor.averaging_window_s or 0.0
    edges = curve.power_w[np.searchsorted(curve.t_s, [0.0, polls.length_s]).clip(0, len(curve.t_s) - 1)]
    endpoint_j = averaging_s / 2.0 * float(np.abs(edges - curve.power_w.mean()).sum())
    found = _over(curve, polls, sensor, "integral", endpoint_j=endpoint_j)
    assert found.energy_j is not None
    faults = list(found.faults)
    blind = found.energy_j - sum(float(np.diff(curve.at(np.array(gap)))[0]) for gap in gaps)
    low_j, high_j = blind + gap_s * least_w, blind + gap_s * most_w
    coverage = 1.0 - gap_s / polls.length_s
    if gap_s > 0:
        longest_s = max(end - begin for begin, end in gaps)
        text = f"power was read over {coverage:.2%} of the window; the longest gap is {longest_s:.1f} s, and may have drawn "
        text += f"{least_w:.0f} to {most_w:.0f} W"
        faults.append(Fault(code="power_coverage" if coverage < MIN_COVERAGE else "power_gap", message=text))
    interval_s = max(sensor.update_period_s or 0.0, polls.period_s)
    if sensor.averaging_window_s is not None and sensor.averaging_window_s < SEEN_SHARE * interval_s:
        seen = sensor.averaging_window_s / interval_s
        low_j = seen * low_j + (1.0 - seen) * least_w * polls.length_s
        high_j = seen * high_j + (1.0 - seen) * most_w * polls.length_s
        text = f"the power sensor sees {seen:.0%} of the time, and may see the same phase of a load each time: the rest is "
        text += f"bounded by {least_w:.0f} and {most_w:.0f} W"
        faults.append(Fault(code="part_time_sensor", message=text))
    if (alias := _aliased(curve.power_w, sensor)) is not None:
        faults.append(alias)
    if averaging_s * MIN_AVERAGES > polls.length_s:
        text = f"the window is shorter than {MIN_AVERAGES:.0f} averaging windows of {averaging_s:g} s"
        faults.append(Fault(code="below_sensor_resolution", message=text))
    return replace(found, low_j=low_j, high_j=high_j, coverage=coverage, faults=tuple(faults))


def _aliased(power_w: FloatArray, sensor: SensorInfo) -> Fault | None:
    """Readings that jump from one to the next. A known averaging window is judged by what it leaves unseen instead."""
    if sensor.averaging_window_s is not None or len(power_w) < 3:
        return None
    step_w, mean_w = float(np.median(np.abs(np.diff(power_w)))), float(power_w.mean())
    if mean_w <= 0.0 or step_w <= ALIASED_STEP * mean_w:
        return None
    text = f"power usually moves by {step_w:.0f} W between two polls, at a mean of {mean_w:.0f} W: poll faster"
    return Fault(code="aliased", message=text)


def _power_bounds(power_w: FloatArray, device: DeviceInfo, idle_w: float | None) -> tuple[float, float]:
    """What the device drew at least and at most while nobody looked [W]."""
    least, most = float(power_w.min()), float(power_w.max())
    return min(least, idle_w if idle_w is not None else least), max(most, device.power_limit_w or most)


def _gaps(t_s: FloatArray, polls: _Polls) -> list[tuple[float, float]]:
    """Stretches of the window between polls more than 3 periods apart, and before the first and after the last poll."""
    edges = np.concatenate(([min(0.0, float(t_s[0]))], t_s, [max(polls.length_s, float(t_s[-1]))]))
    wide = np.flatnonzero(np.diff(edges) > polls.gap_s)
    cut = ((max(0.0, float(edges[i])), min(polls.length_s, float(edges[i + 1]))) for i in wide.tolist())
    return [(begin, end) for begin, end in cut if end > begin]


# --- both -------------------------------------------------------------------------------------------------------------

_UNKNOWN = SensorInfo(api="unknown", unit="unknown")


def _over(
    curve: Curve, polls: _Polls, sensor: SensorInfo, method: Literal["counter", "integral"], *, endpoint_j: float
) -> DeviceEnergy:
    edges = np.linspace(0.0, polls.length_s, block_count(polls.length_s) + 1)
    along = curve.at(edges)
    energy_j = float(along[-1] - along[0])
    inside = polls.power_w[(polls.t_s >= 0) & (polls.t_s < polls.length_s)]
    inside = inside[~np.isnan(inside)]
    faults: tuple[Fault, ...] = ()
    if endpoint_j > MAX_ENDPOINT_SHARE * energy_j:
        text = f"the window's ends are certain to {endpoint_j:.3g} J of {energy_j:.3g} J: measure longer or poll faster"
        faults = (Fault(code="below_sensor_resolution", message=text),)
    return DeviceEnergy(
        device=polls.device,
        method=method,
        energy_j=energy_j,
        low_j=energy_j,
        high_j=energy_j,
        endpoint_j=endpoint_j,
        gain_j=None if sensor.gain_error is None else sensor.gain_error * energy_j,
        coverage=1.0,
        block_j=np.diff(along),
        peak_w=float(inside.max()) if len(inside) else None,
        faults=faults,
    )


def _compared(counter: DeviceEnergy, integral: DeviceEnergy | None, polls: _Polls) -> DeviceEnergy:
    """The counter's result, checked against the integral where the window is long enough for both."""
    if integral is None or integral.energy_j is None or counter.energy_j is None or integral.coverage < MIN_COVERAGE:
        return counter
    sensor = polls.device.power or _UNKNOWN
    averaging_s = sensor.averaging_window_s or max(sensor.update_period_s or 0.0, polls.period_s)
    apart = abs(counter.energy_j - integral.energy_j) / max(counter.energy_j, integral.energy_j, 1e-12)
    checked = replace(counter, other_j=integral.energy_j)
    if polls.length_s <= COMPARE_AFTER * averaging_s or apart <= MAX_DISAGREEMENT:
        return checked
    text = f"counter {counter.energy_j:.6g} J and integral {integral.energy_j:.6g} J differ by {apart:.1%}"
    return replace(checked, faults=(*counter.faults, Fault(code="power_methods_disagree", message=text)))
