"""Two selections compared, metric by metric, each ratio drawn with its interval. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.compare import Comparison, Ratio
from bench.analysis.compare_pairs import Compared
from bench.reports.compare import metric_label, point_label, verdict_text
from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.plot import percent
from bench.reports.html.scale import Scale, scale_for
from bench.reports.html.strips import axis, strip
from bench.reports.html.table import Cell, Column, Line, table
from bench.reports.html.words import Words
from bench.reports.rows import MISSING_TEXT
from bench.reports.text import in_table_unit

_WIDEST = 2.0
"""Ratios are drawn between this and its inverse; what is further out touches the edge."""
_GRID = "grid-ratio"


def comparison_columns(words: Words, scale: Scale | None = None) -> list[Column]:
    """Heads of the table of comparisons, with the axis of ratios where it is known."""
    drawn = None if scale is None else axis(_GRID, scale)
    return [
        Column(title=words("Metric")),
        Column(title=words("Pair"), number=True),
        Column(title=words("Base"), number=True),
        Column(title=words("Candidate"), number=True),
        Column(title=words("Ratio"), unit=words("95% interval"), number=True),
        Column(title=words("Candidate / base"), axis=drawn, sortable=False),
        Column(title="n", number=True, sortable=False),
        Column(title=words("Verdict")),
    ]


def comparison(found: Sequence[Compared], words: Words) -> Html:
    """What is compared with what, then every metric of every pair."""
    pairs = tag("ol", *(_pair(one, words) for one in found), class_="pairs")
    metrics = [(place, metric) for place, one in enumerate(found, start=1) for metric in one.metrics]
    ends = [end for _, one in metrics if one.ratio for end in (one.ratio.value, one.ratio.low, one.ratio.high) if end]
    scale = scale_for([1.0, *(min(max(end, 1.0 / _WIDEST), _WIDEST) for end in ends)], from_zero=False, log=False)
    caption = words("Geometric means over the valid repeats. An interval that holds 1 shows no difference.")
    lines = [Line(cells=_line(place, metric, scale, words)) for place, metric in metrics]
    return joined(pairs, table("comparison", caption, comparison_columns(words, scale), lines, words) if lines else None)


def _pair(one: Compared, words: Words) -> Html:
    point = one.pair.base or one.pair.cand
    assert point is not None
    told = [joined(point_label(point))]
    if one.pair.reason is not None:
        side = words("only in the candidate") if one.pair.base is None else words("only in the base")
        told.append(tag("small", side, ": ", words.quoted(one.pair.reason)))
    told += [tag("small", words("also differs"), ": ", words.quoted(flag)) for flag in one.pair.flags]
    return tag("li", *told)


def _line(place: int, one: Comparison, scale: Scale, words: Words) -> list[Cell]:
    ratio = one.ratio
    sides = [_side(one.metric, value) for value in (one.base, one.cand)]
    low_high = "" if ratio is None or ratio.low is None or ratio.high is None else f"[{ratio.low:.4f}, {ratio.high:.4f}]"
    told = MISSING_TEXT if ratio is None else f"{ratio.value:.4f}"
    class_ = _class(one)
    return [
        Cell(shown=joined(metric_label(one.metric)), below=one.unit),
        Cell(shown=joined(place)),
        *sides,
        Cell(shown=joined(told), below=joined(low_high)),
        Cell(shown=joined(MISSING_TEXT) if ratio is None else _forest(ratio, scale, class_)),
        Cell(shown=joined(f"{one.n_base}, {one.n_cand}")),
        Cell(shown=words.quoted(verdict_text(one)), mark=class_),
    ]


def _side(metric: str, value: float | None) -> Cell:
    return Cell(shown=joined(MISSING_TEXT if value is None else in_table_unit(metric, value)))


def _class(one: Comparison) -> str:
    if one.verdict != "differs" or one.better is None:
        return "same"
    return "bad" if one.is_worse else "good"


def _forest(ratio: Ratio, scale: Scale, class_: str) -> Html:
    """The ratio with its interval beside 1; what got worse points down."""
    one, at = percent(scale.share(1.0)), percent(scale.share(ratio.value))
    marks = [tag("line", x1=one, x2=one, y1="0", y2="100%", class_="one")]
    if ratio.low is not None and ratio.high is not None:
        low, high = percent(scale.share(ratio.low)), percent(scale.share(ratio.high))
        marks.append(tag("line", x1=low, x2=high, y1="50%", y2="50%", class_="f"))
    symbol = {"same": "#m0", "bad": "#m4", "good": "#m2"}[class_]
    marks.append(tag("use", href=symbol, x=at, y="50%"))
    return strip(_GRID, [tag("g", *marks, class_=class_)])
