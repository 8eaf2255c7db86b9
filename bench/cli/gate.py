"""`bench gate`: did anything get worse last night?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from bench.cli.options import a_day, results_option
from bench.cli.results import current_lab
from bench.clock import SYSTEM, iso_utc
from bench.errors import EXIT_FAILED, EXIT_OK, EXIT_REGRESSION, StoreError, UsageError

_TRIES = "next: where the results hold tries too, name what is measured every night: bench gate --where \"suite = 'nightly'\""


@click.command()
@click.option("--night", callback=a_day, metavar="YYYY-MM-DD", help="The day (UTC) to judge [default: that of the last trial].")
@click.option("--where", default="true", metavar="SQL", help="Only trials that meet this condition on trials_wide.")
@click.option("--summary", type=click.Path(path_type=Path, dir_okay=False), help="Append a Markdown summary to FILE.")
@click.option("--github", is_flag=True, help="Print one annotation a finding, as GitHub Actions reads them.")
@click.option(
    "--accept", metavar="SERIES[:METRIC]", help="From --night on, measure this series against itself: the change is meant."
)
@click.option("--reason", help="With --accept: why.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: night, series[].")
@results_option
def gate(
    *,
    night: str | None,
    where: str,
    summary: Path | None,
    github: bool,
    accept: str | None,
    reason: str | None,
    as_json: bool,
    results: Path,
) -> int:
    """Judge the last night of every series against the nights before it.

    A result that is worse than its last 20 nights triggers; pairs measured for it (bench run --ab) confirm it or don't.

    Exit status 3 for a confirmed regression or a shift of the host, else 1 where a result is missing or a trigger has no pairs
    yet.
    """
    from bench.analysis.gate import FINDINGS
    from bench.lab.gate import histories, last_night, series_ids, verdicts
    from bench.lab.gate_findings import keep_findings
    from bench.reports.gate import annotation_lines, gate_json, gate_markdown, gate_text
    from bench.store.findings import read_accepted

    if (accept is None) != (reason is None):
        raise UsageError("--accept and --reason go together", hint="bench gate --accept SERIES --reason 'new kernel'")
    with current_lab(results) as lab:
        tonight = night or last_night(lab, where)
        if tonight is None:
            click.echo("there is no trial to judge", err=True)
            return EXIT_OK
        if accept is not None and reason is not None:
            _accept(results, accept, tonight, reason, series_ids(lab, where))
        found = verdicts(lab, histories(lab, read_accepted(results), where=where, until=tonight), tonight, where)
    try:
        keep_findings(results, tonight, found)
    except StoreError as error:  # the verdict counts, even in a folder that can't be written
        click.echo(f"note: bench sql won't know of this: {error}", err=True)
    click.echo(json.dumps(gate_json(tonight, found), allow_nan=False) if as_json else gate_text(tonight, found))
    missing = any(one.missing for one in found)
    if (missing or not found) and (early := _early(tonight)):
        click.echo(early, err=True)
    if missing:
        click.echo(_TRIES, err=True)
    if github:
        click.echo("\n".join(annotation_lines(found)))
    if summary is not None:
        _append(summary, gate_markdown(tonight, found))
    if any(one.state in FINDINGS for one in found):
        return EXIT_REGRESSION
    return EXIT_FAILED if any(one.is_open for one in found) else EXIT_OK


def _early(night: str) -> str | None:
    """That a night may still be measured; None where it is over."""
    today = iso_utc(SYSTEM.wall_ns())[:10]
    return f"note: the night {night} is {'yet to come' if night > today else 'not over'} (UTC)" if night >= today else None


def _accept(results: Path, named: str, night: str, reason: str, known: Sequence[str]) -> None:
    from bench.analysis.gate import RULES
    from bench.store.findings import Accepted, add_accepted

    series, _, metric = named.partition(":")
    fitting = [one for one in known if series and one.startswith(series)]
    if len(fitting) != 1:
        raise UsageError(f"{len(fitting)} series begin with {series!r}", hint="bench gate --json shows their ids")
    if metric and metric not in RULES:
        raise UsageError(f"{metric!r} is not gated", hint=f"one of: {', '.join(RULES)}")
    add_accepted(results, Accepted(series=fitting[0], metric=metric or None, night=night, reason=reason))


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise StoreError(f"can't write {path}: {error.strerror}", hint="give another file with --summary") from error
