"""Pairs: two settings of a case measured in turns (A B, B A, A B, ...), so that what ails the hour ails both."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from msgspec import structs

from bench import suite
from bench.analysis.ab import BASE_ROLE, CAND_ROLE
from bench.analysis.gate import FEWEST_PAIRS
from bench.errors import UsageError
from bench.identity import case_id
from bench.ports import PlannedTrial
from bench.records import Case, TrialRecord
from bench.session.loop import KEPT, RunOutcome, Session
from bench.suite.settings import KEYS

_ALIKE = 0.8
"""How alike a word and a key of a suite are where the word is a slip of it; `threads` is none of `stream`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Cases of the base with those of the candidate in the same order, each to be measured `count` times."""

    base: tuple[Case, ...]
    cand: tuple[Case, ...]
    count: int


def new_pairs(chosen: suite.Suite, base: str, cand: str, count: int, only: Sequence[str] = ()) -> Pairs:
    """The cases of a suite twice, each side with its own settings; where there is `only`, those that it names (`suite.picked`).

    Raises: UsageError.
    """
    if count < FEWEST_PAIRS:
        raise UsageError(f"--pairs {count}: fewer than {FEWEST_PAIRS} pairs show nothing")
    if chosen.sweeps or not chosen.cases:
        raise UsageError("--ab measures plain cases, not searches")
    sides = [suite.override(chosen, settings_of(spec)).cases for spec in (base, cand)]
    if len(sides[0]) != len(sides[1]):
        raise UsageError(f"the base has {len(sides[0])} cases and the candidate {len(sides[1])}")
    if only:
        # by place, not by name: a setting of a side may be part of a name
        kept = suite.picked([case.name for case in chosen.cases], only, chosen)
        if len(sides[0]) != len(chosen.cases):
            raise UsageError("--case together with sides that change how many cases the suite has", hint="drop --case")
        sides = [tuple(c for c, was in zip(side, chosen.cases, strict=True) if was.name in kept) for side in sides]
    ones, twos = (tuple(structs.replace(case, repeats=count) for case in side) for side in sides)
    return Pairs(
        base=ones, cand=tuple(structs.replace(two, name=one.name) for one, two in zip(ones, twos, strict=True)), count=count
    )


def settings_of(spec: str) -> dict[str, Any]:
    """`engine_python=/opt/new/bin/python engine_args.threads=2` as settings of a suite; an empty text changes nothing.

    Raises: UsageError.
    """
    found: dict[str, Any] = {}
    try:
        words = shlex.split(spec)
    except ValueError as error:
        raise UsageError(f"--ab {spec!r}: {error}") from error
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"--ab: {word!r} is not of the form KEY=VALUE", hint="e.g. engine_args.threads=1")
        mapping, dot, name = key.partition(".")
        if not dot and not get_close_matches(key, KEYS, n=1, cutoff=_ALIKE):
            raise UsageError(f"--ab: no setting {key!r}", hint=f"for an argument of the engine write engine_args.{word}")
        if dot:
            found[mapping] = (*found.get(mapping, ()), f"{name}={value}")
        else:
            found[key] = value
    return found


def in_turns(pairs: Pairs) -> list[PlannedTrial]:
    """Every trial in measuring order: the side that goes first changes from pair to pair."""
    trials = []
    for base, cand in zip(pairs.base, pairs.cand, strict=True):
        for number in range(1, pairs.count + 1):
            pair = [
                PlannedTrial(case=base, repeat=number, role=BASE_ROLE),
                PlannedTrial(case=cand, repeat=number, role=CAND_ROLE),
            ]
            trials += pair if number % 2 else pair[::-1]
    return trials


class _One:
    """The planner of a single trial: its engine is started for it alone."""

    patience = 1

    def __init__(self, trial: PlannedTrial) -> None:
        self._trial = trial
        self.cases = (trial.case,)

    def remaining(self, done: Sequence[TrialRecord]) -> Sequence[PlannedTrial]:
        return () if any(is_of(self._trial, record) for record in done) else (self._trial,)


def is_of(trial: PlannedTrial, record: TrialRecord) -> bool:
    """Whether a record is that of a trial."""
    key = record.key
    return (key.case_id, key.repeat, key.role) == (case_id(trial.case), trial.repeat, trial.role)


def left_of(pairs: Pairs, history: Sequence[TrialRecord]) -> list[PlannedTrial]:
    """The trials that were not measured to their end yet."""
    kept = [record for record in history if record.status in KEPT]
    return [trial for trial in in_turns(pairs) if not any(is_of(trial, record) for record in kept)]


def measure_pairs(session: Session, pairs: Pairs, history: Sequence[TrialRecord] = ()) -> RunOutcome:
    """Every trial of the pairs, with an engine start each. A trial that fails is kept and its pair lost; the others go on.

    Raises: UsageError before anything is started.
    """
    whole = RunOutcome(run_id=session.run_id, records=[record for record in history if record.status in KEPT])
    for number, trial in enumerate(left_of(pairs, history)):
        lost = [record for record in history if is_of(trial, record)]
        turn = replace(session, work_root=session.work_root / f"turn-{number}").run((), [_One(trial)], lost)
        whole.records += turn.records
        whole.errors += turn.errors
        whole.interrupted = turn.interrupted
        if turn.interrupted:
            break
    return whole
