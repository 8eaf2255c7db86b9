"""The answer to a query: a table or one block a row on a terminal, aligned text where something else reads, JSON, CSV."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import sys
from typing import Any

import click

from bench.printable import printable, printable_lines
from bench.store.sql import Answer

_LEAST_CELL = 16
"""Longer values may fold down to this many cells before a table gives way to blocks."""
_GAP = 2


def show_answer(answer: Answer, *, as_json: bool, as_csv: bool) -> None:
    """Print it on stdout in the form that is asked for, else in the one that suits whoever reads."""
    if as_json:
        objects = [{name: _plain(value, for_json=True) for name, value in row.items()} for row in answer.objects]
        click.echo(json.dumps(objects, allow_nan=False))
    elif as_csv:
        from bench.reports.export import no_formula
        from bench.reports.text import csv_line

        lines = [answer.columns, *([_plain(value) for value in row] for row in answer.rows)]
        text = "".join(csv_line(map(no_formula, line)) for line in lines)
        click.echo(printable_lines(text) if sys.stdout.isatty() else text, nl=False)
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(on_terminal(answer, console.width))
    else:
        click.echo(_aligned(answer))


def on_terminal(answer: Answer, width: int) -> Any:
    """A table where all its columns can be read at `width`, else one block a row."""
    names = [printable(name) for name in answer.columns]
    columns = [list(column) for column in zip(*_texts(answer), strict=True)] or [[] for _ in answer.columns]
    natural = [max(map(len, (name, *column))) for name, column in zip(names, columns, strict=True)]
    floors = [max(len(name), min(_LEAST_CELL, wide)) for name, wide in zip(names, natural, strict=True)]
    spare = width - sum(floors) - _GAP * (len(floors) - 1)
    return _blocks(answer) if spare < 0 else _table(answer, floors, natural, spare)


def _table(answer: Answer, floors: list[int], natural: list[int], spare: int) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for name, floor, wide in zip(map(printable, answer.columns), floors, natural, strict=True):
        more = min(spare, wide - floor)
        spare -= more
        shown.add_column(Text(name), overflow="fold", width=floor + more)
    for row in _texts(answer):
        shown.add_row(*(Text(part) for part in row))
    return shown


def _blocks(answer: Answer) -> Any:
    """`column  value` lines under the number of each row."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for number, row in enumerate(_texts(answer), start=1):
        block = Table.grid(padding=(0, _GAP, 0, 0))
        block.add_column(overflow="fold")
        block.add_column(overflow="fold")
        for name, value in zip(map(printable, answer.columns), row, strict=True):
            block.add_row(Text(name), Text(value, style="dim" if value == "NULL" else ""))
        parts += [Text(f"row {number} of {len(answer.rows)}", style="bold"), block]
    return Group(*parts) if parts else Text(f"no rows ({len(answer.columns)} columns)")


def _plain(value: Any, *, for_json: bool = False) -> Any:
    """A value of DuckDB as Python has it; what is not finite is null in JSON, which has no word for it."""
    if isinstance(value, float):
        return None if for_json and not math.isfinite(value) else value
    if isinstance(value, dict):
        return {str(key): _plain(item, for_json=for_json) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, for_json=for_json) for item in value]
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _texts(answer: Answer) -> list[list[str]]:
    return [["NULL" if value is None else printable(str(_plain(value))) for value in row] for row in answer.rows]


def _aligned(answer: Answer) -> str:
    lines = [[printable(name) for name in answer.columns], *_texts(answer)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(answer.columns))]
    return "\n".join("  ".join(part.ljust(w) for part, w in zip(line, widths, strict=True)).rstrip() for line in lines)
