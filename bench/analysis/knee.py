"""Where throughput stops growing with load. Pure.

The knee is the smallest load that doubling would raise throughput by less than a stated share. A doubling is far longer than
the steps between neighbouring points, so that the noise of two points is small beside what is asked: a slope between neighbours
would drown in it. Throughput between measured loads is interpolated on log-log axes, where a power law is a straight line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.stats import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """What was measured at one load: throughput [tok/s] with its 95% interval, and the share of `requests` that met every SLO.
    `problem` says why it does not count; it is `starved` where only too little load is the matter.
    """

    load: float
    throughput: Estimate | None = None
    attained: float | None = None
    requests: int = 0
    goodput_rps: float | None = None
    problem: str | None = None
    starved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Growth of throughput when load doubles, as a share: 1 is twice as much, 0 none. `low`, `high` bound it at about 95%."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogPoint:
    load: float
    rate: float
    error: float | None


def usable(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """Points that count, by load."""
    return sorted((point for point in points if point.problem is None), key=lambda point: point.load)


def doubling_gain(points: Sequence[LoadPoint], load: float) -> Gain | None:
    """What doubling the measured `load` brings. Where twice the load lies above all points, the slope to the highest one is
    carried on. None for the highest one itself.
    """
    curve = [_logged(point) for point in usable(points)]
    here = next(point for point in curve if point.load == math.log(load))
    if here is curve[-1]:
        return None
    there = _at(curve, math.log(2 * load))
    doublings = (there.load - here.load) / math.log(2)
    growth = (there.rate - here.rate) / doublings
    if here.error is None or there.error is None:
        return Gain(value=math.expm1(growth), low=None, high=None)
    error = math.hypot(here.error, there.error) / doublings
    return Gain(value=math.expm1(growth), low=math.expm1(growth - error), high=math.expm1(growth + error))


def find_knee(points: Sequence[LoadPoint], least: float) -> LoadPoint | None:
    """The smallest measured load that gains less than `least` from doubling, as do all above it; None where even the last
    doubling gains more.
    """
    counted = usable(points)
    knee: LoadPoint | None = None
    for point in reversed(counted[:-1]):
        gain = doubling_gain(counted, point.load)
        if gain is None or gain.value >= least:
            break
        knee = point
    return knee


def is_flat(points: Sequence[LoadPoint], least: float) -> bool:
    """Whether the last steps say that the knee is passed: one whose whole interval gains less than `least`, or two in a row
    that do so by their values.
    """
    counted = usable(points)
    if len(counted) < 2:
        return False
    last = doubling_gain(counted, counted[-2].load)
    assert last is not None
    if last.value >= least:
        return False
    if last.high is not None and last.high < least:
        return True
    before = doubling_gain(counted[:-1], counted[-3].load) if len(counted) > 2 else None
    return before is not None and before.value < least


def _logged(point: LoadPoint) -> _LogPoint:
    assert point.throughput is not None
    found = point.throughput
    error = None
    if found.low is not None and found.high is not None and 0 < found.low <= found.value <= found.high:
        error = max(math.log(found.high / found.value), math.log(found.value / found.low))
    return _LogPoint(load=math.log(point.load), rate=math.log(found.value), error=error)


def _at(curve: Sequence[_LogPoint], load: float) -> _LogPoint:
    """The curve at `load` (a logarithm), at most its last point."""
    if load >= curve[-1].load:
        return curve[-1]
    right = next(index for index, point in enumerate(curve) if point.load > load)
    a, b = curve[right - 1], curve[right]
    part = (load - a.load) / (b.load - a.load)
    error = None if a.error is None or b.error is None else math.hypot((1 - part) * a.error, part * b.error)
    return _LogPoint(load=load, rate=(1 - part) * a.rate + part * b.rate, error=error)
