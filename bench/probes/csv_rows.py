"""The CSV that vendors' tools print: columns known by the names in the header, units in the cells, in the header, or nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from bench.probes import values
from bench.probes.tool import whole_lines
from bench.probes.values import Step, Unavailable

_NAME = re.compile(r"(.*?)\s*(?:\[(.*)\]|\((.*)\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell's text, and the unit in the name of its column (None where it has none)."""

    text: str
    unit: str | None = None


Row = Mapping[str, Cell]
"""Cells by the name of the column in lower case, without its unit."""


def rows(text: str, key: str) -> list[Row]:
    """The rows under the first header that names the column `key`. Lines with another number of cells are no rows.

    Raises: Unavailable where there is no such header, or it names a column twice.
    """
    lines = [[cell.strip() for cell in line.split(",")] for line in whole_lines(text)]
    for place, header in enumerate(lines):
        columns = [column(name) for name in header]
        names = [name for name, _ in columns]
        if key in names:
            if len(set(names)) < len(names):
                raise Unavailable(f"the tool names a column twice: {', '.join(names)[:80]}", lasting=False)
            return [dict(_cells(columns, row)) for row in lines[place + 1 :] if len(row) == len(columns)]
    raise Unavailable(f"the tool's output has no column {key!r}: {' '.join(text.split())[:80]!r}", lasting=False)


def steps(row: Row, sources: Mapping[str, tuple[str, str, str]]) -> dict[str, Step]:
    """How to read each quantity whose column is there, from its column, its kind, and the unit where the tool names none."""
    return {name: partial(_quantity, row[source], kind, unit) for name, (source, kind, unit) in sources.items() if source in row}


def word(row: Row, name: str) -> str | None:
    """A text that says something."""
    return values.named(row[name].text) if name in row else None


def _quantity(cell: Cell, kind: str, unit: str) -> float:
    return values.quantity(cell.text, kind, cell.unit or unit)


def column(name: str) -> tuple[str, str | None]:
    """A column's name in lower case, and its unit: `power.draw [W]`, `GPU Power (W)`."""
    found = _NAME.fullmatch(name.lower())
    assert found is not None
    return found[1], found[2] or found[3]


def _cells(columns: list[tuple[str, str | None]], row: list[str]) -> Iterator[tuple[str, Cell]]:
    for (name, unit), text in zip(columns, row, strict=True):
        yield name, Cell(text=text, unit=unit)
