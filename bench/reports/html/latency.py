"""Latency percentiles, a line for each row. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.naming import Names
from bench.reports.html.plot import percent
from bench.reports.html.scale import Scale, scale_for
from bench.reports.html.strips import MOST_ROWS, axis, left_out, row_name, strip
from bench.reports.html.table import Cell, Column, Line, table
from bench.reports.html.words import Words
from bench.reports.numbers import Number, NumberColumn, pooled_number
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.text import INVALID_MARK, in_table_unit, is_wide

_LATENCIES = (
    NumberColumn(
        key="ttft", title="TTFT", plain="", metric="ttft_ms", field="p50", group="latency", open_metric="ttft_scheduled_ms"
    ),
    NumberColumn(key="tpot", title="TPOT", plain="", metric="tpot_ms", field="p50", group="latency"),
    NumberColumn(key="e2e", title="E2E", plain="", metric="e2e_ms", field="p50", group="latency"),
)
_QUANTILES = ("p50", "p90", "p99")
_Quantiles = Mapping[str, Number]


def latency_columns(words: Words, scales: Mapping[str, Scale] | None = None) -> list[Column]:
    """Heads of the table, with the axes where they are known."""
    axes = {key: axis(f"grid-{key}", scale) for key, scale in (scales or {}).items()}
    heads = (Column(title=one.title, unit="p50 / p90 / p99 [ms]", axis=axes.get(one.key), sortable=False) for one in _LATENCIES)
    return [Column(title=words("Case"), sortable=False), *heads]


def latency_chart(rows: Sequence[Row], named: Names, words: Words) -> Html:
    """Median, p90 and p99 of each row, on one axis a latency; what has no p99 (under 100 samples) shows none."""
    shown = [at for at, row in enumerate(rows) if not row.ended_early][:MOST_ROWS]
    found = {at: {one.key: _quantiles(one, rows[at]) for one in _LATENCIES} for at in shown}
    scales = {one.key: _scale(numbers[one.key] for numbers in found.values()) for one in _LATENCIES}
    lines = [
        Line(cells=(row_name(named, at), *(_cell(key, quantiles, scales[key], words) for key, quantiles in numbers.items())))
        for at, numbers in found.items()
    ]
    caption = words(
        "Dot: p50. Short line: p90. Hollow triangle: p99, with its 95% interval. Logarithmic axes, the same for all rows."
    )
    made = table("latencies", caption, latency_columns(words, scales), lines, words) if lines else None
    return joined(made, left_out(len(rows), len(shown), words))


def _quantiles(column: NumberColumn, row: Row) -> _Quantiles:
    return {field: pooled_number(replace(column, field=field), row.trials) for field in _QUANTILES}


def _scale(found: Iterable[_Quantiles]) -> Scale:
    return scale_for((number.value for numbers in found for number in numbers.values() if number.value is not None), log=True)


def _cell(key: str, numbers: _Quantiles, scale: Scale, words: Words) -> Cell:
    told = {field: number for field, number in numbers.items() if number.value is not None}
    if not told:
        return Cell(shown=Html(MISSING_TEXT), below=words.quoted(numbers["p50"].reason or "not measured"), mark="none")
    valid = all(number.valid for number in told.values())
    texts = {field: in_table_unit(number.metric, number.value or 0.0) for field, number in told.items()}
    drawn = tag("g", *_marks(told, scale), class_="s0" if valid else "bad")
    told_as = " / ".join(texts.values()) + ("" if valid else f" {INVALID_MARK}")
    return Cell(shown=strip(f"grid-{key}", [drawn]), below=told_as)


def _marks(told: _Quantiles, scale: Scale) -> list[Html | None]:
    at = {field: percent(scale.share(number.value or 0.0)) for field, number in told.items()}
    ends = list(at.values())
    return [
        _interval(told["p99"], scale) if "p99" in told else None,
        tag("line", x1=ends[0], x2=ends[-1], y1="50%", y2="50%", class_="f"),
        tag("circle", cx=at["p50"], cy="50%", r="4.5") if "p50" in at else None,
        tag("line", x1=at["p90"], x2=at["p90"], y1="22%", y2="78%", class_="f") if "p90" in at else None,
        tag("use", href="#m2", x=at["p99"], y="50%", class_="w") if "p99" in at else None,
    ]


def _interval(number: Number, scale: Scale) -> Html | None:
    if number.low is None or number.high is None or is_wide(number):
        return None
    low, high = percent(scale.share(number.low)), percent(scale.share(number.high))
    return tag("line", x1=low, x2=high, y1="50%", y2="50%", class_="i")
