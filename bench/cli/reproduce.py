"""`bench reproduce`: a stored trial measured again, and what came out beside what had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bench import plugins
from bench.cli.choosing import one_trial
from bench.cli.explain_trial import stored_trial
from bench.cli.options import results_option
from bench.cli.previews import devices_here
from bench.cli.results import current_lab
from bench.cli.run import end, foresee, held, measure
from bench.errors import EXIT_OK, EXIT_REGRESSION, BenchError, UsageError
from bench.lab.compare_select import quoted
from bench.lab.plans import START_TIMEOUT_S, RunPlan, new_plan
from bench.lab.reproduce import Difference, case_again, differences, facts_here, facts_of, reproduced
from bench.models import ModelStore
from bench.printable import printable
from bench.records import SCHEMA_VERSION, LocalModel, Status, TrialRecord
from bench.reports.compare import metric_json, metric_lines
from bench.session.boards import accelerators
from bench.session.host import host_info
from bench.session.loop import new_run_id
from bench.store import Lab, TrialFilter, records
from bench.store.imported import imported
from bench.store.plans import LATEST
from bench.store.sql import ask


@click.command()
@click.argument("trial_id", metavar="TRIAL")
@click.option("--repeats", type=int, default=1, show_default=True, help="How often; from 2 on their spread tells a difference.")
@click.option("--dry-run", is_flag=True, help="Say what is not as it was and what would run, and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: differences[], metrics[].")
@results_option
def reproduce(*, trial_id: str, repeats: int, dry_run: bool, as_json: bool, results: Path) -> int:
    """Measure the stored trial TRIAL again (the beginning of its id, or `latest`): its resolved case, seed, engine and arguments.

    Says before it starts what here is not as it was then, and afterwards what the engine, its weights and the numbers are
    against the stored ones. The new trials are a run like any other.

    \b
    bench reproduce 3f9a2c1b --dry-run
    bench reproduce 3f9a2c1b --repeats 5

    Exit status 3 where the numbers were shown to be worse, 1 where the new trials are not valid.
    """
    record = _stored(results, trial_id)
    plan = new_plan(new_run_id(), [case_again(record, repeats)], (), START_TIMEOUT_S)
    before = _before(record)
    _say(record, before)
    if dry_run:
        foresee(plan, (), results, as_json)
        return EXIT_OK
    return _again(record, plan, before, results, as_json=as_json)


def _again(record: TrialRecord, plan: RunPlan, before: Sequence[Difference], results: Path, *, as_json: bool) -> int:
    with held(plan, results, is_new=True):
        outcome = measure(plan, results)
    lab = Lab(results)
    lab.ingest()
    found = reproduced(lab, record, plan.run_id)
    after = differences(facts_of(record), facts_of(outcome.records[0])) if outcome.records else []
    metrics = () if isinstance(found, str) else found.metrics
    if as_json:
        told: dict[str, Any] = {"trial_id": record.key.trial_id, "run_id": plan.run_id, "status": record.status.value}
        told |= {"new": [{"trial_id": one.key.trial_id, "status": one.status.value} for one in outcome.records]}
        told |= {"differences": [asdict(one) for one in after], "metrics": [metric_json(one) for one in metrics]}
        click.echo(json.dumps(told | {"reason": found if isinstance(found, str) else None}, allow_nan=False))
    else:
        new = [one for one in after if one not in before]
        click.echo("\n".join([*_lines(new), *(metric_lines(metrics) if metrics else [f"nothing to compare: {found}"])]))
    if any(one.ratio and one.adjusted is None for one in metrics):
        click.echo(f"one trial can't tell a difference from noise: bench reproduce {record.key.trial_id} --repeats 3", err=True)
    end(outcome, plan)
    worse = not isinstance(found, str) and bool(found.regressions)
    return outcome.exit_code or (EXIT_REGRESSION if worse else EXIT_OK)


def _stored(results: Path, trial_id: str) -> TrialRecord:
    """The one trial whose id begins so; `latest`: the one that started last. Raises: UsageError, StoreError."""
    if trial_id == LATEST:
        return stored_trial(results, trial_id)
    with current_lab(results) as lab:
        query = f"SELECT DISTINCT run_id FROM trials WHERE starts_with(trial_id, {quoted(trial_id)}) LIMIT 20"  # noqa: S608 - quoted
        runs = [row[0] for row in ask(lab, query).rows] if trial_id else []
        found = [record for run_id in runs for record in records(lab, TrialFilter(run_id=run_id))]
    if not runs:
        theirs = next((one for one in imported(results) if trial_id and one.import_id.startswith(trial_id)), None)
        if theirs is not None:
            raise UsageError(f"{theirs.import_id} was imported from {theirs.tool}: it has no case that could be run again")
    return one_trial(found, trial_id)


def _before(record: TrialRecord) -> list[Difference]:
    """What is known to differ before anything starts. Raises: UsageError (the trial's engine is no longer known)."""
    devices = devices_here()
    here = facts_here(record, host_info(board.uid for board in accelerators(devices)), devices, _weights(record))
    return differences(facts_of(record), here)


def _weights(record: TrialRecord) -> LocalModel | None:
    """The weights as they lie here, None where they must be had first or can't be told yet."""
    case = record.case
    reads = plugins.load("bench.runners", case.engine)().reads
    if not reads:
        return None
    try:
        return ModelStore(hash_limit_b=0).here(case.model, case.model_source, precision=case.precision, formats=reads)
    except BenchError:
        return None  # the run says why, with what to do


def _say(record: TrialRecord, found: Sequence[Difference]) -> None:
    key, case = record.key, record.case
    click.echo(printable(f"trial {key.trial_id}: {case.name}, repeat {key.repeat} of run {key.run_id}"), err=True)
    if record.status is not Status.VALID:
        click.echo(printable(f"  it is {record.status.value}{f': {record.error}' if record.error else ''}"), err=True)
    if key.role != "measure":
        click.echo(
            printable(f"  it was measured as {key.role}, in turns with another setting; here it is measured alone"), err=True
        )
    if record.schema_version < SCHEMA_VERSION:
        click.echo(f"  it is of schema version {record.schema_version}: what has been added since is at its default", err=True)
    for line in _lines(found) or ["what can be seen here before the start is as it was"]:
        click.echo(f"  {line}", err=True)


def _lines(found: Sequence[Difference]) -> list[str]:
    return [printable(f"{one.what}: {one.then} then, {one.now} now") for one in found]
