"""Which measured setting to deploy: the best of those that meet latency limits and are correct enough. Pure.

Nothing is interpolated: each candidate is a point that was measured, and its worst repeat decides whether it meets a limit. They
are ranked by their geometric means; whether two differ at all is Welch's test on the logs, as in `bench.analysis.compare`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bench.analysis.candidates import (
    PPL,
    TOP1,
    UNITS,
    Candidate,
    Objective,
    Quantile,
    latencies,
    shared_gain,
    values,
    why,
    worst_figure,
)
from bench.analysis.compare import Comparison, adjust, mean_ratio
from bench.analysis.pool import pooled_value
from bench.records import Slo
from bench.timing.spec import Better

Lack = Literal["no correctness figure", "not correct enough", "no latency figure", "nothing to rank it by"]
UNRANKED: Lack = "nothing to rank it by"
BETTER: dict[Objective, Better] = {"tok_per_j": "up", "tok_per_s": "up", "usd_per_mtok": "down"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for. Each limit is to hold at `quantile` of the requests. At least one of the floors is given."""

    objective: Objective
    slos: tuple[Slo, ...] = ()
    quantile: Quantile = "p99"
    min_top1: float | None = None
    max_ppl_delta: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A limit that a candidate does not keep, and its worst repeat [ms]."""

    slo: Slo
    value_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A candidate that is correct enough, and the limits that it misses."""

    candidate: Candidate
    misses: tuple[Miss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A candidate that could not be judged, is not correct enough, or (`UNRANKED`) meets everything but lacks the objective."""

    candidate: Candidate
    lack: Lack
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """A candidate that meets everything too, and how it stands to the best one."""

    candidate: Candidate
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The best candidate, None where none meets the limits; then `near` begins with the one that comes nearest."""

    wanted: Wanted
    best: Candidate | None
    runners_up: tuple[RunnerUp, ...] = ()
    near: tuple[Near, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    invalid_trials: int = 0
    """How many trials were not looked at because they are not valid."""

    @property
    def meeting(self) -> tuple[Candidate, ...]:
        """All that meet the limits and the floor, the best first."""
        return () if self.best is None else (self.best, *(one.candidate for one in self.runners_up))


def recommend(found: Sequence[Candidate], wanted: Wanted) -> Recommendation:
    """The best of `found`, what comes after it, what misses a limit and by how much, and what was left out. They are to be of the
    same requests, and where energy ranks them of the same scope.
    """
    meeting, near, left_out = [], [], []
    for one in found:
        if (lack := _unjudged(one, wanted)) is not None:
            left_out.append(lack)
        elif misses := tuple(_misses(one, wanted)):
            near.append(Near(candidate=one, misses=misses))
        elif (lack := _unranked(one, wanted.objective)) is not None:
            left_out.append(lack)
        else:
            meeting.append(one)
    near.sort(key=lambda one: max(miss.value_ms / miss.slo.limit_ms for miss in one.misses))
    best, others = ranked(meeting, wanted.objective)
    return Recommendation(wanted=wanted, best=best, runners_up=others, near=tuple(near), left_out=tuple(left_out))


def ranked(found: Sequence[Candidate], objective: Objective) -> tuple[Candidate | None, tuple[RunnerUp, ...]]:
    """The best by the mean of an objective, and the others with their ratio to it; p-values are adjusted for their number."""
    if not found:
        return None, ()
    sign = -1.0 if BETTER[objective] == "up" else 1.0
    best, *others = sorted(found, key=lambda one: sign * pooled_value(values(one, objective), "").value)
    compared = adjust([_beside(best, other, objective) for other in others])
    pairs = zip(others, compared, strict=True)
    return best, tuple(RunnerUp(candidate=other, comparison=comparison) for other, comparison in pairs)


# --- one candidate ------------------------------------------------------------------------------------------------------


def _unjudged(one: Candidate, wanted: Wanted) -> LeftOut | None:
    """Why it can't be said whether a candidate is good enough, or that it is not correct enough."""
    for name, limit in ((TOP1, wanted.min_top1), (PPL, wanted.max_ppl_delta)):
        if limit is None:
            continue
        worst = worst_figure(one, name)
        if worst is None:
            return LeftOut(candidate=one, lack="no correctness figure", reason=f"{name}: {why(one, name)}")
        if (worst < limit) if name == TOP1 else (worst > limit):
            return LeftOut(candidate=one, lack="not correct enough", reason=f"{name} {worst:.4g}, wanted {limit:g}")
    for slo in wanted.slos:
        found = latencies(one, slo, wanted.quantile)
        if isinstance(found, str):
            return LeftOut(candidate=one, lack="no latency figure", reason=found)
    return None


def _unranked(one: Candidate, objective: Objective) -> LeftOut | None:
    """Why a candidate that meets everything has no place in the order."""
    found = values(one, objective)
    if found and min(found) > 0.0:
        return None
    return LeftOut(candidate=one, lack=UNRANKED, reason=_no_value(one, objective))


def _no_value(one: Candidate, objective: Objective) -> str:
    if values(one, objective):
        return f"{objective} is 0 in a trial"
    if objective == "usd_per_mtok" and one.price is None:
        return f"no price of {' + '.join(dict.fromkeys(one.devices))} on that night"
    name = "tok_per_j" if objective == "tok_per_j" else "output_tok_per_s"
    return f"{name}: {why(one, name)}"


def _misses(one: Candidate, wanted: Wanted) -> Iterable[Miss]:
    for slo in wanted.slos:
        found = latencies(one, slo, wanted.quantile)
        if not isinstance(found, str) and max(found) > slo.limit_ms:
            yield Miss(slo=slo, value_ms=max(found))


# --- two candidates -----------------------------------------------------------------------------------------------------


def _beside(best: Candidate, other: Candidate, objective: Objective) -> Comparison:
    one, two = values(best, objective), values(other, objective)
    gain = shared_gain(best, other) if objective == "tok_per_j" else 0.0
    return Comparison(
        metric=objective,
        unit=UNITS[objective],
        better=BETTER[objective],
        base=pooled_value(one, "").value,
        cand=pooled_value(two, "").value,
        n_base=len(one),
        n_cand=len(two),
        ratio=None if gain is None else mean_ratio(one, two, gain=gain),
        reason="different boards, and no source gives the gain error of their sensors" if gain is None else None,
    )
