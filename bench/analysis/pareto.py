"""Points that no other beats in two ways at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.timing.spec import Better

Sides = tuple[Better, Better]


def front(points: Sequence[tuple[float, float]], better: Sides) -> list[int]:
    """Places of the points (x, y) on the Pareto front, in the order in which one walks it: from the best x to the best y.
    `better`: which way of each is good. Of equal points the first counts.
    """
    signs = [1.0 if side == "down" else -1.0 for side in better]
    keyed = [(signs[0] * x, signs[1] * y) for x, y in points]
    found: list[int] = []
    for at in sorted(range(len(points)), key=lambda place: (*keyed[place], place)):
        if not found or keyed[at][1] < keyed[found[-1]][1]:
            found.append(at)
    return found
