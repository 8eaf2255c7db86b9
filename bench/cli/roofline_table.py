"""`bench table --columns roofline`: results beside what their chips could do."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from bench.cli.columns import show
from bench.printable import printable
from bench.reports.roofline import HEADER, roofline_json, roofline_table
from bench.reports.rows import Row


def show_roofline(table: Sequence[Row], *, as_json: bool) -> None:
    """Print rows with the catalogue's figures that they stand beside."""
    if as_json:
        click.echo(json.dumps(roofline_json(table), allow_nan=False))
        return
    lines, notes = roofline_table(table)
    show(HEADER, lines)
    for note in notes:
        click.echo(printable(note))
