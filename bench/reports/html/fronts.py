"""Throughput against latency, and joules against throughput: a chart for each question that rows answer. Pure.

A front is drawn in steps: between two measured points nothing is promised but what the better of them does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.analysis.pareto import Sides, front
from bench.reports.html.markup import Html, tag
from bench.reports.html.naming import Names
from bench.reports.html.plot import Axes, Style, figure, key, plane, plot
from bench.reports.html.scale import scale_for
from bench.reports.html.words import Words
from bench.reports.numbers import Number
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.text import in_table_unit, interval_text, is_wide

_MOST_LABELLED = 6
"""Settings in one chart that are named beside their marks; more are told by the key alone."""
_LOAD_ROOM = (0.04, 0.06)
"""Nearer than these shares of the chart's width and height no two loads are written."""
_LABEL_GAP = 0.06
"""Least distance of such names, as a share of the chart's height."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """A row that has both numbers."""

    row: Row
    name: str
    setting: str
    style: Style
    x: Number
    y: Number

    @property
    def at(self) -> tuple[float, float]:
        assert self.x.value is not None
        assert self.y.value is not None
        return self.x.value, self.y.value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is drawn against what."""

    x: str
    y: str
    better: Sides
    x_title: str
    y_title: str
    steps: bool


def throughput_charts(table: Sequence[Row], named: Names, words: Words) -> Html:
    """Output tokens a second against the time per output token, a chart for each workload."""
    question = _Question(
        x="tpot_p50",
        y="output",
        better=("down", "up"),
        x_title=words("TPOT p50 [ms], less is better"),
        y_title=words("Output [tok/s], more is better"),
        steps=True,
    )
    return _charts(_spots(table, named, question), question, _workload, words)


def energy_charts(table: Sequence[Row], named: Names, words: Words) -> Html:
    """Joules per output token against output tokens a second, a chart for each workload and part of the machine whose joules
    they are: those of different parts are never in one chart.
    """
    question = _Question(
        x="output",
        y="energy",
        better=("up", "down"),
        x_title=words("Output [tok/s], more is better"),
        y_title=words("Energy [J/token], less is better"),
        steps=False,
    )
    return _charts(_spots(table, named, question), question, lambda row: (*_workload(row), _scope(row, words)), words)


def _workload(row: Row) -> tuple[str, ...]:
    """What must be the same for two rows to answer one question; the last parts tell data sets of one name apart."""
    return row.case.model, row.lengths, row.case.dataset, row.case.data.sha256 or ""


def _scope(row: Row, words: Words) -> str:
    return words.said(row.first.energy_scope or MISSING_TEXT)


def _spots(table: Sequence[Row], named: Names, question: _Question) -> list[_Spot]:
    """Rows that may be trusted and have both numbers."""
    found = []
    for at, row in enumerate(table):
        x, y = row.numbers[question.x], row.numbers[question.y]
        if _usable(x) and _usable(y):
            style = named.style(at)
            found.append(_Spot(row=row, name=named.rows[at], setting=named.settings[at], style=style, x=x, y=y))
    return found


def _usable(number: Number) -> bool:
    return number.valid and number.value is not None and number.value > 0.0


def _charts(spots: Sequence[_Spot], question: _Question, panel: Callable[[Row], tuple[str, ...]], words: Words) -> Html:
    panels: defaultdict[tuple[str, ...], list[_Spot]] = defaultdict(list)
    for spot in spots:
        panels[panel(spot.row)].append(spot)
    return tag("div", *(_chart(_title(place), found, question, words) for place, found in panels.items()), class_="charts")


def _title(place: tuple[str, ...]) -> str:
    model, lengths, dataset, _, *rest = place
    return ", ".join([model, lengths, *([dataset] if dataset != "synthetic" else []), *rest])


