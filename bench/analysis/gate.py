"""Did a series get worse? One night after the other, each against the nights before it. Pure.

A night triggers where the mid repeat is worse than the baseline by a robust z-score and by a least effect. A trigger is no
finding: pairs measured in turns on one night (base build, candidate, candidate, base, ...) confirm it, because what ails the
night ails both of a pair. A reference, whose build never changes, says the same without pairs: for as much as it got worse too,
the night is to blame. Triggers that come night after night though the build is not to blame are a shift of the host.
Sources: median absolute deviation: Rousseeuw and Croux 1993; paired Student's t.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

import numpy as np

from bench.analysis.multiple import adjusted_p
from bench.stats import student_tails

State = Literal["ok", "trigger", "confirmed", "host_shift", "insufficient data", "missing result", "accepted change point"]
FINDINGS: tuple[State, ...] = ("confirmed", "host_shift")

BASELINE_NIGHTS = 20
FEWEST_NIGHTS = 8
SPREAD_NIGHTS = 60
FEWEST_SURPRISES = 20
"""Nights whose distance from their own baseline tells how much nights vary: 20 alone would give a spread a fifth off."""
TRIGGER_Z = 2.5
LARGE_Z = 1.5
"""Enough for a change of twice the least effect."""
LEAST_SIGMA = 0.005
"""Nights are never taken for steadier than this [in logs]: the spread of a few can be small by chance."""
MAD_TO_SIGMA = 1.4826
CONFIRM_EFFECT = 0.015
CONFIRM_P = 0.01
NIGHT_FALSE_SHARE = 0.05
"""Benjamini-Hochberg over the pairs of a night."""
PAIRS = 5
"""So many are measured where nobody says."""
FEWEST_PAIRS = 3
SHIFT_NIGHTS = 5
SHIFT_OF = 7
"""A host has shifted when so many of its last so many nights triggered and the build was not to blame."""
BASE_AGE = 14
"""So many nights before tonight ran the build that tonight's is measured against in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What of a metric is worse, and the least change that matters, as a share."""

    better: Literal["up", "down"]
    least_effect: float


RULES = {
    "output_tok_per_s": Rule(better="up", least_effect=0.02),
    "tpot_ms": Rule(better="down", least_effect=0.03),
    "ttft_ms": Rule(better="down", least_effect=0.05),
    "ttft_scheduled_ms": Rule(better="down", least_effect=0.05),
    "j_per_output_tok": Rule(better="down", least_effect=0.03),
}
"""What is gated: scalars by their value, distributions by their p50. Higher quantiles are observed, never gated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The valid repeats of one series on one night, each > 0, and pairs (base, candidate) that were measured in turns for it.
    `accepted`: why a change from this night on is meant to be, if it is. `is_reference`: its build is the one of the night before
    and is kept so, to tell what the host does.
    """

    night: str
    values: tuple[float, ...]
    pairs: tuple[tuple[float, float], ...] = ()
    accepted: str | None = None
    is_reference: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What the pairs of a night say: `change` for the worse as a share, one-sided `p` of "not worse", and that adjusted for all
    pairs of the night.
    """

    change: float
    p: float
    adjusted: float
    pairs: int

    @property
    def is_worse(self) -> bool:
        return self.change >= CONFIRM_EFFECT and self.p < CONFIRM_P and self.adjusted < NIGHT_FALSE_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A night and what came of it. `x`: log of the mid repeat. `change` for the worse as a share of the baseline, `z` the same in
    standard deviations of nights; None without a baseline. `host_moved`: whether the references of the host explain the change;
    None where none speaks. `since`: the night on which a finding began.
    """

    night: str
    state: State
    x: float
    baseline: int
    centre: float | None = None
    change: float | None = None
    z: float | None = None
    triggered: bool = False
    confirmation: Confirmation | None = None
    host_moved: bool | None = None
    since: str | None = None

    @property
    def counts(self) -> bool:
        """Whether later nights are measured against it."""
        return not self.triggered and self.state not in FINDINGS

    @property
    def in_vain(self) -> bool:
        """Whether it triggered and the build is known not to be to blame."""
        spoken = bool(self.host_moved) if self.confirmation is None else not self.confirmation.is_worse
        return self.triggered and spoken

    @property
    def wants_pairs(self) -> bool:
        """Whether only pairs can tell if the build is to blame; during a shift of the host, where a reference says it may be."""
        if self.confirmation is not None or not self.triggered:
            return False
        return self.host_moved is False if self.state == "host_shift" else self.state == "trigger" and not self.host_moved


