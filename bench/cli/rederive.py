"""`bench rederive`: are the stored numbers what the stored events give?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.choosing import one_trial
from bench.cli.options import results_option
from bench.cli.results import current_lab
from bench.errors import EXIT_FAILED, EXIT_OK
from bench.store import Lab, TrialFilter, records
from bench.store.layout import shard_path

if TYPE_CHECKING:
    from bench.lab.rederive import Rederived


@click.command()
@click.option("--run", "run_id", metavar="RUN_ID|latest", help="Only this run; latest: the one that started last.")
@click.option("--trial", "trial_id", metavar="TRIAL_ID", help="Only this trial; the beginning of its id is enough.")
@click.option("--check", is_flag=True, help="Exit status 1 if anything differs, can't be worked out, or isn't there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: trials[], agree, differ, without_numbers.")
@results_option
def rederive(*, run_id: str | None, trial_id: str | None, check: bool, as_json: bool, results: Path) -> int:
    """Work out every metric of stored trials again, from the raw events and readings in their shards, and show what differs
    from the stored numbers: nothing, unless a shard was changed or bench computes otherwise now. Metrics that came later are new,
    not different. Shards are only read.
    """
    from bench.lab.rederive import rederive as rederive_trial

    with current_lab(results) as lab:
        stored = records(lab, TrialFilter(run_id=run_id))
        chosen = stored if trial_id is None else [one_trial(stored, trial_id)]
        left_out = _left_out(lab) if run_id is None and trial_id is None else 0
        found = []
        for record in chosen:
            found.append(rederive_trial(record, lab.results / shard_path(record)))
            if not as_json:
                click.echo("\n".join(_lines(found[-1])))
    counts = _counts(found)
    if as_json:
        click.echo(json.dumps({"trials": [_trial_json(one) for one in found], **counts}, allow_nan=False))
    elif not found:
        click.echo(f"there is no trial in {results}; measure one with: bench run quickstart", err=True)
    else:
        told = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in counts.items() if count or what == "agree")
        click.echo(f"{len(found)} trial{'s' * (len(found) != 1)}: {told}")
    sound = bool(found) and left_out == 0 and all(one.agrees for one in found)
    return EXIT_FAILED if check and not sound else EXIT_OK


def _left_out(lab: Lab) -> int:
    """Shards that can't be trusted, so that they are not among the trials."""
    with lab.connect() as con:
        return len(con.execute("SELECT shard FROM rejected").fetchall())


def _verdict(one: Rederived) -> str:
    if one.problem is not None:
        return "unreadable"
    if one.differences:
        return "differs"
    return "agrees" if one.metrics else "without numbers"


def _counts(found: Sequence[Rederived]) -> dict[str, int]:
    verdicts = [_verdict(one) for one in found]
    names = {"agree": "agrees", "differ": "differs", "unreadable": "unreadable", "without_numbers": "without numbers"}
    return {name: verdicts.count(verdict) for name, verdict in names.items()}


def _lines(one: Rederived) -> list[str]:
    record = one.record
    where = f"{record.key.trial_id}  {record.case.name}, repeat {record.key.repeat}"
    if one.problem is not None:
        return [f"{where}: unreadable: {one.problem}"]
    if one.differences:
        by = f" (measured by bench {record.bench_version})"
        told = [f"  {d.what}: stored {_text(d.stored)}, recomputed {_text(d.recomputed)}" for d in one.differences]
        return [f"{where}: {len(told)} value{'s' * (len(told) != 1)} differ{'s' * (len(told) == 1)}{by}{_new(one)}", *told]
    if not one.metrics:
        return [f"{where}: {record.status.value}, nothing was measured"]
    return [f"{where}: {one.metrics} metrics agree{_new(one)}"]


def _new(one: Rederived) -> str:
    return f"; new since it was measured: {', '.join(one.new)}" if one.new else ""


def _text(value: object) -> str:
    return "nothing" if value is None else repr(value) if isinstance(value, float) else str(value)


def _trial_json(one: Rederived) -> dict[str, Any]:
    record = one.record
    return {
        "run_id": record.key.run_id,
        "trial_id": record.key.trial_id,
        "case": record.case.name,
        "repeat": record.key.repeat,
        "bench_version": record.bench_version,
        "verdict": _verdict(one),
        "metrics": one.metrics,
        "problem": one.problem,
        "new": list(one.new),
        "differences": [{"what": d.what, "stored": d.stored, "recomputed": d.recomputed} for d in one.differences],
    }
