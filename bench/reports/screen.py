"""The table of results on a terminal: a table where it fits, else one short block a row. No width crops a number. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

from bench.printable import printable
from bench.reports.advice import Again, measure_again
from bench.reports.differences import differences
from bench.reports.footer import Footer, footer
from bench.reports.notes import TITLES
from bench.reports.numbers import COLUMNS, Number
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.text import interval_text, is_mixed, shown, spread_text, status_text, value_text

_GAPS = (2, 1)
"""Cells between columns of the table: where there is room, and where there is little."""
_USUAL_WORD = 12
"""Words up to this length are not broken where there is any other way."""
_INDENT = 2
_BETWEEN = 3
"""Cells between the numbers of a block."""

_Spread = Callable[[Number], str]


class ScreenTable:
    """Rows for a terminal of any width."""

    def __init__(self, table: Sequence[Row], again: Again | None = measure_again) -> None:
        self._table = table
        self._again = again
        self._cases = differences(table)
        self._marks = ["" if mark == MISSING_TEXT else mark for mark in footer(table, TITLES).marks]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        full, short = (_columns(self._table, self._cases, self._marks, spread) for spread in (interval_text, spread_text))
        forms = [(columns, gap) for columns in (full, short) for gap in _GAPS if _needed(columns, gap) <= width]
        if not forms and _least(short, _GAPS[-1]) <= width:
            forms = [(short, _GAPS[-1])]
        if forms:
            yield _grid(*forms[0], width)
        else:
            yield from _blocks(self._table, self._cases, self._marks, width)
        full_intervals = bool(forms) and forms[0][0] is full
        yield from _under(footer(self._table, TITLES, full_intervals=full_intervals, again=self._again))


def _under(under: Footer) -> RenderResult:
    yield from (Text(line) for line in under.notes)
    yield from (Text(line, style="dim") for line in under.meanings)
    yield from (Text(line) for line in under.following)


# --- a table ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """`floor`: the width down to which its cells may fold; None where they must stay whole."""

    header: str
    cells: tuple[Text, ...]
    floor: int | None = None

    @property
    def natural(self) -> int:
        """Width of the longest line."""
        texts = (self.header, *(cell.plain for cell in self.cells))
        return max(cell_len(line) for text in texts for line in text.split("\n"))

    @property
    def least(self) -> int:
        return self.natural if self.floor is None else min(self.floor, self.natural)

    @property
    def needed(self) -> int:
        """Width at which no word of usual length is broken."""
        texts = (self.header, *(cell.plain for cell in self.cells))
        longest = max(cell_len(word) for text in texts for word in text.split() or [""])
        return min(max(self.least, min(longest, _USUAL_WORD)), self.natural)


def _columns(table: Sequence[Row], cases: Sequence[str], marks: Sequence[str], spread: _Spread) -> list[_Column]:
    """Names fold, the interval stands under its number."""
    several_runs = len({row.first.key.run_id for row in table}) > 1
    models, engines, loads, states = [], [], [], []
    for row, case, mark in zip(table, cases, marks, strict=True):
        names = [row.case.model, row.precision, *[case] * bool(case), *[f"run {_short_run(row, table)}"] * several_runs]
        models.append(Text("\n".join(map(printable, names))))
        engines.append(Text(f"{printable(row.case.engine)}\n{printable(row.devices)}"))
        loads.append(Text(f"{row.load}\n{row.lengths}"))
        states.append(Text.assemble((status_text(row), _colour(row)), f"\n{mark}" if mark else ""))
    return [
        _Column(header="Model\nprecision", cells=tuple(models), floor=11),
        _Column(header="Engine\ndevices", cells=tuple(engines), floor=8),
        _Column(header="Load\nin/out", cells=tuple(loads), floor=7),
        *(_Column(header=c.title, cells=tuple(_under_each_other(row, c.key, spread) for row in table)) for c in COLUMNS),
        _Column(header="Status\nnotes", cells=tuple(states), floor=9),
    ]


def _short_run(row: Row, table: Sequence[Row]) -> str:
    """The end of the run's id where that is enough to know it by; the ids stand in full under the table."""
    runs = {other.first.key.run_id for other in table}
    short = row.first.key.run_id.rpartition("-")[2]
    return short if sum(run.endswith(short) for run in runs) == 1 else row.first.key.run_id


