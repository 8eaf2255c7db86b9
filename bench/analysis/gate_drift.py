"""What got worse so slowly that no night saw it: the first nights of a history against its last. Pure.

A baseline that moves along with the nights takes a small loss each week for granted. Here both ends are medians of nights that
were found to be in order, so that a change that was found, or a few bad nights, make no drift.
Source: the standard error of a median is sqrt(pi/2) that of a mean; that of a mean of nights with correlation r is
sqrt((1+r)/(1-r)) larger than of independent ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.analysis.gate import Judged, Rule, robust_sigma, share, since_accepted

END_NIGHTS = 20
"""At each end of the history."""
FEWEST_NIGHTS = 60
"""Between the first night and the last: what moved faster than that is for the gate."""
DRIFT_Z = 4.5
"""At 4 one series in forty without a change would be told of within a year."""
NIGHT_CORRELATION = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How much worse the last nights are than the first, as a share, and in standard errors. `since`: the first night."""

    change: float
    z: float
    since: str


def drift_of(judged: Sequence[Judged], rule: Rule) -> Drift | None:
    """The drift of a series, nights oldest first, since its last accepted change; None where there is none worth telling, or the
    history is too short to say.
    """
    good = [one for one in since_accepted(judged) if one.counts]
    if len(good) < FEWEST_NIGHTS:
        return None
    first, last = ([one.x for one in end] for end in (good[:END_NIGHTS], good[-END_NIGHTS:]))
    sign = 1.0 if rule.better == "down" else -1.0
    worse = sign * (median(last) - median(first))
    inflated = math.pi / 2.0 * (1.0 + NIGHT_CORRELATION) / (1.0 - NIGHT_CORRELATION)
    error = math.sqrt(inflated * (_sigma(first) ** 2 + _sigma(last) ** 2) / END_NIGHTS)
    found = Drift(change=share(worse, sign), z=worse / error, since=good[0].night)
    return found if found.z > DRIFT_Z and found.change >= rule.least_effect else None


def _sigma(values: Sequence[float]) -> float:
    centre = median(values)
    return robust_sigma([abs(value - centre) for value in values])
