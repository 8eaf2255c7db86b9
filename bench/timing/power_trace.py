"""Power of a device along time, as a picture shows it. Pure."""

from __future__ import annotations

import numpy as np

from bench.records import FloatArray
from bench.timing.counters import Fault, counter_curve
from bench.timing.readings import DeviceSeries, plausible_power_w
from bench.units import NS_PER_S


def power_trace(series: DeviceSeries) -> tuple[FloatArray, FloatArray]:
    """Moments [s, monotonic] and watts at them: what the device said, or where it has only a counter of joules, the mean over
    each stretch in which that rose, at the stretch's middle. Empty where it told neither.
    """
    t_s = series.t_ns / NS_PER_S
    known = ~np.isnan(series.power_w)
    if known.any():
        return t_s[known], series.power_w[known]
    sensor = series.device.energy
    curve = counter_curve(
        t_s,
        series.energy_j,
        max_power_w=plausible_power_w(series.device),
        wrap_j=sensor.wrap_j if sensor else None,
        update_period_s=sensor.update_period_s if sensor else None,
    )
    if isinstance(curve, Fault):
        return np.zeros(0), np.zeros(0)
    return (curve.t_s[1:] + curve.t_s[:-1]) / 2.0, np.diff(curve.j) / np.diff(curve.t_s)