def judge_all(
    series: Mapping[str, Sequence[Night]], rules: Mapping[str, Rule], hosts: Mapping[str, str] | None = None
) -> dict[str, list[Judged]]:
    """Every night of every series, oldest first; the pairs of one night are judged together. `hosts`: what a series must share
    with a reference that is to speak for it: host, profile, metric.
    """
    found: dict[str, list[Judged]] = {key: [] for key in series}
    by_night: defaultdict[str, dict[str, Night]] = defaultdict(dict)
    for key, nights in series.items():
        for night in nights:
            by_night[night.night][key] = night
    for _, tonight in sorted(by_night.items()):
        for key, judged in judge_tonight(found, tonight, rules, hosts).items():
            found[key].append(judged)
    return found


def judge_tonight(
    past: Mapping[str, Sequence[Judged]],
    tonight: Mapping[str, Night],
    rules: Mapping[str, Rule],
    hosts: Mapping[str, str] | None = None,
) -> dict[str, Judged]:
    """One night of several series after what each was judged before, as in `judge_all`; its pairs are judged together."""
    confirmations = [confirm(night.pairs, rules[key]) for key, night in tonight.items()]
    adjusted = dict(zip(tonight, adjusted_p([None if one is None else one.p for one in confirmations]), strict=True))
    references: defaultdict[str, list[Judged]] = defaultdict(list)
    found: dict[str, Judged] = {}
    for key, night in sorted(tonight.items(), key=lambda one: not one[1].is_reference):
        beside = references[(hosts or {}).get(key, "")]
        found[key] = judge_night(past[key], night, rules[key], adjusted=adjusted[key], references=beside)
        if night.is_reference:
            beside.append(found[key])
    return found


def judge_night(
    past: Sequence[Judged], night: Night, rule: Rule, *, adjusted: float | None = None, references: Sequence[Judged] = ()
) -> Judged:
    """One night after those before it, oldest first. `adjusted`: the p-value of its pairs among all of that night, where more
    than one series was paired. `references`: what those of the host were judged to be that night.
    """
    x = math.log(median(night.values))
    base = _baseline(past)
    blank = Judged(night=night.night, state="insufficient data", x=x, baseline=len(base))
    if night.accepted is not None:
        return replace(blank, state="accepted change point", baseline=0)
    if len(base) < FEWEST_NIGHTS:
        return blank
    sign = 1.0 if rule.better == "down" else -1.0
    centre = median(base)
    change, z = share(sign * (x - centre), sign), sign * (x - centre) / _sigma(past, base, centre)
    large = z > LARGE_Z and change >= 2.0 * rule.least_effect
    judged = replace(
        blank,
        centre=math.exp(centre),
        change=change,
        z=z,
        triggered=large or (z > TRIGGER_Z and change >= rule.least_effect),
        confirmation=confirm(night.pairs, rule, adjusted=adjusted),
        host_moved=True if night.is_reference else _host_moved(change, references, rule),
    )
    return _with_state(judged, past)


def _host_moved(change: float, references: Sequence[Judged], rule: Rule) -> bool | None:
    """Whether all references show more than half of a change, and what they don't show is too little to matter. A host that got
    worse must hide no build that did, too.
    """
    shown = [one.change for one in references if one.change is not None]
    if not shown:
        return None
    return change - min(shown) < min(rule.least_effect, change / 2.0)


def base_nights(past: Sequence[Judged]) -> list[str]:
    """Nights whose build that of the next night may be measured against, the best first: the last good one that is two weeks old,
    else the oldest; on a later one, and these follow in order, the build may have been bad already, and lucky. None since before
    the last accepted change.
    """
    good = [one.night for one in since_accepted(past) if one.counts]
    recent = {one.night for one in past[-(BASE_AGE - 1) :]}
    return good[max((place for place, night in enumerate(good) if night not in recent), default=0) :]


