"""GPUStack's auto-tune: a search over the load for most throughput, or for the most load within limits of latency, and its end.

Limits are on the mean, p95 or p99 of a point, as GPUStack has them, not on each request as `goodput` has. The search itself is
that of `bench run --find`; GPUStack draws its own conclusion from the points.

Source: gpustack 2.3.0, gpustack/worker/benchmark/analysis.py, gpustack/schemas/benchmark.py (SLO_THRESHOLDS).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from bench.analysis.knee import LoadPoint
from bench.analysis.search import Step, advance, conclude
from bench.lab.sweeps import case_at, of_case, point_of
from bench.ports import PlannedTrial
from bench.records import Sweep, TrialRecord
from bench.units import NS_PER_S

_LEAST_SUCCESS = 0.95
_METRICS = {
    "ttft": ("time_to_first_token_ms", 1.0),
    "itl": ("inter_token_latency_ms", 1.0),
    "latency": ("request_latency", 1000.0),
}
"""Where a report has each, and what brings it to ms."""
SLO_METRICS = [(aggregate, metric) for aggregate in ("avg", "p95", "p99") for metric in _METRICS]
"""What there may be a limit on."""
_SIDECAR_VERSION = 4

Benchmarks = Mapping[str, Mapping[str, Any]]
"""Entries of GuideLLM reports by trial id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SloLimit:
    """The `aggregate` (avg, p95, p99) of `metric` (ttft, itl, latency) must be at most `limit_ms`."""

    aggregate: str
    metric: str
    limit_ms: float

    @property
    def name(self) -> str:
        """As GPUStack calls it."""
        return f"slo_{self.aggregate}_{self.metric}_ms"

    def met(self, metrics: Mapping[str, Any]) -> bool:
        """Whether a point keeps it. What is not known, or 0 for "not measured", is not kept."""
        key, scale = _METRICS[self.metric]
        found = metrics[key]["successful"]
        value: float | None = found["mean"] if self.aggregate == "avg" else found["percentiles"][self.aggregate]
        return value is not None and 0 < value * scale <= self.limit_ms


def slo_limits(options: Mapping[str, Any]) -> tuple[SloLimit, ...]:
    """Those that `options` set."""
    given = ((aggregate, metric, options.get(f"slo_{aggregate}_{metric}_ms")) for aggregate, metric in SLO_METRICS)
    return tuple(SloLimit(aggregate=a, metric=m, limit_ms=limit) for a, m, limit in given if limit is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """What is searched for, within which limits, and for how long [s] at most."""

    sweep: Sweep
    slos: tuple[SloLimit, ...]
    max_total_s: float


class RampPlanner:
    """A `Planner` that asks for one load after another. `benchmarks` must hold the report of each ended trial."""

    patience = 1

    def __init__(self, ramp: Ramp, benchmarks: Benchmarks) -> None:
        self._ramp = ramp
        self._benchmarks = benchmarks
        self.cases = tuple(case_at(ramp.sweep, load) for load in (ramp.sweep.search.low, ramp.sweep.search.high))

    def remaining(self, done: Sequence[TrialRecord]) -> Sequence[PlannedTrial]:
        """The next point; nothing once the search has ended, or its time has."""
        ask = self._step(done).ask
        if ask is None or _elapsed_s(done) >= self._ramp.max_total_s:
            return ()
        case = case_at(self._ramp.sweep, ask.load)
        return (PlannedTrial(case=case, repeat=1, extra={"search": {"load": ask.load, "role": ask.role}}),)

    def outcome(self, done: Sequence[TrialRecord]) -> dict[str, Any]:
        """Why the search ended, as GPUStack reads it beside the reports of the points."""
        ramp, search, step = self._ramp, self._ramp.sweep.search, self._step(done)
        verdict = conclude(search, step)
        bracket = self._bracket(step)
        return {
            "version": _SIDECAR_VERSION,
            "target": "slo" if ramp.slos else "saturation",
            "axis": "concurrency" if search.over == "batch_size" else "rate",
            "bracket_reason": bracket,
            "stop_reason": self._stop(step, bracket),
            "stopped_at": max((point.load for point in step.points), default=None),
            "lower_bound": search.low,
            "upper_bound": search.high,
            "points_measured": len(step.points),
            "max_points": search.points,
            "elapsed_seconds": round(_elapsed_s(done), 2),
            "max_total_seconds": ramp.max_total_s,
            "slo_bracket": [_load(verdict.best), _load(verdict.above)] if ramp.slos else None,
            "slo_thresholds": {slo.name: slo.limit_ms for slo in ramp.slos},
            "points": [{"knob": point.load, "index": index, "problem": point.problem} for index, point in enumerate(step.points)],
        }

    def _step(self, done: Sequence[TrialRecord]) -> Step:
        return advance(self._ramp.sweep.search, lambda load: self._answer(load, done))

    def _answer(self, load: float, done: Sequence[TrialRecord]) -> LoadPoint | None:
        case, search = case_at(self._ramp.sweep, load), self._ramp.sweep.search
        point = point_of(structs.replace(search, find="knee"), load, case, done)
        if point is None or not self._ramp.slos or point.problem is not None:
            return point
        metrics = self._benchmarks[of_case(case, done)[0].key.trial_id]["metrics"]
        totals = metrics["request_totals"]
        good = totals["successful"] >= _LEAST_SUCCESS * totals["total"] and all(slo.met(metrics) for slo in self._ramp.slos)
        return replace(point, attained=float(good), requests=totals["total"])

    def _bracket(self, step: Step) -> str:
        """What bounds the answer: the limits, the server, the range, or the budget."""
        search = self._ramp.sweep.search
        if any(point.problem is not None and not point.starved for point in step.points):
            return "overloaded"
        if self._ramp.slos and any(point.attained == 0.0 for point in step.points):
            return "slo_failed"
        if any(point.load >= search.high for point in step.points):
            return "upper_bound"
        if not self._ramp.slos and step.ended is not None and len(step.points) < search.points:
            return "capacity_plateau"
        return self._budget(step)

    def _stop(self, step: Step, bracket: str) -> str:
        if step.ended is None or len(step.points) >= self._ramp.sweep.search.points:
            return self._budget(step)
        return bracket if bracket == "upper_bound" else "converged"

    def _budget(self, step: Step) -> str:
        return "budget_points" if len(step.points) >= self._ramp.sweep.search.points else "budget_seconds"


def _elapsed_s(done: Sequence[TrialRecord]) -> float:
    if not done:
        return 0.0
    return (max(r.ended.monotonic_ns for r in done) - min(r.started.monotonic_ns for r in done)) / NS_PER_S


def _load(point: LoadPoint | None) -> float | None:
    return None if point is None else point.load
