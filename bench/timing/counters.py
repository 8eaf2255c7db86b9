"""Cumulative energy over time, from a counter or from power. Pure.

Both kinds give a `Curve`: joules since its first point, linear (counter) or quadratic (power) between points. A window's
energy is then a difference of two values of one curve, so windows add up exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.records import FloatArray
from bench.timing.population import BoolArray

JUMP = 2.0
"""A step of the counter above this multiple of what the device can draw is none of its energy. A poll may be stamped late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with an energy number: a validity code, and the words for a person."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Joules `j` at seconds `t_s`; `power_w` at the points where it is an integral, None where it is a counter.

    `uncertain_s`: half-width of what is known of each point's time.
    """

    t_s: FloatArray
    j: FloatArray
    uncertain_s: FloatArray
    power_w: FloatArray | None = None

    def at(self, t_s: FloatArray) -> FloatArray:
        """Joules at `t_s`; outside the points the nearest segment (counter) or power (integral) goes on."""
        i = np.clip(np.searchsorted(self.t_s, t_s, side="right") - 1, 0, len(self.t_s) - 2)
        width = self.t_s[i + 1] - self.t_s[i]
        past = t_s - self.t_s[i]
        if self.power_w is None:
            return self.j[i] + (self.j[i + 1] - self.j[i]) * past / width
        slope = (self.power_w[i + 1] - self.power_w[i]) / width
        inner = self.j[i] + self.power_w[i] * past + 0.5 * slope * past**2
        before = self.j[0] + self.power_w[0] * (t_s - self.t_s[0])
        after = self.j[-1] + self.power_w[-1] * (t_s - self.t_s[-1])
        return np.where(t_s < self.t_s[0], before, np.where(t_s > self.t_s[-1], after, inner))

    def endpoint_j(self, t_s: float) -> float:
        """How far off the value at `t_s` may be [J]: local power times the timing uncertainty of the nearest point."""
        i = int(np.clip(np.searchsorted(self.t_s, t_s), 1, len(self.t_s) - 1))
        power = float((self.j[i] - self.j[i - 1]) / (self.t_s[i] - self.t_s[i - 1]))
        return abs(power) * float(max(self.uncertain_s[i], self.uncertain_s[i - 1]))


def power_curve(t_s: FloatArray, power_w: FloatArray) -> Curve | None:
    """Integral of power over every poll (equal neighbours too): trapezoids. None for fewer than two readings."""
    known = ~np.isnan(power_w)
    t, p = t_s[known], power_w[known]
    if len(t) < 2:
        return None
    j = np.concatenate(([0.0], np.cumsum(np.diff(t) * (p[1:] + p[:-1]) / 2.0)))
    return Curve(t_s=t, j=j, uncertain_s=np.zeros(len(t)), power_w=p)


def counter_curve(
    t_s: FloatArray,
    energy_j: FloatArray,
    *,
    max_power_w: float,
    wrap_j: float | None = None,
    update_period_s: float | None = None,
) -> Curve | Fault:
    """A counter's joules at the moments when it *changed*: between changes a poll only sees an old value.

    A change lies between the poll that first shows it and the one before, and no more than an update period before the
    former; the middle of what is left is its time. A fall is a wrap only when `wrap_j` is known, the rise it means is
    credible, and no wrap can have gone unseen between any two polls; otherwise it is a reset, and refused. So is a jump.
    """
    known = ~np.isnan(energy_j)
    t, e = t_s[known], energy_j[known]
    if len(t) < 2:
        return Fault(code="power_coverage", message=f"{len(t)} readings of the energy counter: two are needed")
    rise = np.diff(e)
    fault = _fall_fault(t, e, rise, wrap_j, max_power_w)
    if fault is not None:
        return fault
    j = np.concatenate(([0.0], np.cumsum(np.where(rise < 0, rise + (wrap_j or 0.0), rise))))
    if (jump := _jump_fault(t, j, rise != 0, max_power_w)) is not None:
        return jump
    speed = float(j[-1] / (t[-1] - t[0]))
    if speed > max_power_w:
        return Fault(
            code="counter_reset", message=f"the energy counter rose at {speed:.0f} W, above {max_power_w:.0f} W: not credible"
        )
    return _at_changes(t, j, rise != 0, update_period_s)


def _fall_fault(t: FloatArray, e: FloatArray, rise: FloatArray, wrap_j: float | None, max_power_w: float) -> Fault | None:
    falls = np.flatnonzero(rise < 0)
    if wrap_j is None:
        if len(falls) == 0:
            return None
        i = int(falls[0])
        return Fault(
            code="counter_reset", message=f"the energy counter fell from {e[i]:.6g} to {e[i + 1]:.6g} J, and has no known wrap"
        )
    longest_s = float(np.diff(t).max())
    if longest_s * max_power_w >= wrap_j:
        return Fault(
            code="counter_reset",
            message=f"polls {longest_s:.1f} s apart can miss a wrap of {wrap_j:.6g} J at {max_power_w:.0f} W: poll more often",
        )
    for i in falls.tolist():
        if (rise[i] + wrap_j) > max_power_w * (t[i + 1] - t[i]):
            return Fault(
                code="counter_reset", message=f"the energy counter fell from {e[i]:.6g} to {e[i + 1]:.6g} J: a reset, not a wrap"
            )
    return None


def _jump_fault(t: FloatArray, j: FloatArray, changed: BoolArray, max_power_w: float) -> Fault | None:
    """A single step that no watts explain: over a long window its mean would look like any other.

    What a step adds was drawn since the step before it, which came after the last poll that did not show that one.
    """
    at = np.flatnonzero(changed) + 1
    span_s, step_j = t[at[1:]] - t[at[:-1] - 1], np.diff(j[at])
    far = np.flatnonzero(step_j > JUMP * max_power_w * span_s)
    if len(far) == 0:
        return None
    i = int(far[0])
    text = f"the energy counter jumped by {step_j[i]:.6g} J within {span_s[i]:.2g} s, above {max_power_w:.0f} W: not credible"
    return Fault(code="counter_reset", message=text)


def _at_changes(t: FloatArray, j: FloatArray, changed: BoolArray, update_s: float | None) -> Curve | Fault:
    at = np.flatnonzero(changed) + 1
    if len(at) == 0:
        return Fault(code="below_sensor_resolution", message="the energy counter did not change between the readings")
    every_poll = bool(changed.all())
    gap = t[at] - t[at - 1]
    # a counter seen to change at every poll updates faster than that: its value is fresh, unless its period is known
    back = np.minimum(gap, update_s) if update_s is not None else (np.zeros(len(at)) if every_poll else gap)
    moment, value, uncertain = t[at] - back / 2.0, j[at], (back if update_s is not None else gap) / 2.0
    if every_poll or len(at) < 2:  # the first poll is then as good a point as any, or the only other one
        first_back = float(back[0]) if every_poll else 0.0
        moment = np.concatenate(([t[0] - first_back / 2.0], moment))
        value, uncertain = np.concatenate(([0.0], value)), np.concatenate((uncertain[:1], uncertain))
    keep = np.concatenate(([True], np.diff(moment) > 0))
    return Curve(t_s=moment[keep], j=value[keep], uncertain_s=uncertain[keep])
