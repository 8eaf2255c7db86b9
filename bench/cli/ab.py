"""Flags of `bench run` that ask for pairs, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from bench.analysis.ab import PairedCase
from bench.analysis.gate import PAIRS
from bench.cli.options import Command
from bench.printable import printable
from bench.reports.compare import metric_json, metric_lines
from bench.reports.differences import sides

_OPTIONS = (
    click.option(
        "--ab",
        nargs=2,
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
        head = printable(f"{one.name}: {one.pairs} valid pair{'s' * (one.pairs != 1)}, CAND{cand} against BASE{base}")
        blocks.append("\n".join(["", head, *(f"  {line}" for line in metric_lines(one.metrics))]) + "\n")
    return "".join(blocks)


def pairs_json(found: Sequence[PairedCase]) -> dict[str, Any]:
    """`pairs[]`, each with `case`, `pairs` (valid ones) and `metrics[]`; nothing without any."""
    told = [{"case": one.name, "pairs": one.pairs, "metrics": [metric_json(metric) for metric in one.metrics]} for one in found]
    return {"pairs": told} if told else {}
