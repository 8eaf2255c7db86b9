"""Two selections compared, as text, Markdown and data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bench.analysis.compare import Comparison, Point, Ratio
from bench.analysis.compare_pairs import Compared, Pair
from bench.printable import printable
from bench.reports import markdown
from bench.reports.rows import MISSING_TEXT
from bench.reports.text import in_table_unit, is_bytes
from bench.timing.columns import main_field
from bench.timing.spec import SPECS

HEADER = ("metric", "base", "candidate", "ratio", "95% interval", "n", "verdict")


class Cells(NamedTuple):
    """A comparison in words, in the order of `HEADER`; empty where there is nothing to tell."""

    metric: str
    base: str
    cand: str
    ratio: str
    interval: str
    n: str
    verdict: str


def compare_text(found: Sequence[Compared]) -> str:
    """One block a pair: what it is, what else differs, its metrics."""
    return "\n\n".join("\n".join(_block(one)) for one in found) + "\n\n" + _closing(found)


def compare_markdown(found: Sequence[Compared]) -> str:
    """The same as Markdown, a table a pair."""
    parts = []
    for one in found:
        parts.append(
            "\n".join(f"{'### ' if place == 0 else ''}{markdown.escaped(line)}  " for place, line in enumerate(_title(one.pair)))
        )
        if one.metrics:
            rows = [(*cells, markdown.escaped(verdict)) for *cells, verdict in map(_line, one.metrics)]
            parts.append("\n".join([markdown.row(HEADER), markdown.rule(len(HEADER)), *map(markdown.row, rows)]))
    return "\n\n".join([*parts, _closing(found)])


def compare_json(found: Sequence[Compared]) -> dict[str, Any]:
    """`pairs[]`, each with `base` and `candidate` (null where it stands alone), `reason`, `flags[]`, `regression` and
    `metrics[]`.
    """
    return {
        "pairs": [
            {
                "base": _point_json(one.pair.base),
                "candidate": _point_json(one.pair.cand),
                "reason": one.pair.reason,
                "flags": list(one.pair.flags),
                "regression": bool(one.regressions),
                "metrics": [metric_json(metric) for metric in one.metrics],
            }
            for one in found
        ]
    }


def point_label(point: Point) -> str:
    """`tiny q4_1, mock, batch 8, 64/32, Example Accelerator`."""
    setting = point.setting
    load = f"batch {setting['batch_size']}" if "batch_size" in setting else f"{setting.get('request_rate', 'burst')}/s"
    lengths = f"{setting.get('input_tokens', '?')}/{setting.get('output_tokens', '?')}"
    device = " + ".join(dict.fromkeys(point.devices)) or MISSING_TEXT
    return printable(f"{point.model} {point.precision or ''}".strip() + f", {point.engine}, {load}, {lengths}, {device}")


def percent_text(ratio: Ratio) -> str:
    """`3.1% (2.2 to 4.0) lower`."""
    shown = [abs(100.0 * (end - 1.0)) for end in (ratio.value, ratio.low, ratio.high) if end is not None]
    side = "higher" if ratio.value > 1.0 else "lower"
    if len(shown) < 3 or ratio.low is None or ratio.high is None or (ratio.low < 1.0) != (ratio.high < 1.0):
        return f"{shown[0]:.1f}% {side}"
    return f"{shown[0]:.1f}% ({min(shown[1:]):.1f} to {max(shown[1:]):.1f}) {side}"


def _title(pair: Pair) -> Iterable[str]:
    point = pair.base or pair.cand
    assert point is not None
    yield point_label(point)
    if pair.reason is not None:
        yield printable(f"only in {'BASE' if pair.cand is None else 'CAND'}, not comparable: {pair.reason}")
    yield from (printable(f"also differs: {flag}") for flag in pair.flags)


def _block(one: Compared) -> list[str]:
    first, *rest = _title(one.pair)
    return [first, *(f"  {line}" for line in [*rest, *metric_lines(one.metrics)])]


def metric_lines(metrics: Sequence[Comparison]) -> list[str]:
    """A header and a line a metric, in columns; nothing without metrics."""
    rows = [HEADER, *map(_line, metrics)] if metrics else []
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))] if rows else []
    return ["  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _line(one: Comparison) -> list[str]:
    *cells, verdict = compare_cells(one)
    return [*(cell or MISSING_TEXT for cell in cells), printable(verdict)]


def compare_cells(one: Comparison) -> Cells:
    """One metric of two points, with the numbers in the table's units."""
    ratio = one.ratio
    base, cand = ("" if side is None else in_table_unit(one.metric, side) for side in (one.base, one.cand))
    return Cells(
        metric=metric_label(one.metric),
        base=base,
        cand=cand,
        ratio="" if ratio is None else f"{ratio.value:.4f}",
        interval="" if ratio is None or ratio.low is None or ratio.high is None else f"[{ratio.low:.4f}, {ratio.high:.4f}]",
        n=f"{one.n_base}, {one.n_cand}",
        verdict=verdict_text(one),
    )


def metric_label(name: str) -> str:
    """A metric with the quantile that stands for it, and memory in GiB."""
    if is_bytes(name):
        return f"{name.removesuffix('_b')}_GiB"
    return f"{name.removesuffix('_ms')}_p50_ms" if SPECS[name].kind == "distribution" else name


def verdict_text(one: Comparison) -> str:
    """`differs: 3.1% (2.2 to 4.0) lower, worse`."""
    if one.reason is not None or one.ratio is None:
        return f"not comparable: {one.reason}"
    if one.verdict == "can't know":
        return "can't know: it takes 2 repeats on either side to tell a difference from noise"
    if one.verdict == "no difference shown":
        single = one.ratio.p is not None and one.ratio.p < 0.05
        return "no difference shown" + (" (among so many comparisons)" if single else "")
    direction = "" if one.better is None else ", worse" if one.is_worse else ", better"
    return f"differs: {percent_text(one.ratio)}{direction}"


def _closing(found: Sequence[Compared]) -> str:
    metrics = [metric for one in found for metric in one.metrics]
    verdicts = {name: sum(metric.verdict == name for metric in metrics) for name in ("differs", "no difference shown")}
    verdicts |= {name: sum(metric.verdict == name for metric in metrics) for name in ("can't know", "not comparable")}
    alone = sum(one.pair.reason is not None for one in found)
    told = [f"{count} {name}" for name, count in verdicts.items() if count]
    told += [f"{alone} point{'s' * (alone != 1)} without a counterpart"] if alone else []
    return f"{len(metrics)} comparisons: {', '.join(told)}"


def _point_json(point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    names = ("run_id", "series_id", "config_id", "host_id", "case_id", "name", "model", "precision", "engine", "version", "build")
    return {name: getattr(point, name) for name in names} | {"devices": list(point.devices), "energy_scope": point.scope}


def metric_json(one: Comparison) -> dict[str, Any]:
    """A metric with its numbers, whole."""
    ratio = one.ratio
    return {
        "metric": one.metric,
        "field": main_field(one.metric),
        "unit": one.unit,
        "better": one.better,
        "base": one.base,
        "candidate": one.cand,
        "n_base": one.n_base,
        "n_candidate": one.n_cand,
        "ratio": None if ratio is None else ratio.value,
        "low": None if ratio is None else ratio.low,
        "high": None if ratio is None else ratio.high,
        "p": None if ratio is None else ratio.p,
        "p_adjusted": one.adjusted,
        "verdict": one.verdict,
        "worse": one.is_worse,
        "reason": one.reason,
    }
