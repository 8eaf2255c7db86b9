"""Power from a counter: differences between stamps, and what makes none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.probes.intel.meter import WINDOW_S, EnergyMeter
from bench.probes.values import Unavailable, attempt

WINDOW_US = round(WINDOW_S * 1e6)
Points = Iterable[tuple[int, int]]


def _watts(points: Points) -> Iterator[float | None]:
    """Power at each reading of a counter that shows these."""
    left = iter(points)
    meter = EnergyMeter(lambda: next(left))
    for _ in points:
        yield attempt(meter.power_w)[0]


def test_the_difference_of_energy_over_that_of_stamps() -> None:
    points = [(1_049_750_000, 5_000_000), (1_087_810_000, 6_000_000), (1_087_800_000, 7_000_000), (1_125_800_000, 8_000_000)]
    assert list(_watts(points)) == [None, 38.06, None, 38.0]  # the third is a reset: no power, and a new start


def test_a_fall_from_megajoules_to_joules_is_a_reset() -> None:
    points = [(22_543_283_000_000, 1_000_000), (22_543_383_000_000, 2_000_000), (200_000_000, 3_000_000)]
    assert list(_watts(points)) == [None, 100.0, None]


def test_a_clock_that_starts_again_is_a_reset() -> None:
    assert list(_watts([(1_000_000, 9_000_000), (2_000_000, 1_000_000), (42_000_000, 2_000_000)])) == [None, None, 40.0]


def test_a_counter_that_does_not_count_tells_nothing() -> None:
    meter = EnergyMeter(lambda: (0, 1))
    for read in (meter.energy_j, meter.power_w):
        with pytest.raises(Unavailable, match="the energy counter is 0"):
            read()


def test_joules() -> None:
    assert EnergyMeter(lambda: (1_049_750_000, 1)).energy_j() == 1049.75


@given(st.integers(1, 5000), st.lists(st.integers(1, 3 * WINDOW_US), min_size=1, max_size=60))
def test_constant_power_is_told_whatever_the_polls(watts: int, gaps_us: list[int]) -> None:
    stamps = [1_000_000]
    for gap_us in gaps_us:
        stamps.append(stamps[-1] + gap_us)
    found = list(_watts([(watts * at_us, at_us) for at_us in stamps]))
    assert [one for one in found if one is not None] == [watts] * sum(at_us - stamps[0] >= WINDOW_US for at_us in stamps)


@given(st.integers(1, 1000), st.lists(st.integers(1, WINDOW_US), min_size=10, max_size=60))
def test_whole_joules_cost_a_joule_over_the_window_at_most(watts: int, gaps_us: list[int]) -> None:
    """Older drivers tell whole joules only."""
    stamps = [1_000_000]
    for gap_us in gaps_us:
        stamps.append(stamps[-1] + gap_us)
    for found in _watts([(10**9 + watts * at_us // 10**6 * 10**6, at_us) for at_us in stamps]):
        assert found is None or abs(found - watts) <= 1 / WINDOW_S
