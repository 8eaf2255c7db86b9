"""How far intervals reach when blocks resemble their neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.records import FloatArray
from bench.stats import student_t
from bench.timing.slow_noise import reach


def noise(rng: np.random.Generator, n: int, alike: float) -> FloatArray:
    """Blocks, each `alike` times the one before and something fresh."""
    found = np.empty(n)
    found[0] = rng.normal()
    for i in range(1, n):
        found[i] = alike * found[i - 1] + np.sqrt(1 - alike**2) * rng.normal()
    return found


def usual(n: int, block_s: float, alike: float) -> float:
    rng = np.random.default_rng(5)
    return float(np.median([reach(noise(rng, n, alike), block_s) for _ in range(200)]))


@pytest.mark.parametrize(("n", "block_s"), [(10, 1.0), (20, 3.0), (30, 20.0)])
def test_it_grows_with_how_alike_neighbours_are(n: int, block_s: float) -> None:
    found = [usual(n, block_s, alike) for alike in (0.0, 0.4, 0.8)]
    assert found == sorted(found)
    assert found[0] >= 0.95 * student_t(0.95, n - 1)


def test_blocks_longer_than_any_noise_are_nearly_independent() -> None:
    assert usual(30, 60.0, 0.0) == pytest.approx(student_t(0.95, 29), rel=0.1)


@pytest.mark.parametrize("block_s", [1e-9, 1e-6, 1e-4, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize("n", [3, 10, 60])
def test_blocks_of_any_length_have_a_finite_reach(n: int, block_s: float) -> None:
    blocks = np.random.default_rng(5).normal(100.0, 1.0, n)
    with np.errstate(all="raise", under="ignore"):
        assert 1.0 < reach(blocks, block_s) < np.inf


def test_few_short_blocks_can_not_rule_slow_noise_out() -> None:
    assert usual(10, 1.0, 0.0) > 1.3 * usual(10, 60.0, 0.0)


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.8])
def test_the_mean_is_held_95_times_in_100(alike: float) -> None:
    rng, n = np.random.default_rng(8), 20
    hits = []
    for _ in range(500):
        blocks = noise(rng, n, alike)
        hits.append(abs(blocks.mean()) <= reach(blocks, 3.0) * blocks.std() / np.sqrt(n))
    assert 0.92 <= np.mean(hits) <= 0.98


def test_blocks_that_are_all_the_same_reach_as_far_as_independent_ones() -> None:
    assert reach(np.full(12, 7.0), 3.0) == student_t(0.95, 11)


@given(st.integers(0, 10**6), st.floats(0.01, 1e6), st.floats(-1e3, 1e3), st.sampled_from([10, 17, 30]))
@settings(max_examples=60, deadline=None)
def test_scale_shift_and_direction_of_time_change_nothing(seed: int, scale: float, shift: float, n: int) -> None:
    blocks = noise(np.random.default_rng(seed), n, 0.5)
    plain = reach(blocks, 2.0)
    assert reach(scale * (blocks + shift), 2.0) == pytest.approx(plain, rel=1e-6)
    assert reach(blocks[::-1], 2.0) == pytest.approx(plain, rel=1e-6)
