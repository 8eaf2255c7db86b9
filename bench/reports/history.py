"""A series night by night, drawn with letters, and as data. Pure."""

from __future__ import annotations

import math
from typing import Any

from bench.analysis.gate import RULES, State
from bench.analysis.series import SeriesHistory
from bench.printable import printable
from bench.reports.compare import metric_label
from bench.reports.gate import change_text
from bench.reports.rows import MISSING_TEXT
from bench.reports.text import number_text
from bench.timing.spec import SPECS

_WIDTH = 40
_MARKS: dict[State, str] = {"trigger": "?", "confirmed": "!", "host_shift": "H", "accepted change point": "|"}


def history_text(history: SeriesHistory) -> str:
    """A line a night: its value, its place between the lowest and the highest, what it was judged to be, and where the build
    changed. `:` is the baseline.
    """
    key, judged = history.key, history.judged
    low, high = min(min(night.values) for night in history.nights), max(max(night.values) for night in history.nights)
    head = f"{metric_label(key.metric)} [{SPECS[key.metric].unit}] of {history.label}"
    place = f"series {key.series_id}, host {key.host_id}, {key.profile}: worse by {RULES[key.metric].least_effect:.0%} matters"
    lines = [printable(head), printable(place)]
    builds = [None, *history.builds]
    for one, build, before in zip(judged, history.builds, builds, strict=False):
        value = math.exp(one.x)
        strip = [" "] * (_WIDTH + 1)
        if one.centre is not None:
            strip[_column(one.centre, low, high)] = ":"
        strip[_column(value, low, high)] = _MARKS.get(one.state, "*")
        change = MISSING_TEXT if one.change is None else change_text(one.change)
        state = "" if one.state == "ok" else one.state
        news = printable(build) if build != before else ""
        lines.append(f"{one.night}  {number_text(value):>9}  [{''.join(strip)}]  {change:<12}  {state}  {news}".rstrip())
    return "\n".join(lines)


def history_json(history: SeriesHistory) -> dict[str, Any]:
    """The series and its `nights[]`."""
    key = history.key
    nights = [
        {
            "night": one.night,
            "build": build,
            "values": list(night.values),
            "pairs": [list(pair) for pair in night.pairs],
            "state": one.state,
            "baseline": one.centre,
            "change": one.change,
            "z": one.z,
            "since": one.since,
            "accepted": night.accepted,
        }
        for one, night, build in zip(history.judged, history.nights, history.builds, strict=True)
    ]
    names = ("series_id", "host_id", "profile", "metric")
    return {name: getattr(key, name) for name in names} | {"label": history.label, "nights": nights}


def _column(value: float, low: float, high: float) -> int:
    share = 0.5 if high <= low else (value - low) / (high - low)
    return round(min(max(share, 0.0), 1.0) * _WIDTH)
