"""`bench recommend`: what to deploy, by what was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.cli.options import results_option
from bench.cli.output_file import write_output
from bench.cli.results import current_lab
from bench.errors import EXIT_FAILED, EXIT_OK, UsageError
from bench.printable import printable
from bench.store.imported import count

if TYPE_CHECKING:
    from bench.analysis.candidates import Objective, Quantile
    from bench.analysis.recommend import Recommendation
    from bench.records import Slo

_WHY_A_FLOOR = "a floor on correctness is required, for without one the lowest precision always wins, however wrong its answers"
_FLOOR_HINT = "--min-top1 0.99, --max-ppl-delta 0.01 or both (docs/correctness.md)"


@click.command()
@click.option("--model", required=True, help="The model, as in bench table.")
@click.option("--slo", "limits", metavar="LIMITS", help="Latency limits [ms], as ttft:500,tpot:50 or e2e:5000 [default: none].")
@click.option(
    "--at",
    "quantile",
    type=click.Choice(["p50", "p90", "p99"]),
    default="p99",
    show_default=True,
    help="Share of requests within them.",
)
@click.option(
    "--objective",
    required=True,
    type=click.Choice(["tok_per_j", "tok_per_s", "usd_per_mtok"]),
    help="The most output tokens per joule or second, or the fewest dollars per million.",
)
@click.option("--min-top1", metavar="SHARE", help="The least top1_agreement, above 0, up to 1.")
@click.option("--max-ppl-delta", metavar="SHARE", help="The largest ppl_delta, 0 or more.")
@click.option("--where", default="true", metavar="SQL", help="Only trials that meet this condition on trials_wide.")
@click.option("--routing", is_flag=True, help="Also: which precision is the fastest and the most efficient on which devices.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write deployment.yaml with the evidence as comments; what is there is replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: best, runners_up[], near[], left_out[], routing[].")
@results_option
def recommend(
    *,
    model: str,
    limits: str | None,
    quantile: Quantile,
    objective: Objective,
    min_top1: str | None,
    max_ppl_delta: str | None,
    where: str,
    routing: bool,
    out: Path | None,
    as_json: bool,
    results: Path,
) -> int:
    """Say what to deploy: the measured setting that is best by an objective, fast enough and correct enough.

    Only our own valid trials count, each configuration by its last run; nothing is interpolated, and what other tools measured is
    not looked at. One of --min-top1 and --max-ppl-delta is required.

    \b
    bench recommend --model qwen3-4b --slo ttft:500,tpot:50 --objective tok_per_j --min-top1 0.99 --out deployment.yaml

    Exit status 1 if nothing meets what was asked for.
    """
    from bench.analysis.recommend import Wanted
    from bench.analysis.routing import routes
    from bench.cli.choosing import checked
    from bench.lab.recommend import recommended
    from bench.reports.recommend import deployment_yaml, recommend_json
    from bench.store import TrialFilter

    wanted = Wanted(
        objective=objective,
        slos=_slos(limits) if limits is not None else (),
        quantile=quantile,
        min_top1=_floor("--min-top1", min_top1, above_zero=True),
        max_ppl_delta=_floor("--max-ppl-delta", max_ppl_delta, above_zero=False),
    )
    if wanted.min_top1 is None and wanted.max_ppl_delta is None:
        raise UsageError(_WHY_A_FLOOR, hint=_FLOOR_HINT)
    with current_lab(results) as lab:
        checked(lab, TrialFilter(model=model))
        found = recommended(lab, model, where, wanted)
    if as_json:
        click.echo(json.dumps(recommend_json(found, model, routes(found)), allow_nan=False))
    else:
        _show(found, model, routing=routing)
    if out is not None and found.best is not None:
        write_output(out, deployment_yaml(found, model).encode())
    elif out is not None:
        click.echo(printable(f"{out} is not written: there is nothing to deploy"), err=True)
    if others := count(results):
        click.echo(f"note: what other tools measured ({others}) is not looked at: bench table --imported", err=True)
    return EXIT_OK if found.best is not None else EXIT_FAILED


def _slos(text: str) -> tuple[Slo, ...]:
    """`ttft:500,tpot:50`, also with spaces, in the words of a suite's `goodput`. Raises: UsageError."""
    from pydantic import TypeAdapter, ValidationError

    from bench.suite.values import Goodput

    try:
        found: Any = TypeAdapter(Goodput).validate_python(text.replace(",", " "))
    except ValidationError as error:
        told = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"--slo {text!r}: {told}", hint="--slo ttft:500,tpot:50") from error
    return tuple(found)


def _floor(flag: str, text: str | None, *, above_zero: bool) -> float | None:
    """The number of a floor; None where it isn't given. Raises: UsageError (no number, or one that lets everything through)."""
    if text is None:
        return None
    if text.strip().lower() in ("none", "off", "no"):
        raise UsageError(f"{flag} {text}: {_WHY_A_FLOOR}", hint=_FLOOR_HINT)
    try:
        value = float(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is no number", hint=_FLOOR_HINT) from error
    if (above_zero and value <= 0.0) or value == math.inf:
        raise UsageError(f"{flag} {text} lets everything through: {_WHY_A_FLOOR}", hint=_FLOOR_HINT)
    if not 0.0 <= value <= (1.0 if above_zero else math.inf):
        raise UsageError(f"{flag} {text} is a share, {'of at most 1' if above_zero else '0 or more'}", hint=_FLOOR_HINT)
    return value


def _show(found: Recommendation, model: str, *, routing: bool) -> None:
    from bench.analysis.routing import routes
    from bench.cli.columns import show
    from bench.reports.recommend import head_text, route_rows, runner_rows, tail_text

    click.echo(head_text(found, model))
    if found.runners_up:
        click.echo()
        show(*runner_rows(found))
    if tail := tail_text(found):
        click.echo(f"\n{tail}")
    if routing and (table := routes(found)):
        click.echo()
        show(*route_rows(table))
