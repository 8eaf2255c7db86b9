"""Tables that can be sorted, and that become cards where the page is narrow. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.words import Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column. `unit` and `axis` stand under its title; `number`: aligned to the right; `sortable`: a button heads it;
    `about`: what it is, for the pointer.
    """

    title: str
    unit: str = ""
    axis: Html | None = None
    number: bool = False
    sortable: bool = True
    about: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands in a table, its second line, and what it is sorted by where that isn't its text. What is no number in a column
    of numbers is missing and comes last. `mark`: a class.
    """

    shown: Html
    below: str | Html = ""
    sort_by: float | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A cell a column, of which the first names the line. `id`: what a link leads to."""

    cells: Sequence[Cell]
    id: str | None = None


def table(name: str, caption: str, columns: Sequence[Column], lines: Iterable[Line], words: Words) -> Html:
    """A table. `name` is its class and the beginning of its caption's id; the cards of narrow pages take their labels from
    `labels`.
    """
    head = tag("tr", *(_head(column, words) for column in columns))
    body = (_row(line, columns) for line in lines)
    made = tag("table", tag("caption", caption, id=f"{name}-caption"), tag("thead", head), tag("tbody", *body), class_=name)
    return tag("div", made, class_="scroll", role="region", tabindex=0, aria_labelledby=f"{name}-caption")


def labels(name: str, columns: Sequence[Column]) -> str:
    """The style rules that name each cell of a card: words of ours only, so that they can't end the rule."""
    numbered = itertools.islice(enumerate(columns, start=1), 1, None)
    rules = (f'.{name} tbody>tr>:nth-child({at})::before{{content:"{_plain(column)}"}}' for at, column in numbered)
    return f"@media (max-width:719px){{{''.join(rules)}}}"


def _plain(column: Column) -> str:
    return f"{column.title}{f', {column.unit}' if column.unit else ''}"


def _head(column: Column, words: Words) -> Html:
    inside = joined(column.title, tag("small", column.unit) if column.unit else None)
    if column.sortable:
        inside = tag("button", inside, type="button", title=column.about or words("sort by this column"))
    return tag("th", inside, column.axis, scope="col", class_="n" if column.number else None)


def _row(line: Line, columns: Sequence[Column]) -> Html:
    made = []
    for at, (cell, column) in enumerate(zip(line.cells, columns, strict=True)):
        classes = " ".join(filter(None, ("n" if column.number else None, cell.mark))) or None
        below = tag("small", cell.below) if cell.below else None
        value = None if cell.sort_by is None else f"{cell.sort_by:.6g}"
        made.append(tag("td" if at else "th", cell.shown, below, scope=None if at else "row", class_=classes, data_v=value))
    return tag("tr", *made, id=line.id)
