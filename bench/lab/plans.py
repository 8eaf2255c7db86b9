"""What a run sets out to do, kept so that it can be gone on with, and what of it is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bench import __version__, clock, codec
from bench.errors import EXIT_FAILED, EXIT_OK, StoreError
from bench.identity import case_id, digest
from bench.lab.ab import Pairs, left_of
from bench.lab.sweeps import SweepPlanner, search_id
from bench.records import Case, Search, Status, Sweep, TrialRecord
from bench.reports.searches import SearchResult
from bench.session.groups import FixedOrder, engine_groups
from bench.session.loop import KEPT, RunOutcome
from bench.store import check_run
from bench.store.plans import plan_path, planned_runs, read_plan

_VERSION = 1
START_TIMEOUT_S = 600.0
"""How long an engine may take to start, where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Resolved cases and sweeps of one run, or pairs alone, and under which conditions an engine is started."""

    schema_version: int = _VERSION
    run_id: str
    bench_version: str = __version__
    created_wall_ns: int
    cases: tuple[Case, ...]
    sweeps: tuple[Sweep, ...] = ()
    pairs: Pairs | None = None
    start_timeout_s: float
    share_devices: bool = False
    """Whether boards are measured on which others compute."""

    @property
    def every_case(self) -> tuple[Case, ...]:
        """Plain cases, and those of both sides of the pairs."""
        return self.cases if self.pairs is None else (*self.cases, *self.pairs.base, *self.pairs.cand)

    @property
    def work_id(self) -> str:
        """Hash of what is to be measured, of its labels and of what it is reached with: the same in every run that sets out to
        do the same.
        """
        cases = [(case_id(case), _reached(case)) for case in self.every_case]
        searches = [(search_id(sweep), _reached(sweep.case)) for sweep in self.sweeps]
        return digest([cases, searches, None if self.pairs is None else self.pairs.count])


def _reached(case: Case) -> tuple[Any, ...]:
    """What changes no number of a case, but may be why an attempt failed: to go on with the old ones would fail again."""
    return case.labels, case.api_key_env, case.data.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One line of what would run: `trials` still to be measured (of a sweep at most so many), each of `seconds` of load; None
    where it ends by count.
    """

    name: str
    kind: Literal["case", "sweep"]
    case: Case
    case_id: str | None
    search: Search | None = None
    trials: int
    seconds: float | None


def new_plan(
    run_id: str, cases: Sequence[Case], sweeps: Sequence[Sweep], start_timeout_s: float, pairs: Pairs | None = None
) -> RunPlan:
    """The plan of a run that begins now."""
    return RunPlan(
        run_id=run_id,
        created_wall_ns=clock.SYSTEM.wall_ns(),
        cases=tuple(cases),
        sweeps=tuple(sweeps),
        pairs=pairs,
        start_timeout_s=start_timeout_s,
    )


def load_plan(results: Path, run_id: str) -> RunPlan:
    """The plan that a run was begun with. Raises: StoreError."""
    try:
        plan = codec.decode(read_plan(results, run_id), RunPlan)
    except (ValueError, RecursionError) as error:
        raise _unreadable(results, run_id, str(error)) from error
    if plan.schema_version != _VERSION or plan.run_id != run_id:
        raise _unreadable(results, run_id, f"it is of run {plan.run_id} and version {plan.schema_version}")
    return plan


def begun(results: Path, plan: RunPlan, note: Callable[[str], None] = lambda _: None) -> RunPlan | None:
    """The last run in `results` that set out to do the same as `plan` and is whole, started as `plan` says; None where there is
    none. `note` is told of those that are damaged: a lost file must not pass for a trial that was measured.
    """
    for run_id in reversed(planned_runs(results)):
        try:
            earlier = load_plan(results, run_id)
            if earlier.work_id != plan.work_id:
                continue
            check_run(results, run_id)
        except StoreError as error:
            note(f"run {run_id} is damaged and not gone on with: {error}")
            continue
        return replace(earlier, start_timeout_s=plan.start_timeout_s, share_devices=plan.share_devices)
    return None