def since_accepted(judged: Sequence[Judged]) -> Sequence[Judged]:
    """The nights from the last accepted change point on, with it; all where there is none."""
    return judged[max((number for number, one in enumerate(judged) if one.state == "accepted change point"), default=0) :]


def _baseline(past: Sequence[Judged]) -> list[float]:
    """The last nights that count, back to the last accepted change point, with it. A trigger that came to nothing counts once it
    can't be part of a shift of the host any more: left out for good, the bad nights of a steady host would seem ever rarer.
    """
    found: list[float] = []
    for age, judged in enumerate(reversed(past), start=1):
        came_to_nothing = judged.state == "trigger" and judged.in_vain
        if judged.counts or (came_to_nothing and age >= SHIFT_OF):
            found.append(judged.x)
        if len(found) == BASELINE_NIGHTS or judged.state == "accepted change point":
            break
    return found


def _sigma(past: Sequence[Judged], base: Sequence[float], centre: float) -> float:
    """Standard deviation of nights, in logs: from how far each lay from its own baseline, triggers that came to nothing included;
    from the baseline alone while there are few.
    """
    surprises: list[float] = []
    for judged in reversed(past):
        if judged.state == "accepted change point" or len(surprises) == SPREAD_NIGHTS:
            break
        if judged.centre is not None and judged.state not in FINDINGS:
            surprises.append(abs(judged.x - math.log(judged.centre)))
    enough = len(surprises) >= FEWEST_SURPRISES
    return robust_sigma(surprises if enough else [abs(value - centre) for value in base])


def robust_sigma(distances: Sequence[float]) -> float:
    """The standard deviation that distances from a centre tell; no less than a host has."""
    return max(MAD_TO_SIGMA * median(distances), LEAST_SIGMA)


def share(worse: float, sign: float) -> float:
    """A change in logs, positive for worse, as a share of what was: 5% slower is 0.05 whichever way the metric counts."""
    return sign * math.expm1(sign * worse)


def _with_state(judged: Judged, past: Sequence[Judged]) -> Judged:
    last = past[-1] if past else None
    confirmed = judged.triggered and judged.confirmation is not None and judged.confirmation.is_worse
    stands = last is not None and (last.state == "confirmed" or (last.state == "host_shift" and not confirmed))
    if stands and last is not None and _still_there(judged, past):
        return replace(judged, state=last.state, since=last.since)
    if not judged.triggered:
        return replace(judged, state="ok")
    if confirmed:
        return replace(judged, state="confirmed", since=judged.night)
    run = [*past[-(SHIFT_OF - 1) :], judged]
    in_vain = [one for one in run if one.in_vain]
    if judged.in_vain and len(in_vain) >= SHIFT_NIGHTS:
        return replace(judged, state="host_shift", since=in_vain[0].night)
    return replace(judged, state="trigger")


def _still_there(judged: Judged, past: Sequence[Judged]) -> bool:
    """Whether a finding goes on: more than half of the change with which it began is still seen, tonight or the night before. A
    single good night ends nothing.
    """
    began = next(one for one in reversed(past) if one.night == past[-1].since or one.state not in FINDINGS)
    half = (began.change or 0.0) / 2.0
    return max(judged.change or 0.0, past[-1].change or 0.0) > half


def confirm(pairs: Sequence[tuple[float, float]], rule: Rule, *, adjusted: float | None = None) -> Confirmation | None:
    """Paired one-sided t-test on the logs of (base, candidate); None with fewer than three pairs."""
    if len(pairs) < FEWEST_PAIRS:
        return None
    sign = 1.0 if rule.better == "down" else -1.0
    worse = sign * np.array([math.log(cand / base) for base, cand in pairs])
    mean, error = float(worse.mean()), float(worse.std(ddof=1)) / math.sqrt(len(worse))
    if error == 0.0:
        p = 0.0 if mean > 0.0 else 1.0
    else:
        tails = student_tails(mean / error, len(worse) - 1)
        p = tails / 2.0 if mean > 0.0 else 1.0 - tails / 2.0
    return Confirmation(change=share(mean, sign), p=p, adjusted=p if adjusted is None else adjusted, pairs=len(pairs))
