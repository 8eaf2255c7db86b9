"""`bench equivalents`: how many chips of a kind a result is worth."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bench.cli.options import results_option
from bench.cli.results import current_lab
from bench.errors import EXIT_OK


@click.command()
@click.argument("trial_id", metavar="TRIAL_ID|latest")
@click.option("--chip", "chip_name", default="H100 SXM", show_default=True, help="Counted in this chip.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: measured, roofline, and why one is missing.")
@results_option
def equivalents(*, trial_id: str, chip_name: str, as_json: bool, results: Path) -> int:
    """Say how many H100s (or other chips) a result is worth on its workload.

    Measured: its throughput over that of the best valid point of the same workload, model and precision on such chips, per chip,
    with a 95% interval where both have repeats. Roofline: from the catalogue's peaks alone, and marked so.
    """
    from bench.cli.explain_trial import stored_trial
    from bench.lab.equivalents import chip_called
    from bench.lab.equivalents import equivalents as worth
    from bench.reports.equivalents import equivalents_json, equivalents_text

    chip = chip_called(chip_name)
    record = stored_trial(results, trial_id)
    with current_lab(results) as lab:
        found = worth(lab, record, chip)
    click.echo(json.dumps(equivalents_json(found), allow_nan=False) if as_json else equivalents_text(found))
    return EXIT_OK