def _unreadable(results: Path, run_id: str, why: str) -> StoreError:
    return StoreError(
        f"{plan_path(results, run_id)} is no plan that this bench reads: {why}", hint="begin another run: bench run SUITE"
    )


def planners_of(plan: RunPlan) -> tuple[SweepPlanner, ...]:
    """A planner for each sweep."""
    return tuple(SweepPlanner(sweep) for sweep in plan.sweeps)


def exit_code(outcome: RunOutcome, searches: Sequence[SearchResult]) -> int:
    """That of the run, where points that bound the answer of a search are no failure: to run into them is how it is found."""
    answered = [search for search in searches if search.verdict.complete and search.verdict.best is not None]
    bounds = {trial_id for search in answered for trials in search.trials.values() for trial_id in trials}
    bad = {record.key.trial_id for record in outcome.records if record.status is not Status.VALID}
    found_all = len(answered) == len(searches) and bad <= bounds
    return EXIT_OK if outcome.exit_code == EXIT_FAILED and found_all and not outcome.errors else outcome.exit_code


def forecast(plan: RunPlan, history: Sequence[TrialRecord] = ()) -> list[Forecast]:
    """What is left of a plan after the trials in `history`, in measuring order of first appearance."""
    if plan.pairs is not None:
        return _forecast_pairs(plan.pairs, history)
    done = [record for record in history if record.status in KEPT]
    lines = []
    for case in plan.cases:
        left = len(FixedOrder([case]).remaining(done))
        lines.append(
            Forecast(name=case.name, kind="case", case=case, case_id=case_id(case), trials=left, seconds=trial_seconds(case))
        )
    return [
        *lines,
        *(_forecast_sweep(planner, sweep, done) for planner, sweep in zip(planners_of(plan), plan.sweeps, strict=True)),
    ]


def _forecast_pairs(pairs: Pairs, history: Sequence[TrialRecord]) -> list[Forecast]:
    left = [(trial.case, trial.role) for trial in left_of(pairs, history)]
    return [
        Forecast(
            name=f"{case.name} ({role})", kind="case", case=case, case_id=case_id(case), trials=count, seconds=trial_seconds(case)
        )
        for case, role, count in ((*one, left.count(one)) for one in _distinct(left))
    ]


def _distinct(cases: Sequence[tuple[Case, str]]) -> list[tuple[Case, str]]:
    found: list[tuple[Case, str]] = []
    for one in cases:
        if one not in found:
            found.append(one)
    return found


def engine_starts(plan: RunPlan, history: Sequence[TrialRecord] = ()) -> int:
    """How often an engine is started."""
    if plan.pairs is not None:
        return len(left_of(plan.pairs, history))
    done = [record for record in history if record.status in KEPT]
    return sum(1 for group in engine_groups(plan.cases, planners_of(plan)) if group.remaining(done))


def trial_seconds(case: Case) -> float | None:
    """Load of one trial [s]: warm-up and window. None for a job that ends by count."""
    return None if case.load.num_prompts is not None else case.warmup_s + case.duration_s


def total_seconds(plan: RunPlan, lines: Sequence[Forecast], starts: int) -> float | None:
    """Load and idle measurements of what is left [s], at most where sweeps are in it; engine starts are not known beforehand."""
    if any(line.seconds is None for line in lines if line.trials):
        return None
    idle_s = max((line.case.idle_s for line in lines if line.trials), default=0.0)
    return sum(line.trials * (line.seconds or 0.0) for line in lines) + 2 * idle_s * starts


def _forecast_sweep(planner: SweepPlanner, sweep: Sweep, done: Sequence[TrialRecord]) -> Forecast:
    ended = not planner.remaining(done)
    measured = sum(len(trials) for trials in planner.result(done).trials.values())
    most = 0 if ended else sweep.search.points * sweep.case.repeats - measured
    return Forecast(
        name=sweep.case.name,
        kind="sweep",
        case=sweep.case,
        case_id=None,
        search=sweep.search,
        trials=most,
        seconds=trial_seconds(sweep.case),
    )
