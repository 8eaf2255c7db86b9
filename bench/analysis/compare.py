"""Two points measured with repeats: the ratio of each metric with its interval, or why there is none. Pure.

Ratio = exp(difference of the mean logs); interval and p-value are Welch's on the logs. Joules of different boards also carry each
sensor's gain, which repeats can't show; on the same boards it cancels.
Source: Welch 1947; Satterthwaite 1946.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from bench.analysis.multiple import adjusted_p
from bench.analysis.pool import PoolKey
from bench.records import FloatArray
from bench.stats import student_t, student_tails, welch_df
from bench.timing.spec import SPECS, Better

CONFIDENCE = 0.95
_FARTHEST = 700.0
Verdict = Literal["differs", "no difference shown", "can't know", "not comparable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Candidate over base. `low`, `high` at 95% and the two-sided `p` of "they are equal"; None with fewer than two repeats on a
    side.
    """

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One metric over the valid repeats of a point, each positive or 0. `gain`: 95% half-width of the sensor's gain as a share;
    None where no source gives one. `reason`: why there are no values.
    """

    values: tuple[float, ...] = ()
    gain: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What was measured at one place: repeats of one configuration, host, case and run. `boards`: uids of the boards whose energy
    counts, `scope` what that energy covers. `imported`: the other tool that measured it. `setting` names what the workload
    consists of, for saying how two differ.
    """

    workload_id: str
    series_id: str | None
    config_id: str | None
    host_id: str
    case_id: str
    run_id: str
    started: str
    name: str
    model: str
    precision: str | None
    weights: str | None
    engine: str
    version: str | None
    build: str | None
    devices: tuple[str, ...]
    boards: tuple[str, ...]
    scope: str | None
    window_kind: str | None
    imported: str | None = None
    setting: dict[str, str] = field(default_factory=dict)
    samples: dict[str, Sample] = field(default_factory=dict)

    @property
    def key(self) -> PoolKey:
        """What its repeats share, as `pool_key` of each of their records."""
        return PoolKey(config_id=self.config_id, host_id=self.host_id, case_id=self.case_id, run_id=self.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of two points. `adjusted`: the p-value after all tests of the table. `reason` says why there is no ratio."""

    metric: str
    unit: str
    better: Better | None
    base: float | None
    cand: float | None
    n_base: int
    n_cand: int
    ratio: Ratio | None
    reason: str | None = None
    adjusted: float | None = None

    @property
    def verdict(self) -> Verdict:
        if self.ratio is None:
            return "not comparable"
        if self.adjusted is None:
            return "can't know"
        return "differs" if self.adjusted < 1.0 - CONFIDENCE else "no difference shown"

    @property
    def is_worse(self) -> bool:
        """Whether the candidate was shown to be worse."""
        if self.verdict != "differs" or self.ratio is None or self.better is None:
            return False
        return (self.ratio.value < 1.0) == (self.better == "up")


COMPARED = (
    "output_tok_per_s",
    "requests_per_s",
    "goodput_rps",
    "ttft_ms",
    "ttft_scheduled_ms",
    "tpot_ms",
    "e2e_ms",
    "j_per_output_tok",
    "memory_used_peak_b",
)
"""Scalars by their value, distributions by their p50."""
ENERGY = "j_per_output_tok"


def mean_ratio(base: Sequence[float], cand: Sequence[float], *, gain: float = 0.0) -> Ratio:
    """Ratio of the geometric means of two sets of repeats, all > 0. `gain`: 95% half-width, in logs, of what all repeats of a
    side share and repeating therefore can't show.

    Raises: ValueError for an empty side or a value that isn't positive.
    """
    one, two = _logs(base), _logs(cand)
    change = float(two.mean() - one.mean())
    if len(one) < 2 or len(two) < 2:
        return Ratio(value=_exp(change))
    parts = (float(one.var(ddof=1)), len(one), float(two.var(ddof=1)), len(two))
    noise = parts[0] / parts[1] + parts[2] / parts[3]
    shared = (gain / NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)) ** 2
    # of the two parts of the variance only that of the noise is itself uncertain
    df = welch_df(*parts) * ((noise + shared) / noise) ** 2 if noise > 0.0 else math.inf
    return ratio_of(change, math.sqrt(noise + shared), min(df, 1e9))


def paired_ratio(base: Sequence[float], cand: Sequence[float]) -> Ratio:
    """Geometric mean of cand / base over pairs that were measured in turns, with Student's interval and p-value.

    Raises: ValueError for no pairs, sides of unequal length or a value that isn't positive.
    """
    if len(base) != len(cand):
        raise ValueError(f"pairs need two sides of one length, got {len(base)} and {len(cand)}")
    changes = _logs(cand) - _logs(base)
    n, change = len(changes), float(changes.mean())
    if n < 2:
        return Ratio(value=_exp(change))
    return ratio_of(change, float(changes.std(ddof=1)) / math.sqrt(n), n - 1)


def ratio_of(change: float, error: float, df: float) -> Ratio:
    """The ratio whose logarithm is `change`, known to a standard error of `error` with `df` degrees of freedom."""
    if error == 0.0:
        return Ratio(value=_exp(change), low=_exp(change), high=_exp(change), p=float(change == 0.0))
    half = student_t(CONFIDENCE, df) * error
    return Ratio(value=_exp(change), low=_exp(change - half), high=_exp(change + half), p=student_tails(change / error, df))


def _exp(log: float) -> float:
    """The ratio that has this logarithm, or the farthest one that a float can hold."""
    return math.exp(min(max(log, -_FARTHEST), _FARTHEST))


def _logs(values: Sequence[float]) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if not len(found) or not bool((found > 0.0).all()):
        raise ValueError(f"a ratio of means needs values above 0, got {list(values)[:5]}")
    return np.log(found)


def compare_points(base: Point, cand: Point) -> list[Comparison]:
    """Every metric that both could have, in the order of `COMPARED`, not yet adjusted for their number."""
    blocked = difference_of(base, cand)
    found = []
    for name in COMPARED:
        one, two = base.samples.get(name, Sample()), cand.samples.get(name, Sample())
        if one.values or two.values or (one.reason and two.reason and name == ENERGY):
            found.append(_compare(name, one, two, blocked or _metric_blocked(name, base, cand), _same_boards(base, cand)))
    return found


def adjust(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same with p-values adjusted for all tests among them (Benjamini-Hochberg)."""
    adjusted = adjusted_p([None if one.ratio is None else one.ratio.p for one in comparisons])
    return [replace(one, adjusted=p) for one, p in zip(comparisons, adjusted, strict=True)]


def _compare(name: str, one: Sample, two: Sample, blocked: str | None, same_boards: bool) -> Comparison:
    spec = SPECS[name]
    reason = blocked or _lacking(one, "base") or _lacking(two, "candidate")
    gain = 0.0
    if reason is None and name == ENERGY and not same_boards:
        if one.gain is None or two.gain is None:
            reason = "different boards, and no source gives the gain error of their sensors"
        else:
            gain = math.hypot(math.log1p(one.gain), math.log1p(two.gain))
    return Comparison(
        metric=name,
        unit=spec.unit,
        better=spec.better,
        base=_mean(one.values),
        cand=_mean(two.values),
        n_base=len(one.values),
        n_cand=len(two.values),
        ratio=None if reason else mean_ratio(one.values, two.values, gain=gain),
        reason=reason,
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Geometric mean in the unit of the values. Raises: ValueError for none, or one that isn't positive."""
    return math.exp(float(_logs(values).mean()))


def _mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    return geometric_mean(values) if min(values) > 0.0 else float(np.mean(values))


def _lacking(sample: Sample, side: str) -> str | None:
    if not sample.values:
        return f"{side}: {sample.reason or 'not measured'}"
    return f"{side}: a value of 0 has no ratio" if min(sample.values) <= 0.0 else None


def difference_of(base: Point, cand: Point) -> str | None:
    """Why two points can't be compared at all, in words; None where they can."""
    tools = dict.fromkeys(point.imported for point in (base, cand) if point.imported)
    if tools:
        return f"imported from {' and '.join(tools)}, whose definitions differ"
    if base.model != cand.model:
        return f"other model: {base.model} and {cand.model}"
    if base.workload_id != cand.workload_id:
        return f"other workload: {_setting_difference(base.setting, cand.setting)}"
    if base.window_kind != cand.window_kind:
        return f"other kind of window: {base.window_kind} and {cand.window_kind}"
    return None


def _setting_difference(one: dict[str, str], two: dict[str, str]) -> str:
    names = [name for name in dict.fromkeys((*one, *two)) if one.get(name) != two.get(name)]
    told = ", ".join(f"{name} {one.get(name, '-')} and {two.get(name, '-')}" for name in names)
    return told or "seed, sampling, data set or lengths differ"


def _metric_blocked(name: str, base: Point, cand: Point) -> str | None:
    if name == ENERGY and base.scope != cand.scope and base.scope and cand.scope:
        return f"energy of other parts: {base.scope} and {cand.scope}"
    return None


def _same_boards(base: Point, cand: Point) -> bool:
    return bool(base.boards) and sorted(base.boards) == sorted(cand.boards)
