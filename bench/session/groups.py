"""Which cases one engine start can serve, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.identity import case_id, digest
from bench.ports import PlannedTrial, Planner
from bench.records import Case, TrialRecord


class FixedOrder:
    """The planner of plain cases: repeats outermost, so that a drift of the machine hits all points alike."""

    patience = 2
    """A third death would tell nothing new."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        known = [(case, case_id(case)) for case in cases]
        most = max(case.repeats for case in cases)
        self._trials = [
            (PlannedTrial(case=case, repeat=repeat), (its_id, repeat))
            for repeat in range(1, most + 1)
            for case, its_id in known
            if repeat <= case.repeats
        ]

    def remaining(self, done: Sequence[TrialRecord]) -> Sequence[PlannedTrial]:
        """The trials that are not among `done`."""
        seen = {(record.key.case_id, record.key.repeat) for record in done}
        return [trial for trial, key in self._trials if key not in seen]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGroup:
    """Planners whose cases share model, precision, engine, its arguments and its devices: one start, many points."""

    planners: tuple[Planner, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        """What the engine is sized for."""
        return tuple(case for planner in self.planners for case in planner.cases)

    @property
    def first(self) -> Case:
        """Stands for what all of them share."""
        return self.cases[0]

    def patience(self, done: Sequence[TrialRecord]) -> int:
        """That of the planner whose turn it is."""
        return next((planner.patience for planner in self.planners if planner.remaining(done)), 0)

    def remaining(self, done: Sequence[TrialRecord]) -> list[PlannedTrial]:
        """What is known to be still to come, next first."""
        return [trial for planner in self.planners for trial in planner.remaining(done)]


def engine_groups(cases: Sequence[Case], planners: Sequence[Planner] = ()) -> list[EngineGroup]:
    """Cases and planners grouped by what an engine start depends on, in order of first appearance. Plain cases come first:
    what they measured, a planner need not.
    """
    plain: dict[str, list[Case]] = {}
    for case in cases:
        plain.setdefault(_start_of(case), []).append(case)
    groups: dict[str, list[Planner]] = {start: [FixedOrder(members)] for start, members in plain.items()}
    for planner in planners:
        groups.setdefault(_start_of(planner.cases[0]), []).append(planner)
    return [EngineGroup(planners=tuple(members)) for members in groups.values()]


def _start_of(case: Case) -> str:
    start = [case.engine, case.model, case.model_source, case.precision, case.engine_args, case.base_url]
    place = [case.engine_python, case.container]
    whole_batches = [case.load] if case.batching == "static" else []  # the engine must know how many make a batch
    return digest([*start, case.api_key_env, case.protocol, case.devices, *place, case.parallel, case.batching, *whole_batches])
