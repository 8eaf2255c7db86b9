"""`bench power split`: what a prompt token, an output token and a second cost, from stored trials of different lengths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import results_option
from bench.cli.results import current_lab
from bench.errors import EXIT_OK
from bench.printable import printable
from bench.store import TrialFilter, records

if TYPE_CHECKING:
    from bench.analysis.length_sweeps import LengthSweep
    from bench.stats import Estimate

_PARTS = (("j_per_input_tok", "prompt token", "J"), ("j_per_output_tok", "output token", "J"), ("idle_w", "time", "W"))
_MEASURE = (
    "vary the prompt's and the reply's length apart, as in: input_tokens: [128, 1024, 4096], output_tokens: [64, 256, 1024]"
)


@click.command()
@click.option("--run", "run_id", metavar="RUN_ID|latest", help="Only trials of this run.")
@click.option("--model", help="Only this model.")
@click.option("--engine", help="Only this engine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: sweeps[].")
@results_option
def split(*, run_id: str | None, model: str | None, engine: str | None, as_json: bool, results: Path) -> int:
    """Tell prefill and decode apart: E = a * prompt tokens + b * output tokens + c * seconds, over trials that differ in their
    lengths only. A sweep that can't tell them apart says why.
    """
    from bench.analysis.length_sweeps import length_sweeps
    from bench.cli.choosing import checked

    with current_lab(results) as lab:
        found = length_sweeps(records(lab, checked(lab, TrialFilter(run_id=run_id, model=model, engine=engine))))
    if as_json:
        click.echo(json.dumps({"sweeps": [_as_json(sweep) for sweep in found]}, allow_nan=False))
    elif found:
        click.echo("\n\n".join("\n".join(_lines(sweep)) for sweep in found))
    else:
        click.echo(f"no valid trials with an energy differ in their lengths only: {_MEASURE}", err=True)
    return EXIT_OK


def _lines(sweep: LengthSweep) -> Iterator[str]:
    from bench.reports.rows import device_label, load_label

    first = sweep.trials[0]
    parts = (first.case.model, first.case.engine, device_label(first), load_label(first.case.load))
    kind = "" if sweep.quality == "measured" else f"{sweep.quality}, "
    yield printable(f"{', '.join(parts)}: {kind}{len(sweep.trials)} trials of {sweep.lengths} pairs of lengths")
    if isinstance(sweep.split, str):
        yield f"  can't be split: {sweep.split}"
        yield f"  next: {_MEASURE}"
        return
    for field, what, unit in _PARTS:
        yield f"  {what:12}  {_estimate(getattr(sweep.split, field), unit)}"
    yield f"  what is left over: {sweep.split.residual:.1%} of each trial's energy"


def _estimate(found: Estimate, unit: str) -> str:
    assert found.low is not None
    assert found.high is not None
    told = f"{found.value:.4g} {unit} (95%: {found.low:.4g} to {found.high:.4g})"
    return f"{told}: not told apart from nothing" if found.low <= 0.0 <= found.high else told


def _as_json(sweep: LengthSweep) -> dict[str, Any]:
    first, split = sweep.trials[0], sweep.split
    told: dict[str, Any] = {
        "model": first.case.model,
        "engine": first.case.engine,
        "energy_scope": first.energy_scope,
        "quality": sweep.quality,
        "lengths": sweep.lengths,
        "trials": [trial.key.trial_id for trial in sweep.trials],
    }
    if isinstance(split, str):
        return {**told, "reason": split}
    coefficients = {
        field: {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        for field, _, _ in _PARTS
        for estimate in [getattr(split, field)]
    }
    return {**told, "reason": None, **coefficients, "residual": split.residual, "condition": split.condition}
