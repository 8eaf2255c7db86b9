"""Which point of one selection belongs to which of another. Pure.

Points are paired by the most that they share: series, host and case first, then less and less, down to workload and model. Where
several fit nothing is chosen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from bench.analysis.compare import Comparison, Point, difference_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A point of the base and its counterpart, or one alone and why. `flags`: what else differs between the two."""

    base: Point | None
    cand: Point | None
    reason: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A pair and what its metrics say; none for a point that stands alone."""

    pair: Pair
    metrics: tuple[Comparison, ...]

    @property
    def one_series(self) -> bool:
        """Whether only versions, drivers or hosts differ: then something worse is a regression, else a choice."""
        base, cand = self.pair.base, self.pair.cand
        return base is not None and cand is not None and base.series_id is not None and base.series_id == cand.series_id

    @property
    def regressions(self) -> tuple[Comparison, ...]:
        """Metrics that got worse within one series."""
        return tuple(one for one in self.metrics if one.is_worse) if self.one_series else ()


_LEVELS: tuple[Callable[[Point], Hashable], ...] = (
    lambda p: (p.series_id or p.case_id, p.host_id, p.case_id),
    lambda p: (p.series_id or p.case_id, p.host_id),
    lambda p: (p.series_id or p.case_id,),
    lambda p: (p.workload_id, p.model, p.precision, p.engine, p.devices),
    lambda p: (p.workload_id, p.model, p.precision, p.engine),
    lambda p: (p.workload_id, p.model, p.precision),
    lambda p: (p.workload_id, p.model),
)


def newest_points(points: Sequence[Point]) -> list[Point]:
    """Of each configuration and case on a host the run that started last."""
    last: dict[Hashable, Point] = {}
    for point in sorted(points, key=lambda point: (point.started, point.run_id)):
        last[(point.case_id, point.config_id, point.host_id)] = point
    return list(last.values())


def pair_points(bases: Sequence[Point], cands: Sequence[Point]) -> list[Pair]:
    """Every point of either side once: with its counterpart, or alone with the reason."""
    left, right = list(bases), list(cands)
    pairs: list[Pair] = []
    for level in _LEVELS:
        ones, twos = _grouped(left, level), _grouped(right, level)
        for key, members in ones.items():
            others = twos.get(key, [])
            if len(members) == len(others) == 1:
                pairs.append(Pair(base=members[0], cand=others[0], flags=_flags(members[0], others[0])))
                left.remove(members[0])
                right.remove(others[0])
    order = {id(point): place for place, point in enumerate(bases)}
    pairs.sort(key=lambda pair: order[id(pair.base)])
    alone = [Pair(base=point, cand=None, reason=_why(point, right, "candidate")) for point in left]
    return [*pairs, *alone, *(Pair(base=None, cand=point, reason=_why(point, left, "base")) for point in right)]


def _grouped(points: Sequence[Point], level: Callable[[Point], Hashable]) -> dict[Hashable, list[Point]]:
    groups: defaultdict[Hashable, list[Point]] = defaultdict(list)
    for point in points:
        groups[level(point)].append(point)
    return groups


def _why(point: Point, others: Sequence[Point], side: str) -> str:
    """Why no point of the other side was taken for this one."""
    fitting = [other for other in others if (other.workload_id, other.model) == (point.workload_id, point.model)]
    if fitting:
        named = ", ".join(dict.fromkeys(f"{p.engine} {p.version or '?'} on {'+'.join(p.devices) or p.host_id}" for p in fitting))
        return f"several fit: say which {side} is meant ({named})"
    nearest = next((other for other in others if other.model == point.model), None) or next(iter(others), None)
    if nearest is None:
        return f"no {side} is left for it"
    return f"no {side} has this workload; {difference_of(point, nearest) or 'nothing else is left'}"


def _flags(base: Point, cand: Point) -> tuple[str, ...]:
    """What moved between the two, in words."""
    facts = (
        ("precision", base.precision, cand.precision),
        ("weights", _short(base.weights), _short(cand.weights)),
        ("engine", base.engine, cand.engine),
        ("engine version", base.version, cand.version),
        ("engine build", base.build, cand.build),
        ("devices", " + ".join(base.devices), " + ".join(cand.devices)),
        ("host", _short(base.host_id), _short(cand.host_id)),
    )
    return tuple(f"{name}: {one or '-'} and {two or '-'}" for name, one, two in facts if one != two)


def _short(text: str | None) -> str | None:
    return None if text is None else text[:12]
