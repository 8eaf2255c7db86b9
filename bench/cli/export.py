"""`bench export`: results in the shape that another program reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench import plugins
from bench.cli.choosing import checked
from bench.cli.options import results_option
from bench.cli.output_file import write_output
from bench.cli.results import current_lab
from bench.errors import EXIT_OK, StoreError, UsageError
from bench.printable import printable, printable_json, printable_lines
from bench.records import EventLog, Status, TrialRecord
from bench.store import Lab, TrialFilter, layout, records

if TYPE_CHECKING:
    from bench.reports.export import Report

_OWN = ("json", "csv", "parquet", "markdown")
_OTHERS = ("vllm-bench", "guidellm", "pytest-benchmark")
_MOST_LOGS = 2000
"""Trials whose raw events are read for one file: more of them are a mistake, and do not fit into memory."""


class _Shape(click.Choice):  # type: ignore[type-arg]  # it takes none in click 8.1
    """One of ours, or a report of an installed package: those are looked for only under another name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return str(value)
        outside = plugins.names("bench.reports")
        return str(value) if value in outside else click.Choice([*self.choices, *outside]).convert(value, param, ctx)


@click.command()
@click.option("--format", "form", type=_Shape([*_OWN, *_OTHERS]), required=True, help="The shape that is wanted.")
@click.option("--run", "run_id", metavar="RUN_ID|latest", help="Only this run (the beginning of its id will do).")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to FILE instead of stdout.")
@results_option
def export(*, form: str, run_id: str | None, out: Path | None, results: Path) -> int:
    """Write results as JSON (whole records), CSV or Parquet (one row a trial), Markdown (the table); or as other tools do:
    vllm-bench (its keys, a line a trial), guidellm (a report as GPUStack reads it), pytest-benchmark (for pytest-benchmark
    compare); or as a report of an installed package does (docs/extending.md). docs/exchange.md says what each key then means.
    """
    if form == "parquet" and out is None and sys.stdout.isatty():
        raise UsageError("Parquet is not for a terminal", hint="add --out FILE")
    with current_lab(results) as lab:
        found = records(lab, checked(lab, TrialFilter(run_id=run_id)))
        data = _bytes(lab, found, form)
    if out is None:
        sys.stdout.buffer.write(_on_terminal(data, form) if sys.stdout.isatty() else data)
        return EXIT_OK
    write_output(out, data)
    click.echo(printable(f"{len(data)} bytes of {len(found)} trials written to {out}"), err=True)
    return EXIT_OK


def _bytes(lab: Lab, found: Sequence[TrialRecord], form: str) -> bytes:
    from bench import codec
    from bench.reports.export import FORMATS

    if form in FORMATS:
        return FORMATS[form](found)
    if form not in _OTHERS:
        return _outside(form, plugins.load("bench.reports", form), found)
    if form == "pytest-benchmark":
        from bench.reports.export_pytest_benchmark import pytest_benchmark_json

        if not any(record.status is Status.VALID for record in found):
            click.echo("note: no trial is valid: the file holds no benchmark", err=True)
        return pytest_benchmark_json(found)
    if len(found) > _MOST_LOGS:
        raise UsageError(f"{len(found)} trials in one {form} file are more than {_MOST_LOGS}", hint="say which: --run RUN_ID")
    trials = [(record, _log(lab, record)) for record in found]
    for record, log in trials:
        if log is None or record.window is None:
            click.echo(f"note: {record.key.trial_id} ({record.status.value}) has no window to tell of: left out", err=True)
    if form == "guidellm":
        from bench.reports.export_guidellm import guidellm_report

        return codec.encode_pretty(guidellm_report(trials))
    from bench.reports.export_vllm_bench import vllm_bench_lines

    return vllm_bench_lines(trials)


def _outside(form: str, report: Report, found: Sequence[TrialRecord]) -> bytes:
    """What a report of an installed package makes of trials. Raises: UsageError (it fails or gives no bytes)."""
    try:
        with redirect_stdout(sys.stderr):  # what it prints is not what it reports
            made = report(tuple(found))
    except Exception as error:
        raise UsageError(
            printable(f"the report {form!r} failed: {type(error).__name__}: {error}"), hint="mend its package"
        ) from error
    if not isinstance(made, bytes):
        raise UsageError(
            f"the report {form!r} gave {type(made).__name__}, not bytes", hint="encode its text, as docs/extending.md does"
        )
    return made


def _log(lab: Lab, record: TrialRecord) -> EventLog | None:
    """The raw events of a trial, None where it has none. Raises: StoreError (they can't be read)."""
    from bench.store.parquet import read_log

    if not {layout.REQUESTS, layout.CHUNKS} <= set(record.files):
        return None
    folder = layout.shard_path(record)
    try:
        return read_log(lab.results / folder)
    except StoreError as error:
        raise StoreError(f"{folder}: {error}", hint="run: bench ingest --verify") from error


def _on_terminal(data: bytes, form: str) -> bytes:
    """An export with nothing in it that would act on the terminal; JSON keeps its meaning."""
    text = data.decode("utf-8", "replace")
    return (printable_json(text) if form in ("json", *_OTHERS) else printable_lines(text)).encode("utf-8", "replace")
