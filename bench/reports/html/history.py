"""Series night by night, what the gate made of each night, and where a change was accepted. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date

from bench.analysis.gate import FINDINGS, Judged, Night, State
from bench.analysis.series import SeriesHistory, Verdict
from bench.reports.compare import metric_label
from bench.reports.gate import ORDER, SHOWN, STATE_WORDS, message
from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.plot import Axes, Style, figure, key, plane, plot
from bench.reports.html.scale import Scale, scale_for
from bench.reports.html.table import Cell, Column, Line, table
from bench.reports.html.words import Words
from bench.reports.text import number_text
from bench.timing.spec import SPECS

MOST_CHARTS = 8
MOST_NIGHTS = 60
_MOST_BUILDS = 4
"""Changes of the build that are named in one chart; more are told under the pointer."""
_MARKS: dict[State, Style] = {
    "ok": Style(colour=0, shape=0),
    "insufficient data": Style(colour=0, shape=0),
    "trigger": Style(colour=4, shape=2),
    "confirmed": Style(colour=1, shape=1),
    "host_shift": Style(colour=3, shape=3),
    "accepted change point": Style(colour=2, shape=5),
}


def history_columns(words: Words) -> list[Column]:
    """Heads of the table of change points."""
    return [Column(title=words(title)) for title in ("Night", "State", "Series", "What was seen")]


def history_charts(found: Sequence[SeriesHistory], words: Words) -> Html:
    """A chart for each metric of a series that has two nights, those with findings first."""
    several = sorted((_last_nights(one) for one in found if len(one.nights) > 1), key=_gravity)
    if not several:
        return tag("p", words("Nothing here was measured on two nights: a history begins with the second."), class_="empty")
    charts = tag("div", *(_chart(one, words) for one in several[:MOST_CHARTS]), class_="charts")
    more = len(several) - MOST_CHARTS
    note = tag("p", words("{} more series are not drawn.", more), class_="note") if more > 0 else None
    return joined(charts, _key(several, words), note, _change_points(several, words))


def _last_nights(history: SeriesHistory) -> SeriesHistory:
    """As much of it as a chart has room for."""
    kept = slice(-MOST_NIGHTS, None)
    return replace(history, nights=history.nights[kept], builds=history.builds[kept], judged=history.judged[kept])


def _gravity(history: SeriesHistory) -> tuple[int, int, str, str]:
    worst = min(ORDER.index(judged.state) for judged in history.judged)
    return worst, -len(history.nights), history.label, history.key.metric


def _key(found: Sequence[SeriesHistory], words: Words) -> Html:
    seen = {judged.state for one in found for judged in one.judged}
    shown = ((style, words.said(STATE_WORDS[state])) for state, style in _MARKS.items() if state in seen)
    return key(shown, weak=words.said(STATE_WORDS["insufficient data"]))


def _chart(history: SeriesHistory, words: Words) -> Html:
    days = [date.fromisoformat(one.night).toordinal() for one in history.nights]
    values = [value for one in history.nights for value in one.values]
    axes = Axes(x=_days(days), y=scale_for(values, from_zero=False, log=False))
    ranges = [step for day, night in zip(days, history.nights, strict=True) for step in _range(axes, day, night)]
    baseline = axes.path(_baselines(axes, history, days), "base")
    marks = [*_changes(axes, history, days, words), plane(baseline, axes.path(ranges, "b s0"))]
    for day, night, judged in zip(days, history.nights, history.judged, strict=True):
        told = f"{night.night}: {number_text(math.exp(judged.x))}, {words.said(STATE_WORDS[judged.state])}"
        weak = judged.state == "insufficient data"
        marks.append(axes.mark(day, math.exp(judged.x), _MARKS[judged.state], title=told, weak=weak))
    unit = SPECS[history.key.metric].unit
    shown = plot(
        axes,
        marks,
        x_title=words("night (UTC)"),
        y_title=f"{metric_label(history.key.metric)} [{unit}]",
        says=words("{} over {} nights", metric_label(history.key.metric), len(days)),
        x_text=lambda day: date.fromordinal(round(day)).isoformat()[5:],
    )
    return figure(history.label, shown)


def _days(days: Sequence[int]) -> Scale:
    low, high = days[0] - 0.6, days[-1] + 0.6
    step = max(1, math.ceil((high - low) / 5))
    return Scale(low=low, high=high, log=False, ticks=tuple(range(days[0], days[-1] + 1, step)))


def _range(axes: Axes, day: float, night: Night) -> tuple[str, str]:
    """From the lowest to the highest repeat."""
    return axes.to("M", day, min(night.values)), axes.to("V", day, max(night.values))


def _baselines(axes: Axes, history: SeriesHistory, days: Sequence[int]) -> Iterator[str]:
    """What each night was compared with."""
    for day, judged in zip(days, history.judged, strict=True):
        if judged.centre is not None:
            yield axes.to("M", day - 0.5, judged.centre) + axes.to("H", day + 0.5, judged.centre)


def _changes(axes: Axes, history: SeriesHistory, days: Sequence[int], words: Words) -> Iterator[Html]:
    """A dashed line at each accepted change, a dotted one where the build changed."""
    changes = [at for at in range(1, len(days)) if history.builds[at] != history.builds[at - 1]]
    for at in changes:
        x = axes.px(days[at] - 0.5)
        label = tag("text", history.builds[at], x=x, y="-5") if len(changes) <= _MOST_BUILDS else None
        yield tag("g", tag("title", history.builds[at]), tag("line", x1=x, x2=x, y1="0", y2="100%", class_="build"), label)
    for day, night in zip(days, history.nights, strict=True):
        if night.accepted is not None:
            x = axes.px(day - 0.5)
            line = tag("line", x1=x, x2=x, y1="0", y2="100%", class_="accepted")
            yield tag("g", tag("title", words("accepted: {}", night.accepted)), line)


def _change_points(found: Sequence[SeriesHistory], words: Words) -> Html:
    told = [(one, judged) for one in found for judged in _beginnings(one.judged)]
    if not told:
        return tag("p", words("No change point: no night triggered, and none was accepted."), class_="note")
    lines = [Line(cells=_event(one, judged, words)) for one, judged in told]
    return table("changes", words("Change points"), history_columns(words), lines, words)


def _beginnings(judged: Sequence[Judged]) -> Iterator[Judged]:
    """Nights to tell of; of a finding that goes on for several only the first."""
    before: Judged | None = None
    for one in judged:
        goes_on = one.state in FINDINGS and before is not None and (before.state, before.since) == (one.state, one.since)
        if one.state in SHOWN and not goes_on:
            yield one
        before = one


def _event(history: SeriesHistory, judged: Judged, words: Words) -> list[Cell]:
    state, said = judged.state, message(Verdict(history=history, state=judged.state, judged=judged))
    metric = metric_label(history.key.metric)
    return [
        Cell(shown=Html(judged.night)),
        Cell(shown=words.quoted(STATE_WORDS[state]), mark="bad" if state in FINDINGS else None),
        Cell(shown=joined(history.label), below=f"{metric} · {history.key.series_id[:8]}"),
        Cell(shown=words.quoted(said)),
    ]
