"""Which trials a command is about: what a person gave, checked against what there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from bench.errors import UsageError
from bench.records import TrialRecord
from bench.store import Lab, TrialFilter
from bench.store.plans import LATEST
from bench.store.sql import ask

_MOST_NAMED = 12


def checked(lab: Lab, wanted: TrialFilter) -> TrialFilter:
    """`wanted` with its run's whole id in place of an unambiguous beginning. Where there are no trials nothing is checked.

    Raises: UsageError (a run, suite, model or engine of which there is no trial), StoreError.
    """
    given = {name: value for name in ("run_id", "suite", "model", "engine") if (value := getattr(wanted, name)) is not None}
    for name, value in given.items():
        known = _known(lab, name)
        if name == "run_id":
            wanted = replace(wanted, run_id=_run(value, known, lab))
        elif known and value not in known:
            raise _unknown(name, value, known, lab)
    return wanted


def one_trial(found: Sequence[TrialRecord], trial_id: str) -> TrialRecord:
    """The one whose id begins with `trial_id`. Raises: UsageError (none, or more than one)."""
    fitting = [record for record in found if record.key.trial_id.startswith(trial_id)]
    if len(fitting) != 1:
        how_many = f"{len(fitting)} trials begin" if fitting else "no trial begins"
        raise UsageError(f"{how_many} with {trial_id!r}", hint="bench sql 'SELECT trial_id, case_name, repeat FROM trials'")
    return fitting[0]


def _known(lab: Lab, name: str) -> list[str]:
    """Values of a column of `trials`; of runs the one that started last comes first."""
    order = "max(started_at) DESC" if name == "run_id" else name
    answer = ask(lab, f"SELECT {name} FROM trials WHERE {name} IS NOT NULL GROUP BY 1 ORDER BY {order}")  # noqa: S608 - our names
    return [row[0] for row in answer.rows]


def _run(value: str, known: list[str], lab: Lab) -> str:
    if value == LATEST or value in known:
        return value
    begun = [run_id for run_id in known if value and run_id.startswith(value)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise UsageError(f"--run {value} is the beginning of {len(begun)} runs", hint=f"one of: {_listed(begun)}")
    raise _unknown("run", value, known, lab)


def _unknown(name: str, value: str, known: list[str], lab: Lab) -> UsageError:
    kind = name.removesuffix("_id")
    near = get_close_matches(value.lower(), known, n=1) or [one for one in known if value and value.lower() in one.lower()][:1]
    meant = f": did you mean {near[0]!r}?" if near else ""
    return UsageError(f"no {kind} {value!r} in {lab.results}{meant}", hint=f"there is: {_listed(known)}" if known else None)


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
