"""Sweeps: a search as the planner of a run, and its points out of the run's trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from bench.analysis.knee import LoadPoint
from bench.analysis.pool import pooled_value
from bench.analysis.search import Step, advance, conclude
from bench.identity import case_id, digest
from bench.ports import PlannedTrial
from bench.records import Case, Search, Status, Sweep, TrialRecord
from bench.reports.searches import SearchResult
from bench.stats import Estimate

_THROUGHPUT = "output_tok_per_s"
_STARVED = frozenset({"too_few_requests"})
"""What more load may cure. All else that makes a trial invalid ends the way up."""


def case_at(sweep: Sweep, load: float) -> Case:
    """The case that a sweep measures at a load."""
    case, over = sweep.case, sweep.search.over
    spec = (
        structs.replace(case.load, batch_size=round(load))
        if over == "batch_size"
        else structs.replace(case.load, request_rate=load)
    )
    return structs.replace(case, name=f"{case.name}/{over}={load:g}", load=spec)


def search_id(sweep: Sweep) -> str:
    """Hash of what is searched for, over which loads of which case. The same in every run."""
    return digest(["search", case_id(sweep.case), sweep.search])


class SweepPlanner:
    """A `Planner` that measures each load its search asks for, with all repeats of the case, and asks it again."""

    patience = 6
    """Each death is news here: the search goes on at a lower load, where the engine may live."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._id = search_id(sweep)
        self.cases = (case_at(sweep, sweep.search.low), case_at(sweep, sweep.search.high))

    def remaining(self, done: Sequence[TrialRecord]) -> Sequence[PlannedTrial]:
        """The repeats still missing at the load that is asked for; nothing once the search has ended."""
        ask = self._step(done).ask
        if ask is None:
            return ()
        case, search = case_at(self._sweep, ask.load), self._sweep.search
        known = {record.key.repeat for record in of_case(case, done)}
        about = {"id": self._id, "name": self._sweep.case.name, "find": search.find, "over": search.over}
        extra = {"search": {**about, "load": ask.load, "role": ask.role}}
        return [PlannedTrial(case=case, repeat=r, extra=extra) for r in range(1, case.repeats + 1) if r not in known]

    def result(self, done: Sequence[TrialRecord]) -> SearchResult:
        """What the search has found so far."""
        step = self._step(done)
        loads = [point.load for point in step.points]
        trials = {load: tuple(r.key.trial_id for r in of_case(case_at(self._sweep, load), done)) for load in loads}
        verdict = conclude(self._sweep.search, step)
        return SearchResult(search_id=self._id, sweep=self._sweep, step=step, verdict=verdict, trials=trials)

    def _step(self, done: Sequence[TrialRecord]) -> Step:
        search = self._sweep.search
        return advance(search, lambda load: point_of(search, load, case_at(self._sweep, load), done))


def point_of(search: Search, load: float, case: Case, done: Sequence[TrialRecord]) -> LoadPoint | None:
    """The trials of `case` as one point of a search; None while repeats are missing. It counts when more than half of its
    trials are valid, and is then the mean of those.
    """
    trials = of_case(case, done)
    if len(trials) < case.repeats:
        return None
    valid = [trial for trial in trials if trial.status is Status.VALID]
    if 2 * len(valid) <= len(trials):
        bad = [trial for trial in trials if trial.status is not Status.VALID]
        return LoadPoint(load=load, problem=_problem(bad[0]), starved=all(_is_starved(trial) for trial in bad))
    return _judged(search, _measured(load, valid), valid)


def _measured(load: float, valid: Sequence[TrialRecord]) -> LoadPoint:
    counts = [_good_requests(trial) for trial in valid]
    known = [count for count in counts if count is not None]
    requests = sum(of for _, of in known) if len(known) == len(counts) else 0
    rates = [trial.metrics["goodput_rps"].value for trial in valid if "goodput_rps" in trial.metrics]
    goodput = [rate for rate in rates if rate is not None]
    return LoadPoint(
        load=load,
        throughput=_throughput(valid),
        attained=sum(good for good, _ in known) / requests if requests else None,
        requests=requests,
        goodput_rps=sum(goodput) / len(goodput) if goodput else None,
    )


def _judged(search: Search, point: LoadPoint, valid: Sequence[TrialRecord]) -> LoadPoint:
    """A point without the number that its search goes by does not count."""
    name, missing = ("goodput_rps", point.attained) if search.find == "max-goodput" else (_THROUGHPUT, point.throughput)
    if missing is not None:
        return point
    reasons = [metric.reason for trial in valid if (metric := trial.metrics.get(name)) is not None and metric.reason]
    return replace(point, problem=f"{name} is missing: {reasons[0] if reasons else 'not recorded'}")


def _throughput(valid: Sequence[TrialRecord]) -> Estimate | None:
    """Mean over repeats with their interval; a single trial has the one of its blocks."""
    metrics = [trial.metrics.get(_THROUGHPUT) for trial in valid]
    values = [metric.value for metric in metrics if metric is not None and metric.value]
    if len(values) < len(valid):
        return None
    if len(values) == 1 and metrics[0] is not None:
        return Estimate(value=values[0], low=metrics[0].low, high=metrics[0].high, n=1)
    pooled = pooled_value(values, "tok/s")
    return Estimate(value=pooled.value, low=pooled.low, high=pooled.high, n=pooled.n)


def _good_requests(trial: TrialRecord) -> tuple[int, int] | None:
    """Requests that met every SLO, and of how many."""
    metric = trial.metrics.get("goodput_rps")
    if metric is None or metric.value is None or trial.window is None or metric.n == 0:
        return None
    return round(metric.value * trial.window.seconds), metric.n


def of_case(case: Case, done: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials of `case` among `done`."""
    its_id = case_id(case)
    return [record for record in done if record.key.case_id == its_id]


def _is_starved(trial: TrialRecord) -> bool:
    codes = _codes(trial)
    return bool(codes) and codes <= _STARVED


def _codes(trial: TrialRecord) -> set[str]:
    """What made a trial invalid; a failed one has its own."""
    if trial.status is not Status.INVALID:
        return {trial.status.value}
    return {r.code for r in trial.reasons if r.severity == "invalid" and r.group in ("all", "throughput", "latency")}


def _problem(trial: TrialRecord) -> str:
    if trial.error:
        return f"{trial.status.value}: {trial.error.splitlines()[0]}"
    reasons = {r.code: r.message for r in trial.reasons if r.severity == "invalid" and r.code in _codes(trial)}
    return "; ".join(f"{code} ({message})" for code, message in reasons.items()) or trial.status.value
