"""Which cases one engine start can serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.identity import digest
from bench.records import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGroup:
    """Cases that share model, precision, engine, its arguments and its devices: one start, many points."""

    cases: tuple[Case, ...]

    @property
    def first(self) -> Case:
        """Stands for what all of them share."""
        return self.cases[0]

    def trials(self) -> list[tuple[Case, int]]:
        """(case, repeat from 1) in measuring order: repeats outermost, so that a drift of the machine hits all points alike."""
        most = max(case.repeats for case in self.cases)
        return [(case, repeat) for repeat in range(1, most + 1) for case in self.cases if repeat <= case.repeats]


def engine_groups(cases: Sequence[Case]) -> list[EngineGroup]:
    """Cases grouped by what an engine start depends on, in order of first appearance."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        start = [case.engine, case.model, case.model_source, case.precision, case.engine_args, case.base_url]
        key = digest([*start, case.api_key_env, case.protocol, case.devices])
        groups.setdefault(key, []).append(case)
    return [EngineGroup(cases=tuple(members)) for members in groups.values()]
