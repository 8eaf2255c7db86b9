"""`bench table`, `bench ingest`, `bench sql`: what was measured, in the form that is wanted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from bench.cli.answers import show_answer
from bench.cli.choosing import checked
from bench.cli.options import results_option
from bench.errors import EXIT_FAILED, EXIT_OK, UsageError
from bench.printable import printable
from bench.records import Status
from bench.store import IngestReport, Lab, Rejection, TrialFilter, adopt, records
from bench.store.foreign import bring_in
from bench.store.imported import count, imported
from bench.store.records import count_cases
from bench.store.sql import Answer, ask, change

MOST_CASES = 200
"""A table without --run, --all or --json has no more than so many: nobody reads a longer one, and each case costs time."""


@click.command()
@click.option(
    "--run",
    "run_id",
    metavar="RUN_ID|latest",
    help="Only this run (the beginning of its id will do); latest: the one that started last.",
)
@click.option("--suite", help="Only cases of this suite.")
@click.option("--model", help="Only this model.")
@click.option("--engine", help="Only this engine.")
@click.option("--status", type=click.Choice([status.value for status in Status]), help="Only trials with this status.")
@click.option("--all", "every_run", is_flag=True, help="Every run, not only the last of each case.")
@click.option("--trials", "each_trial", is_flag=True, help="One row a trial instead of repeats pooled.")
@click.option("--imported", "others", is_flag=True, help="What other tools measured (bench import), and nothing of ours.")
@click.option(
    "--columns",
    type=click.Choice(["main", "roofline"]),
    default="main",
    show_default=True,
    help="roofline: beside what the chips could do (MFU, MBU, tokens per rated TFLOP/s, TB/s and W).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: rows[].")
@results_option
def table(
    *,
    run_id: str | None,
    suite: str | None,
    model: str | None,
    engine: str | None,
    status: str | None,
    every_run: bool,
    each_trial: bool,
    others: bool,
    columns: str,
    as_json: bool,
    results: Path,
) -> int:
    """Show what was measured: one row for each case, repeats pooled. Without --run or --all: the last run of each case."""
    from bench.reports.rows import newest, rows
    from bench.reports.table import plain_table, screen_table, table_json

    wanted = TrialFilter(run_id=run_id, suite=suite, model=model, engine=engine, status=status)
    if others:
        if wanted != TrialFilter() or every_run or each_trial:
            raise UsageError("--imported goes with no other choice", hint="bench sql 'SELECT * FROM imported' takes conditions")
        return _imported_table(results, as_json=as_json)
    with current_lab(results) as lab:
        wanted = checked(lab, wanted)
        last_runs = run_id is None and not every_run
        most = MOST_CASES if last_runs and not as_json else None
        found = records(lab, wanted, last_runs=last_runs, most_cases=most)
        unseen = count_cases(lab, wanted) - most if most else 0
    if unseen > 0:
        _tell(
            f"note: {unseen} cases measured before these are not shown: choose with --suite, --model, --engine or --run, or --all"
        )
    if last_runs:
        found = newest(found)
    made = rows(found, pooled=not each_trial)
    if left_out := count(results):
        _tell(f"note: what other tools measured ({left_out}) is not in this table: bench table --imported")
    if columns == "roofline" and made:
        from bench.cli.roofline_table import show_roofline

        show_roofline(made, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(table_json(made), allow_nan=False))
    elif not made:
        _tell(f"{_nothing(wanted, results)}; measure one with: bench run quickstart")
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(screen_table(made))
    else:
        click.echo(plain_table(made))
    return EXIT_OK


def _imported_table(results: Path, *, as_json: bool) -> int:
    from bench.cli.imported_table import show_imported

    found = imported(results)
    if not found and not as_json:
        _tell(f"there is no imported result in {results}; import one with: bench import FILE")
    show_imported(found, as_json=as_json)
    return EXIT_OK


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH|ZIP|URL]...")
@click.option("--verify", is_flag=True, help="Hash every file of every shard, also of those known already.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: added, unchanged, removed, rejected[].")
@results_option
def ingest(*, paths: tuple[str, ...], verify: bool, as_json: bool, results: Path) -> int:
    """Load shards into the results database. With folders, zip files or URLs (s3://...): first copy the shards found there
    into the results folder.

    Exit status 1 if any shard was rejected.
    """
    foreign = bring_in(results, paths) if paths else None
    _require(results)
    _adopt(results)
    report = Lab(results).ingest(_progress(), verify=verify)
    rejected = (*(foreign.rejected if foreign else ()), *report.rejected)
    if as_json:
        click.echo(json.dumps(_ingest_json(report, rejected)))
    else:
        gone = f", {report.removed} removed (their shards are gone)" if report.removed else ""
        click.echo(f"{report.added} added, {report.unchanged} unchanged, {len(rejected)} rejected{gone}")
        for rejection in rejected:
            click.echo(printable(f"rejected {rejection.shard}: {rejection.reason}"))
    return EXIT_FAILED if rejected else EXIT_OK


@click.command()
@click.argument("query", required=False)
@click.option("-f", "--file", "file", type=click.File(encoding="utf-8"), help="Read the query from FILE; - is stdin.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV with a header.")
@click.option("--write", is_flag=True, help="Let the query change the database. A rebuild from shards drops such changes.")
@results_option
def sql(*, query: str | None, file: Any, as_json: bool, as_csv: bool, write: bool, results: Path) -> int:
    """Query results with SQL. Tables: trials, metrics, reasons, shards, rejected. Views: trials_wide, points, latest,
    series, pareto, missing, costs, and over the raw events requests, chunks, telemetry. What other tools measured: imported,
    imported_metrics. What bench gate told of: findings, accepted. QUERY may be - for stdin.

    \b
    bench sql "SELECT model, batch_size, output_tok_per_s, ttft_p50_ms FROM trials_wide WHERE status = 'valid'"
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other")
    text = _query_text(query, file)
    if write:
        _require(results)
        _adopt(results)
        lab = Lab(results)
        lab.ingest()
        answer = change(lab, text)
    else:
        with current_lab(results) as lab:
            answer = ask(lab, text)
            _tell_if_none_is_valid(lab, answer)
    show_answer(answer, as_json=as_json, as_csv=as_csv)
    return EXIT_OK


@contextmanager
def current_lab(results: Path) -> Iterator[Lab]:
    """A lab in line with its shards, whatever a killed run left behind. Raises: UsageError, StoreError."""
    _require(results)
    with Lab.for_reading(results, on_wait=_tell) as lab:
        _adopt(results)
        for rejection in lab.refresh(_progress()).rejected:
            _tell(f"note: {rejection.shard} is left out: {rejection.reason}")
        yield lab


def _nothing(wanted: TrialFilter, results: Path) -> str:
    """Why a table is empty."""
    given = {f.name: value for f in fields(wanted) if (value := getattr(wanted, f.name)) is not None}
    flags = " ".join(f"--{name.removesuffix('_id')} {value}" for name, value in given.items())
    return f"no trial in {results} matches {flags}" if given else f"there is no trial in {results}"


def _tell_if_none_is_valid(lab: Lab, answer: Answer) -> None:
    """On stderr, why an answer is likely to be empty: nothing here is valid."""
    if answer.rows:
        return
    ((count, valid),) = ask(lab, "SELECT count(*), count(*) FILTER (status = 'valid') FROM trials").rows
    if count and not valid:
        _tell(f"note: none of the {count} trials here is valid: bench table --all says why")


def _require(results: Path) -> None:
    if not results.is_dir():
        raise UsageError(
            f"there is no folder {results.absolute()}",
            hint="measure something first (bench run quickstart), or give --results DIR",
        )


def _adopt(results: Path) -> None:
    """Make shards of what killed runs left; the load generator is imported only when something is there."""
    partial = results / "shards" / ".partial"
    if not partial.is_dir() or not any(partial.iterdir()):
        return
    from bench.load import recover

    report = adopt(results, recover)
    for folder in report.adopted:
        _tell(f"note: a killed trial was kept: {folder}")
    for note in report.notes:
        _tell(f"note: {note}")


def _tell(message: str) -> None:
    click.echo(printable(message), err=True)


def _progress() -> Any:
    """Counts on a terminal where there is much to read; silence elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        if total >= 500 and (done % 100 == 0 or done == total):
            click.echo(f"\rreading shards: {done} of {total}", nl=done == total, err=True)

    return show


def _ingest_json(report: IngestReport, rejected: tuple[Rejection, ...]) -> dict[str, Any]:
    return {
        "added": report.added,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "rejected": [{"shard": r.shard, "reason": r.reason} for r in rejected],
    }


def _query_text(query: str | None, file: Any) -> str:
    if (query is None) == (file is None):
        raise UsageError("give one query: as an argument, with -f FILE, or - for stdin")
    if file is not None:
        try:
            return str(file.read())
        except UnicodeDecodeError as error:
            raise UsageError(f"the query in {file.name} is not UTF-8", hint="save it as UTF-8") from error
    assert query is not None
    return sys.stdin.read() if query == "-" else query


__all__ = ["current_lab", "ingest", "sql", "table"]
