"""Flags of `bench run` that ask for pairs, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from bench.analysis.ab import PairedCase
from bench.analysis.gate import PAIRS
from bench.cli.options import Command
from bench.errors import UsageError
from bench.lab.ab import settings_of
from bench.printable import printable
from bench.reports.compare import metric_json, metric_lines
from bench.reports.differences import sides


def _two_sides(_: click.Context, __: click.Parameter, sides: tuple[str, str] | None) -> tuple[str, str] | None:
    """Where one side was forgotten, the next word of the line stands in its place. Raises: UsageError."""
    for side in sides or ():
        if side.startswith("-"):
            raise UsageError(f"--ab takes two settings, BASE and CAND, and got {side!r} as one", hint=_SIDES_HINT)
        settings_of(side)
    return sides


_SIDES_HINT = "--ab BASE CAND, each KEY=VALUE, or '' for the suite as it is"
_OPTIONS = (
    click.option(
        "--ab",
        nargs=2,
        callback=_two_sides,
        metavar="BASE CAND",
        help="Measure two settings in turns: each KEY=VALUE as in a suite, several in quotes, '' for none.",
    ),
    click.option("--pairs", type=int, help=f"With --ab: how many pairs of each case [default: {PAIRS}]."),
)


def ab_options(command: Command) -> Command:
    """Adds `--ab` and what goes with it."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def pairs_text(found: Sequence[PairedCase]) -> str:
    """A block for each case that was measured in pairs; empty without any."""
    blocks = []
    for one in found:
        base, cand = (f" ({told})" if told else "" for told in sides(one))
        out = f" ({one.left_out} more left out: another build or machine)" if one.left_out else ""
        head = printable(f"{one.name}: {one.pairs} valid pair{'s' * (one.pairs != 1)}{out}, CAND{cand} against BASE{base}")
        blocks.append("\n".join(["", head, *(f"  {line}" for line in metric_lines(one.metrics))]) + "\n")
    return "".join(blocks)


def pairs_json(found: Sequence[PairedCase]) -> dict[str, Any]:
    """`pairs[]`, each with `case`, `pairs` (valid ones), `left_out` (valid, but of another build or machine) and `metrics[]`;
    nothing without any.
    """
    told = [
        {
            "case": one.name,
            "pairs": one.pairs,
            "left_out": one.left_out,
            "metrics": [metric_json(metric) for metric in one.metrics],
        }
        for one in found
    ]
    return {"pairs": told} if told else {}
