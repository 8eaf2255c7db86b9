"""`bench suites`: list, show, validate and expand suite files, and print their JSON Schema."""

from __future__ import annotations

import json
import sys

import click

from bench import codec, suite
from bench.cli.loading import pinned
from bench.errors import SuiteError, UsageError
from bench.identity import case_id, workload_id
from bench.printable import printable, printable_json, printable_lines
from bench.records import Case, LengthSpec
from bench.reports.rows import load_label
from bench.reports.searches import search_label
from bench.suite import Suite


@click.group()
def suites() -> None:
    """List, show, validate and expand suite files.

    A suite is named by its path, by its name in ./suites, or by the name of one that comes with bench.
    """


@suites.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_suites(as_json: bool) -> None:
    """List the suites that can be run by name."""
    rows: list[dict[str, str | int | None]] = []
    for info in suite.available():
        try:
            found = suite.load(info.path)
        except SuiteError as error:
            first = str(error).splitlines()[0]
            rows.append({"name": info.name, "origin": info.origin, "cases": None, "description": None, "problem": first})
            continue
        description = found.description.partition("\n")[0]
        cases = len(found.cases) + len(found.sweeps)
        rows.append({"name": info.name, "origin": info.origin, "cases": cases, "description": description, "problem": None})
    if as_json:
        click.echo(printable_json(json.dumps(rows, indent=2, ensure_ascii=False)))
        return
    table = [["suite", "cases", "from", "description"]]
    for row in rows:
        cases_text = "-" if row["cases"] is None else str(row["cases"])
        about = row["description"] if row["problem"] is None else f"can't be used: {row['problem']}"
        table.append([str(row["name"]), cases_text, str(row["origin"]), str(about)])
    _print_table(table)


@suites.command()
@click.argument("name")
def show(name: str) -> None:
    """Print a suite file as it is written; on a terminal control characters are written out."""
    text = suite.text_of(name)
    click.echo(printable_lines(text) if sys.stdout.isatty() else text, nl=False)


@suites.command()
@click.argument("files", nargs=-1, required=True)
def validate(files: tuple[str, ...]) -> None:
    """Check suite files: every problem of every file with its line."""
    problems: list[str] = []
    for ref in files:
        try:
            found = pinned(suite.load(ref))
        except (SuiteError, UsageError) as error:
            problems.append(str(error) + (f" ({error.hint})" if error.hint else ""))
            continue
        _say(found)
        click.echo(f"{printable(str(found.path))}: ok, {_count(found)}")
    if problems:
        raise SuiteError("\n".join(problems))


@suites.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with every resolved value.")
def expand(name: str, as_json: bool) -> None:
    """Print every case of a suite with its ids. A sweep is a line of its own: its cases are known once it runs."""
    found = pinned(suite.load(name))
    _say(found)
    cases = suite.expand(found)
    if as_json:
        rows = [
            {"case_id": case_id(c), "workload_id": workload_id(c), "name": c.name, "case": codec.to_builtins(c)} for c in cases
        ]
        rows += [
            {"name": s.case.name, "sweep": codec.to_builtins(s.search), "case": codec.to_builtins(s.case)} for s in found.sweeps
        ]
        click.echo(printable_json(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)))
        return
    header = ["case_id", "workload_id", "name", "engine", "load", "in/out", "time"]
    table = [header, *([case_id(c), workload_id(c), *_row(c)] for c in cases)]
    for sweep in found.sweeps:
        name, engine, _, lengths, time = _row(sweep.case)
        table.append(["-", "-", name, engine, search_label(sweep.search), lengths, f"{time} x {sweep.search.points}"])
    _print_table(table)


@suites.command()
def schema() -> None:
    """Print the JSON Schema of the suite format, for editors."""
    click.echo(json.dumps(suite.json_schema(), indent=2))


def _count(found: Suite) -> str:
    parts = [(len(found.cases), "case"), (len(found.sweeps), "sweep")]
    return ", ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in parts if count)


def _say(found: Suite) -> None:
    for warning in found.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)


def _row(case: Case) -> list[str]:
    load = case.load
    if load.stages or load.arrivals == "trace":
        what = load_label(load)
    elif load.kind == "closed":
        what = f"batch {load.batch_size}"
    elif load.request_rate is None:
        what = "all at once"
    else:
        what = f"{load.request_rate:g}/s {load.arrivals}"
    length = f"{load.num_prompts} prompts" if load.num_prompts else f"{case.duration_s:g}s"
    lengths = f"{_tokens(case.input_tokens)}/{_tokens(case.output_tokens)}"
    return [case.name, case.engine, what, lengths, f"{length} x {case.repeats}"]


def _tokens(spec: LengthSpec) -> str:
    return str(spec.mean) if spec.dist == "fixed" else f"~{spec.mean}"


def _print_table(rows: list[list[str]]) -> None:
    """Columns two spaces apart, the same on a terminal and in a pipe."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
