"""What each part of an interval is worth: 95% half-widths by their cause, added in quadrature. Pure."""

from __future__ import annotations

import math

from msgspec.structs import replace

from bench.records import Metric
from bench.timing.scopes import ScopeEnergy
from bench.timing.spec import scalar

Terms = dict[str, tuple[float, float]]
"""Half-widths below and above a value, by cause."""

GAIN = "gain"
MEANINGS = {
    "blocks": "how much the load and the power move from block to block of the window",
    "ends": "timing of the sensor at the window's two ends",
    "unseen": "gaps between polls, and what a sensor misses that looks part of the time",
    "token_count": "tokens of chunks that may lie on either side of an end",
    "idle": "the idle power that is taken off",
    GAIN: "the sensor's calibration, the same for all readings of a board",
}
"""Every term in words."""


def energy_terms(energy: ScopeEnergy, gain_j: float | None) -> Terms:
    """The terms of the energy itself [J]; `gain` only where the sensor's error is known."""
    assert energy.energy_j is not None
    low_j = energy.energy_j if energy.low_j is None else energy.low_j
    high_j = energy.energy_j if energy.high_j is None else energy.high_j
    terms = {
        "ends": (energy.endpoint_j, energy.endpoint_j),
        "unseen": (max(0.0, energy.energy_j - low_j), max(0.0, high_j - energy.energy_j)),
    }
    return terms if gain_j is None else terms | {GAIN: (gain_j, gain_j)}


def scaled(terms: Terms, factor: float) -> Terms:
    """`terms` in another unit."""
    return {name: (below * factor, above * factor) for name, (below, above) in terms.items()}


def halves(terms: Terms) -> tuple[float, float]:
    """All terms together: half-widths below and above."""
    return math.hypot(*(below for below, _ in terms.values())), math.hypot(*(above for _, above in terms.values()))


def bounded(name: str, value: float, terms: Terms, *, n: int = 1, source: str | None = None) -> Metric:
    """`name` with the absolute interval of `terms`: none where they hold no `gain`. Terms of no width are left out."""
    kept = {cause: width for cause, width in terms.items() if max(width) > 0.0}
    if GAIN not in terms:
        return replace(scalar(name, value, n=n, source=source), terms=kept)
    below, above = halves(terms)
    return replace(scalar(name, value, low=_low(name, value - below), high=value + above, n=n, source=source), terms=kept)


def _low(name: str, low: float) -> float:
    """What is drawn can't be less than nothing; what is left above an idle may be."""
    return low if "_net" in name else max(0.0, low)


def same_board(name: str, metric: Metric, source: str | None) -> Metric:
    """`metric` as `name` with the interval that compares a board with itself: the gain cancels."""
    assert metric.value is not None
    terms = {cause: width for cause, width in metric.terms.items() if cause != GAIN}
    below, above = halves(terms)
    return replace(metric, name=name, low=_low(name, metric.value - below), high=metric.value + above, source=source, terms=terms)
