"""`bench history`: one series, night by night."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bench.cli.options import results_option
from bench.cli.results import current_lab
from bench.errors import EXIT_OK, UsageError


@click.command()
@click.argument("series")
@click.option("--metric", help="Only this metric [default: every one that is gated].")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: series[].")
@results_option
def history(*, series: str, metric: str | None, as_json: bool, results: Path) -> int:
    """Draw what a series was on each night, and what the gate made of it. SERIES is the beginning of its id, as in bench gate.

    A star is a night, `:` its baseline, `?` a trigger, `!` a confirmed regression, `H` a shift of the host, `|` an accepted
    change.
    """
    from bench.analysis.gate import RULES
    from bench.lab.compare_select import quoted
    from bench.lab.gate import histories
    from bench.reports.history import history_json, history_text
    from bench.store.findings import read_accepted

    if metric is not None and metric not in RULES:
        raise UsageError(f"{metric!r} is not gated", hint=f"one of: {', '.join(RULES)}")
    with current_lab(results) as lab:
        every = histories(lab, read_accepted(results), where=f"starts_with(series_id, {quoted(series)})")
    if not every:
        raise UsageError(f"no series begins with {series!r}", hint="bench gate --json shows their ids")
    found = [one for one in every if metric in (None, one.key.metric)]
    if as_json:
        click.echo(json.dumps({"series": [history_json(one) for one in found]}, allow_nan=False))
    else:
        click.echo("\n\n".join(history_text(one) for one in found))
    return EXIT_OK
