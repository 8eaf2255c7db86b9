"""The front of a set of points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.pareto import Sides, front

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)
SIDES: tuple[Sides, ...] = (("down", "up"), ("up", "down"), ("up", "up"), ("down", "down"))


@given(POINTS, st.sampled_from(SIDES))
def test_a_point_is_on_the_front_where_no_other_beats_it(points: list[tuple[int, int]], better: Sides) -> None:
    signs = [1 if side == "up" else -1 for side in better]
    good = [(signs[0] * x, signs[1] * y) for x, y in points]
    found = front(points, better)
    unbeaten = {one for one in good if not any(a >= one[0] and b >= one[1] and (a, b) != one for a, b in good)}
    assert {good[at] for at in found} == unbeaten
    assert len(found) == len(unbeaten)


@pytest.mark.parametrize("better", SIDES)
def test_it_is_walked_from_the_best_x_to_the_best_y(better: Sides) -> None:
    points = [(x, 5 - x) if better[0] == better[1] else (x, x) for x in (3, 1, 4, 2)]
    walked = [points[at][0] for at in front(points, better)]
    assert walked == sorted(walked, reverse=better[0] == "up")
    assert len(walked) == len(points)


def test_of_equal_points_the_first_counts() -> None:
    assert front([(1.0, 2.0), (1.0, 2.0)], ("up", "up")) == [0]
    assert front([], ("up", "up")) == []
