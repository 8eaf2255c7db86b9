"""What searches found: a sentence for people, an object for machines. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import codec
from bench.analysis.knee import Gain, LoadPoint
from bench.analysis.search import Step, Verdict
from bench.records import Search, Sweep
from bench.reports.text import number_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A search with its points, what they say, and the trials behind each load."""

    search_id: str
    sweep: Sweep
    step: Step
    verdict: Verdict
    trials: Mapping[float, tuple[str, ...]]


def search_label(search: Search) -> str:
    """`knee over batch_size 1..256`."""
    return f"{search.find} over {search.over} {search.low:g}..{search.high:g}"


def search_line(result: SearchResult) -> str:
    """What a search found, in a sentence."""
    verdict, search = result.verdict, result.sweep.search
    told = _knee(search, verdict) if search.find == "knee" else _goodput(result)
    count = len(result.step.points)
    state = verdict.ended if verdict.complete else f"unfinished, {verdict.ended}: go on with --resume"
    return f"{result.sweep.case.name}: {told} ({count} point{'s' * (count != 1)}; {state})"


def search_json(result: SearchResult) -> dict[str, Any]:
    """The object of `searches[]`: the search, `best` and `highest` (loads or null), why it ended, and every point."""
    verdict = result.verdict
    return {
        "search_id": result.search_id,
        "name": result.sweep.case.name,
        **codec.to_builtins(result.sweep.search),
        "best": verdict.best.load if verdict.best else None,
        "highest": verdict.highest.load if verdict.highest else None,
        "stopped_by": verdict.above.load if verdict.above else None,
        "gain_per_doubling": codec.to_builtins(verdict.gain),
        "complete": verdict.complete,
        "ended": verdict.ended,
        "text": search_line(result),
        "points": [{**codec.to_builtins(point), "trials": list(result.trials[point.load])} for point in result.step.points],
    }


def _knee(search: Search, verdict: Verdict) -> str:
    best, highest = verdict.best, verdict.highest
    if highest is None:
        if verdict.above is None:
            return "no knee: no point"
        lowest = f"{_at(search, verdict.above)} does not count: {verdict.above.problem}"
        return f"no knee: {lowest}; measure that load alone until it is valid, or begin elsewhere with --low"
    growth = f"{_share(verdict.gain)} for double the load" if verdict.gain else "growth unknown from a single point"
    if best is not None:
        below = " or below" if best.load == search.low else ""
        return f"knee at {_at(search, best)}{below}: {_rate(best)}, beyond it {growth}"
    if verdict.above is not None:
        stop = f"{_at(search, verdict.above)} does not count: {verdict.above.problem}"
    else:
        stop = "search higher" if highest.load == search.high else "not searched further"
    return f"no knee up to {_at(search, highest)}: {_rate(highest)}, last {growth}; {stop}"


def _goodput(result: SearchResult) -> str:
    verdict, search = result.verdict, result.sweep.search
    limits = " ".join(f"{slo.metric}:{slo.limit_ms:g}" for slo in result.sweep.case.slos)
    stop = "" if verdict.above is None else f"; {_at(search, verdict.above)}: {_miss(verdict.above)}"
    if verdict.best is None:
        return f"no load keeps {search.attainment:.4g} of requests within {limits}{stop}"
    best = verdict.best
    good = "" if best.goodput_rps is None else f"{number_text(best.goodput_rps)} good requests/s, "
    top = "; it may hold higher" if best.load == search.high else ""
    return f"most goodput at {_at(search, best)}: {good}{_attained(best)} within {limits}{stop}{top}"


def _miss(point: LoadPoint) -> str:
    return f"does not count: {point.problem}" if point.problem else _attained(point)


def _attained(point: LoadPoint) -> str:
    assert point.attained is not None
    return f"{100 * point.attained:.4g}% of {point.requests} requests"


def _rate(point: LoadPoint) -> str:
    return "-" if point.throughput is None else f"{number_text(point.throughput.value)} tok/s"


def _share(gain: Gain) -> str:
    return f"{round(100 * gain.value):+d}%"


def _at(search: Search, point: LoadPoint) -> str:
    return f"batch {point.load:g}" if search.over == "batch_size" else f"{point.load:g} requests/s"
