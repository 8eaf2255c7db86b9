"""Rows for a person: a table on a terminal, aligned plain lines where something else reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bench.printable import printable
from bench.records import ProbeProblem

if TYPE_CHECKING:
    from rich.table import Table

NONE = "-"


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[str] = ("uid",)) -> Table:
    """For a terminal. The columns named in `whole` are never broken: a uid is there to be copied."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, overflow="fold", no_wrap=header in whole)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def plain_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned with spaces, never cut."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (headers, *rows)]


def show(headers: Sequence[str], rows: Sequence[Sequence[str]], *, err: bool = False) -> None:
    """Print rows in the way that suits whoever reads."""
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        from rich.console import Console

        Console(stderr=err).print(rich_table(headers, rows))
        return
    for line in plain_lines(headers, rows):
        click.echo(line, err=err)


def watts(power_w: float | None) -> str:
    """`655.8 W`."""
    return NONE if power_w is None else f"{power_w:.1f} W"


def problem_in_words(problem: ProbeProblem) -> str:
    """What can't be read, and how to mend it."""
    what = printable(f"{problem.probe}: {problem.subject}: {problem.problem}")
    return f"\n! {what}\n  fix: {printable(problem.fix)}"
