"""Which load to measure next, given what was measured so far, and what comes of it. Pure.

A search is a generator that asks for loads and is told points. `advance` runs it again from its beginning over what is known, so
that its whole state is the measured points: a search that was cut off goes on from wherever it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

from bench.analysis.knee import Gain, LoadPoint, doubling_gain, find_knee, is_flat, usable
from bench.records import Search

CLOSE = 1.125
"""Ratio of neighbouring loads below which a knee is not narrowed down further: noise would decide."""
LAST_STEP = 1.5
"""Ratio above which the last step of a ladder is looked into: in shorter ones the noise of its ends would look like a knee."""
RATE_TOLERANCE = 0.02
"""A largest rate is searched to this share of it; a largest batch size to the next whole number."""

_Answers = Callable[[float], LoadPoint | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A load to measure. `role`: `ladder` (steps up) or `refine` (between two that are known)."""

    load: float
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Where a search stands: `points` in the order in which they were asked for, and what is asked next; or why it ended."""

    points: tuple[LoadPoint, ...]
    ask: Ask | None = None
    ended: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a search found. `best` is the knee, or the most goodput; None where there is none. `highest` is the highest load that
    counts, `above` the next point over `best` (without one: over `highest`) that misses the SLOs or does not count. `gain`
    is what doubling `best` (or the load below `highest`) brings.
    """

    best: LoadPoint | None
    highest: LoadPoint | None
    above: LoadPoint | None
    gain: Gain | None
    complete: bool
    ended: str


def advance(search: Search, answers: _Answers) -> Step:
    """The next load of a search. `answers` gives the point of a load, or None where it is still to be measured."""
    steps = _knee(search) if search.find == "knee" else _most_goodput(search)
    points: list[LoadPoint] = []
    answer: LoadPoint | None = None
    while True:
        try:
            ask = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            return Step(points=tuple(points), ended=str(end.value))
        if len(points) >= search.points:
            return Step(points=tuple(points), ended=f"all {search.points} points are spent")
        answer = answers(ask.load)
        if answer is None:
            return Step(points=tuple(points), ask=ask)
        points.append(answer)


def conclude(search: Search, step: Step) -> Verdict:
    """What the points of a search say, also of one that was cut off."""
    counted = usable(step.points)
    highest = counted[-1] if counted else None
    best = find_knee(counted, search.gain) if search.find == "knee" else _best_goodput(search, step.points)
    pivot = best or (highest if search.find == "knee" else None)
    gain = None
    if search.find == "knee" and len(counted) > 1:
        gain = doubling_gain(counted, (best or counted[-2]).load)
    return Verdict(
        best=best,
        highest=highest,
        above=_above(search, step.points, pivot),
        gain=gain,
        complete=step.ended is not None,
        ended=step.ended or f"cut off after {len(step.points)} points",
    )


def holds(search: Search, point: LoadPoint) -> bool:
    """Whether a point counts and meets the SLOs."""
    return point.problem is None and point.attained is not None and point.attained >= search.attainment


def ladder(search: Search) -> tuple[float, ...]:
    """Loads from `low` to `high`, each twice the one before, or as much more as leaves points for what follows."""
    most = max(3, search.points - max(2, search.points // 4))
    factor = max(2.0, (search.high / search.low) ** (1 / (most - 1)))
    rungs = [search.low * factor**step for step in range(most)]
    inner = [_on_grid(search, load) for load in rungs[1:] if load < search.high / math.sqrt(factor)]
    return tuple(dict.fromkeys([search.low, *inner, search.high]))


def _knee(search: Search) -> Generator[Ask, LoadPoint, str]:
    seen: list[LoadPoint] = []
    for load in ladder(search):
        seen.append((yield Ask(load=load, role="ladder")))
        if _is_wall(seen[-1]) or is_flat(seen, search.gain):
            break
    while (gap := _gap(search, seen)) is not None:
        middle = _on_grid(search, math.sqrt(gap[0] * gap[1]))
        if any(point.load == middle for point in seen):
            return f"nothing is left to try between {gap[0]:g} and {gap[1]:g}"
        seen.append((yield Ask(load=middle, role="refine")))
    return "narrowed down" if find_knee(seen, search.gain) else "no load left to try"


def _gap(search: Search, seen: list[LoadPoint]) -> tuple[float, float] | None:
    """The two loads between which the knee lies. Where none is in sight: the highest that counts and the first that doesn't, or
    the last step up, in which it may hide. None where they are close.
    """
    counted = [point.load for point in usable(seen)]
    knee = find_knee(seen, search.gain)
    walls = [point.load for point in seen if _is_wall(point)]
    if knee is not None:
        return _wider(counted[: counted.index(knee.load)], knee.load, CLOSE)
    if walls:
        return _wider(counted, min(walls), CLOSE)
    return _wider(counted[:-1], counted[-1], LAST_STEP) if counted else None


def _wider(below: list[float], upper: float, least: float) -> tuple[float, float] | None:
    """The step from the last of `below` to `upper`, where its ratio is more than `least`."""
    return (below[-1], upper) if below and upper / below[-1] > least else None


def _most_goodput(search: Search) -> Generator[Ask, LoadPoint, str]:
    good: float | None = None
    bad: float | None = None
    for load in ladder(search):
        point = yield Ask(load=load, role="ladder")
        if holds(search, point):
            good = load
        elif not point.starved:
            bad = load
            break
    if bad is None:
        return f"reached {search.high:g}, the highest load asked for"
    if good is None:
        return "the first load that could be judged does not hold"
    while bad - good > (1 if search.over == "batch_size" else RATE_TOLERANCE * good):
        middle = _on_grid(search, (good + bad) / 2)
        if holds(search, (yield Ask(load=middle, role="refine"))):
            good = middle
        else:
            bad = middle
    return "narrowed down"


def _best_goodput(search: Search, points: tuple[LoadPoint, ...]) -> LoadPoint | None:
    """The largest load that holds below the first that does not: one that holds again above a miss is luck, or a cliff."""
    best = None
    for point in sorted(points, key=lambda point: point.load):
        if holds(search, point):
            best = point
        elif not point.starved:
            break
    return best


def _above(search: Search, points: tuple[LoadPoint, ...], pivot: LoadPoint | None) -> LoadPoint | None:
    """The lowest point above `pivot` that stops the search; for a knee only those that don't count do."""
    stops = [point for point in points if point.problem is not None or (search.find != "knee" and not holds(search, point))]
    higher = [point for point in stops if pivot is None or point.load > pivot.load]
    return min(higher, key=lambda point: (point.starved, point.load), default=None)


def _is_wall(point: LoadPoint) -> bool:
    """Ends the way up: no load above it is tried. A load too small to fill the window is none, more of it may do."""
    return point.problem is not None and not point.starved


def _on_grid(search: Search, load: float) -> float:
    """Batch sizes are whole; rates have four digits."""
    return float(round(load)) if search.over == "batch_size" else float(f"{load:.4g}")
