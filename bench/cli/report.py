"""`bench report`: results as one HTML file that can be sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.options import results_option
from bench.cli.output_file import write_output
from bench.cli.results import current_lab
from bench.errors import EXIT_OK, UsageError
from bench.printable import printable
from bench.store import TrialFilter
from bench.units import format_bytes

if TYPE_CHECKING:
    from bench.reports.html.words import Language


@click.command()
@click.option("--run", "run_id", metavar="RUN_ID|latest", help="Only this run (the beginning of its id will do).")
@click.option("--filter", "where", metavar="SQL", help="Only trials that meet this condition on trials_wide.")
@click.option("--compare", "sides", nargs=2, metavar="BASE CAND", help="Two sides, named as in bench compare, and their ratios.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="Where it goes; what is there is replaced.",
)
@click.option("--lang", "language", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="English or Chinese.")
@results_option
def report(
    *, run_id: str | None, where: str | None, sides: tuple[str, str] | None, out: Path, language: Language, results: Path
) -> int:
    """Write results as one HTML file: tables that sort, charts, reasons, history. It loads nothing, so it can be sent, printed
    and kept. Without --run, --filter or --compare: the last run of each case.
    """
    from bench.cli.choosing import checked
    from bench.lab.report import report_of, report_of_comparison, report_of_last_runs, report_of_run
    from bench.reports.html import report_html

    if sum(given is not None for given in (run_id, where, sides)) > 1:
        raise UsageError("--run, --filter and --compare exclude each other", hint="give one of them")
    with current_lab(results) as lab:
        if sides is not None:
            made = report_of_comparison(lab, *sides)
        elif where is not None:
            made = report_of(lab, where)
        elif run_id is not None:
            made = report_of_run(lab, checked(lab, TrialFilter(run_id=run_id)).run_id or run_id)
        else:
            made = report_of_last_runs(lab)
    if not made.records:
        raise UsageError("there is no such trial, so there is nothing to report", hint="bench table --all shows what there is")
    data = report_html(made, language)
    write_output(out, data)
    count = len(made.records)
    click.echo(printable(f"{count} trial{'s' * (count != 1)} written to {out} ({format_bytes(len(data))})"), err=True)
    return EXIT_OK
