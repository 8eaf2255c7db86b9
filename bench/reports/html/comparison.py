"""Two selections compared, metric by metric, each ratio drawn with its interval. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.ab import PairedCase
from bench.analysis.compare import Comparison, Ratio
from bench.analysis.compare_pairs import Compared
from bench.reports.compare import compare_cells, point_label
from bench.reports.differences import sides
from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.plot import percent
from bench.reports.html.scale import Scale, scale_for
from bench.reports.html.strips import axis, strip
from bench.reports.html.table import Cell, Column, Line, table
from bench.reports.html.words import Words
from bench.reports.rows import MISSING_TEXT
from bench.reports.text import is_bytes

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
    caption = words("Geometric means over the valid repeats. An interval that holds 1 shows no difference.")
    return _compared([(_pair(one, words), one.metrics) for one in found], caption, words)


def in_turns(found: Sequence[PairedCase], words: Words) -> Html:
    """The same of cases of which two settings were measured in turns."""
    caption = words("Geometric means over the valid pairs. An interval that holds 1 shows no difference.")
    named = [(_case(one, words), one.metrics) for one in found]
    return _compared(named, caption, words)


def _compared(named: Sequence[tuple[Html, Sequence[Comparison]]], caption: str, words: Words) -> Html:
    pairs = tag("ol", *(name for name, _ in named), class_="pairs")
    metrics = [(place, metric) for place, (_, metrics) in enumerate(named, start=1) for metric in metrics]
    ends = [end for _, one in metrics if one.ratio for end in (one.ratio.value, one.ratio.low, one.ratio.high) if end]
    scale = scale_for([1.0, *(min(max(end, 1.0 / _WIDEST), _WIDEST) for end in ends)], from_zero=False, log=False)
    lines = [Line(cells=_line(place, metric, scale, words)) for place, metric in metrics]
    return joined(pairs, table("comparison", caption, comparison_columns(words, scale), lines, words) if lines else None)


def _case(one: PairedCase, words: Words) -> Html:
    told = (f"{words(name)}: {side}" for name, side in zip(("Base", "Candidate"), sides(one), strict=True) if side)
    out = [words("left out for another build or machine: {}", one.left_out)] if one.left_out else []
    return tag("li", one.name, *(tag("small", line) for line in (*told, words("valid pairs: {}", one.pairs), *out)))


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
    told, class_ = compare_cells(one), _class(one)
    return [
        Cell(shown=joined(told.metric), below="GiB" if is_bytes(one.metric) else one.unit),
        Cell(shown=joined(place)),
        *(Cell(shown=joined(side or MISSING_TEXT)) for side in (told.base, told.cand)),
        Cell(shown=joined(told.ratio or MISSING_TEXT), below=joined(told.interval)),
        Cell(shown=joined(MISSING_TEXT) if one.ratio is None else _forest(one.ratio, scale, class_)),
        Cell(shown=joined(told.n)),
        Cell(shown=words.quoted(told.verdict), mark=class_),
    ]


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