def _chart(title: str, spots: Sequence[_Spot], question: _Question, words: Words) -> Html:
    axes = Axes(x=scale_for(spot.at[0] for spot in spots), y=scale_for(spot.at[1] for spot in spots))
    by_setting: defaultdict[str, list[_Spot]] = defaultdict(list)
    for spot in spots:
        by_setting[spot.setting].append(spot)
    fronts = {name: [found[at] for at in front([s.at for s in found], question.better)] for name, found in by_setting.items()}
    best = {id(spot) for found in fronts.values() for spot in found}
    lines = [_steps(axes, found) for found in fronts.values() if question.steps]
    marks = [plane(*lines, *(_bars(axes, found) for found in by_setting.values()))]
    marks += [_point(axes, spot, weak=question.steps and id(spot) not in best) for spot in spots]
    marks += _loads(axes, [spot for spot in spots if id(spot) in best or not question.steps])
    direct = len(by_setting) <= _MOST_LABELLED
    if direct:
        marks += _named(axes, [_last(found) for found in by_setting.values()])
    says = words("{} against {}: {} points of {} settings", question.y_title, question.x_title, len(spots), len(by_setting))
    shown = plot(axes, marks, x_title=question.x_title, y_title=question.y_title, says=says)
    entries = [(found[0].style, name) for name, found in by_setting.items()]
    return figure(title, shown, key(entries), class_="chart direct" if direct else "chart")


def _last(spots: Sequence[_Spot]) -> _Spot:
    """The one with the most throughput or the highest cost: where a setting's name stands."""
    return max(spots, key=lambda spot: spot.at[1])


def _steps(axes: Axes, spots: Sequence[_Spot]) -> Html | None:
    """From each point level to the next one's x, then straight to it."""
    path = [axes.to("M", *spots[0].at)]
    for spot in spots[1:]:
        path += [axes.to("H", *spot.at), axes.to("V", *spot.at)]
    return axes.path(path, f"f s{spots[0].style.colour}")


def _bars(axes: Axes, spots: Sequence[_Spot]) -> Html | None:
    """Both intervals of each point, where there are any worth drawing."""
    path: list[str] = []
    for spot in spots:
        x, y = spot.at
        for low, high in _ends(spot.x):
            path += [axes.to("M", low, y), axes.to("H", high, y)]
        for low, high in _ends(spot.y):
            path += [axes.to("M", x, low), axes.to("V", x, high)]
    return axes.path(path, f"b s{spots[0].style.colour}")


def _ends(number: Number) -> Iterator[tuple[float, float]]:
    if number.low is not None and number.high is not None and not is_wide(number):
        yield number.low, number.high


def _point(axes: Axes, spot: _Spot, *, weak: bool) -> Html:
    numbers = "; ".join(f"{in_table_unit(n.metric, n.value or 0.0)} {interval_text(n)}".strip() for n in (spot.x, spot.y))
    return axes.mark(*spot.at, spot.style, title=f"{spot.name}: {numbers}", weak=weak)


def _loads(axes: Axes, spots: Sequence[_Spot]) -> Iterator[Html]:
    """The load beside a mark, where there is room for it."""
    taken: list[tuple[float, float]] = []
    for spot in spots:
        x, y = axes.x.share(spot.at[0]), axes.y.share(spot.at[1])
        if any(abs(x - one) < _LOAD_ROOM[0] and abs(y - other) < _LOAD_ROOM[1] for one, other in taken):
            continue
        taken.append((x, y))
        load = spot.row.case.load
        told = str(load.batch_size) if load.kind == "closed" and not load.stages and load.batch_size else spot.row.load
        yield axes.label(*spot.at, told, class_="l", dx=7, dy=13)


def _named(axes: Axes, spots: Sequence[_Spot]) -> Iterator[Html]:
    """The name of each setting beside its mark, none on another."""
    taken = 2.0
    for spot in sorted(spots, key=lambda one: -one.at[1]):
        x, y = spot.at
        height = min(axes.y.share(y), taken - _LABEL_GAP)
        taken, end = height, axes.x.share(x) > 0.55
        lower = 260.0 * (axes.y.share(y) - height)
        yield axes.label(x, y, spot.setting, class_=f"d s{spot.style.colour}", dx=-9 if end else 9, dy=lower - 5, end=end)