def _under_each_other(row: Row, key: str, spread: _Spread) -> Text:
    value, _, mark = value_text(row, key).partition(" ")
    below = mark or spread(shown(row, key))
    return _coloured(row, key, value, f"\n{below}" if below else "")


def _least(columns: Sequence[_Column], gap: int) -> int:
    return sum(column.least for column in columns) + gap * (len(columns) - 1)


def _needed(columns: Sequence[_Column], gap: int) -> int:
    return sum(column.needed for column in columns) + gap * (len(columns) - 1)


def _widths(columns: Sequence[_Column], spare: int) -> list[int]:
    """Widths of the columns. What there is to spare first keeps words whole, then lines, beginning where that costs the least."""
    widths = [column.least for column in columns]
    for aims in ([column.needed for column in columns], [column.natural for column in columns]):
        for _, at in sorted((aim - wide, at) for at, (aim, wide) in enumerate(zip(aims, widths, strict=True))):
            more = min(spare, aims[at] - widths[at])
            widths[at], spare = widths[at] + more, spare - more
    return widths


def _grid(columns: Sequence[_Column], gap: int, width: int) -> Table:
    shown_as = Table(box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)  # the box has one cell
    widths = _widths(columns, width - _least(columns, gap))
    for column, wide in zip(columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.floor is None else "left"
        shown_as.add_column(column.header, overflow="fold", width=wide, justify=justify)
    for line in zip(*(column.cells for column in columns), strict=True):
        shown_as.add_row(*line)
    return shown_as


# --- blocks -----------------------------------------------------------------------------------------------------------


def _blocks(table: Sequence[Row], cases: Sequence[str], marks: Sequence[str], width: int) -> RenderResult:
    """Under the row's names its numbers, as many beside each other as fit, at the same place in every block."""
    several_runs = len({row.first.key.run_id for row in table}) > 1
    texts = [[_beside_each_other(row, column.key) for column in COLUMNS] for row in table]
    title_width = max(map(len, TITLES.values()))
    value_width = max((text.cell_len for line in texts for text in line), default=0)
    beside = max(1, (width - _INDENT + _BETWEEN) // (title_width + 1 + value_width + _BETWEEN))
    deep = -(-len(COLUMNS) // beside)
    for row, case, mark, values in zip(table, cases, marks, texts, strict=True):
        names = [row.case.model, row.precision, row.case.engine, row.devices, row.load, row.lengths, case]
        names += [f"run {row.first.key.run_id}"] * several_runs
        yield Text(", ".join(printable(name) for name in names if name not in ("", MISSING_TEXT)), style="bold")
        yield Text.assemble(" " * _INDENT, (status_text(row), _colour(row)), f" {mark}" if mark else "")
        if all(shown(row, column.key).value is None for column in COLUMNS):
            continue  # its note says why
        items = [_item(title, title_width, value, value_width) for title, value in zip(TITLES.values(), values, strict=True)]
        for line in range(deep):
            together = Text.assemble(" " * _INDENT, *items[line::deep])
            together.rstrip()
            yield together


def _item(title: str, title_width: int, value: Text, value_width: int) -> Text:
    item = Text.assemble(title.ljust(title_width), " ", value)
    item.pad_right(value_width - value.cell_len + _BETWEEN)
    return item


def _beside_each_other(row: Row, key: str) -> Text:
    below = spread_text(shown(row, key))
    return _coloured(row, key, value_text(row, key), f" {below}" if below else "")


# --- colours ----------------------------------------------------------------------------------------------------------


def _coloured(row: Row, key: str, value: str, spread: str) -> Text:
    number = shown(row, key)
    if number.value is None:
        return Text(MISSING_TEXT, style="dim")
    style = "" if number.valid else "red"
    return Text.assemble((value, style), (spread, style or "dim"))


def _colour(row: Row) -> str:
    return "yellow" if is_mixed(row) else "green" if row.valid else "red"
