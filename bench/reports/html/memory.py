"""Memory before an engine starts, with the model loaded and at its peak, a line for each row. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.records import BOARD_SCOPES
from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.naming import Names
from bench.reports.html.plot import percent
from bench.reports.html.scale import Scale, scale_for
from bench.reports.html.strips import MOST_ROWS, axis, left_out, row_name, strip
from bench.reports.html.table import Cell, Column, Line, table
from bench.reports.html.words import Words
from bench.reports.numbers import Number, NumberColumn, pooled_number
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.text import in_table_unit, number_text
from bench.units import BYTES_PER_GIB

_MEMORIES = tuple(
    NumberColumn(key=metric, title="", plain="", metric=metric, field="value", group="memory")
    for metric in ("memory_before_b", "memory_loaded_b", "memory_used_peak_b")
)
_GRID = "grid-memory"


def memory_columns(words: Words, scale: Scale | None = None) -> list[Column]:
    """Heads of the table, with the axis where it is known."""
    drawn = None if scale is None else axis(_GRID, scale)
    titles = ("before the start", "model loaded", "peak", "there is")
    numbers = (Column(title=words(title), unit="GiB", number=True, sortable=False) for title in titles)
    memory = Column(title=words("Memory"), unit="GiB", axis=drawn, sortable=False)
    return [Column(title=words("Case"), sortable=False), memory, *numbers]


def memory_chart(rows: Sequence[Row], named: Names, words: Words) -> Html:
    """What the boards (else the engine's processes) hold; with what the boards have."""
    shown = [at for at, row in enumerate(rows) if row.numbers["memory"].value is not None][:MOST_ROWS]
    if not shown:
        return Html()
    found = {at: [pooled_number(column, rows[at].trials) for column in _MEMORIES] for at in shown}
    totals = {at: _total_b(rows[at]) for at in shown}
    known = [value for at in shown for value in (*(number.value for number in found[at]), totals[at]) if value is not None]
    scale = scale_for((value / BYTES_PER_GIB for value in known), log=False)
    lines = [
        Line(cells=(row_name(named, at), _drawn(found[at], totals[at], scale), *map(_gib, found[at]), _total(totals[at])))
        for at in shown
    ]
    caption = words("Pale: before the start. Middle: model loaded. Full: highest while measured. Line: what the boards have.")
    made = table("memories", caption, memory_columns(words, scale), lines, words)
    return joined(made, left_out(len(rows), len(shown), words))


def _total_b(row: Row) -> float | None:
    """What the boards have together; None without boards, or where one doesn't tell."""
    totals = [device.memory_total_b for device in row.first.devices if device.scope in BOARD_SCOPES]
    return None if not totals or None in totals else float(sum(total or 0 for total in totals))


def _gib(number: Number) -> Cell:
    if number.value is None:
        return Cell(shown=tag("span", MISSING_TEXT, title=number.reason), mark="none")
    return Cell(shown=Html(in_table_unit(number.metric, number.value)))


def _total(total_b: float | None) -> Cell:
    return Cell(shown=Html(MISSING_TEXT if total_b is None else number_text(total_b / BYTES_PER_GIB)))


def _drawn(numbers: Sequence[Number], total_b: float | None, scale: Scale) -> Cell:
    """Bars over each other, the longest first."""
    bars = [
        tag("rect", width=_place(scale, number.value), y="25%", height="50%", class_=f"m{depth}")
        for depth, number in reversed(list(enumerate(numbers)))
        if number.value is not None
    ]
    limit = None
    if total_b is not None:
        x = _place(scale, total_b)
        limit = tag("line", x1=x, x2=x, y1="10%", y2="90%", class_="f")
    return Cell(shown=strip(_GRID, [tag("g", *bars, limit, class_="s0")]))


def _place(scale: Scale, value_b: float) -> str:
    return percent(scale.share(value_b / BYTES_PER_GIB))
