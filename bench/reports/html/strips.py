"""Tables whose cells hold a drawing along one axis for all rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bench.reports.html.markup import Html, tag
from bench.reports.html.naming import Names
from bench.reports.html.plot import percent
from bench.reports.html.scale import Scale, tick_text
from bench.reports.html.table import Cell
from bench.reports.html.words import Words

MOST_ROWS = 60
"""Rows in such a table; the table of results has all."""


def strip(name: str, marks: Iterable[Html | None]) -> Html:
    """A drawing over the grid that `axis` made under the same name, of numbers that stand beside it."""
    return tag("svg", tag("use", href=f"#{name}"), *marks, class_="strip", aria_hidden="true")


def axis(name: str, scale: Scale) -> Html:
    """The numbers of an axis, for the head of its column, and the grid of all strips below."""
    places = [(percent(scale.share(tick)), tick_text(tick)) for tick in scale.ticks]
    texts = (tag("text", told, x=x, y="13", text_anchor="middle") for x, told in places)
    grid = tag("g", *(tag("line", x1=x, x2=x, y1="0", y2="100%", class_="g") for x, _ in places), id=name)
    return tag("svg", tag("defs", grid), *texts, class_="strip", aria_hidden="true")


def row_name(named: Names, at: int) -> Cell:
    """What a row is called, with the way to it."""
    return Cell(shown=tag("a", named.rows[at], href=f"#r{at}"))


def left_out(rows: int, shown: int, words: Words) -> Html | None:
    """Under a table that has not all rows."""
    told = "Not drawn: {} of {} rows, which have no such number or are too many."
    return tag("p", words(told, rows - shown, rows), class_="note") if shown < rows else None
