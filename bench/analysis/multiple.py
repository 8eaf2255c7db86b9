"""Many tests at once. Pure.

Source: Benjamini and Hochberg 1995, Controlling the False Discovery Rate.
"""

from __future__ import annotations

from collections.abc import Sequence


def adjusted_p(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg: each p-value made so large that those at most q hold a share q of false ones on average. None is a
    test that was not made, and stays None.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    found: list[float | None] = [None] * len(p_values)
    least = 1.0
    for rank in range(len(order), 0, -1):
        p, place = order[rank - 1]
        least = min(least, p * len(order) / rank)
        found[place] = least
    return found
