"""Quantiles, intervals and Student's t against scipy, known values and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from bench import stats


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("df", [1, 1.3, 2, 2.5, 3, 4, 7.7, 10, 29, 100, 1234.5, 9_999, 10_001, 1e6])
def test_student_t_matches_scipy(confidence: float, df: float) -> None:
    expected = float(reference.t.ppf(1 - (1 - confidence) / 2, df))
    assert stats.student_t(confidence, df) == pytest.approx(expected, rel=1e-8)


@given(st.floats(1, 5e4), st.floats(0.01, 0.9999))
@settings(max_examples=60, deadline=None)
def test_student_t_matches_scipy_everywhere(df: float, confidence: float) -> None:
    assert stats.student_t(confidence, df) == pytest.approx(float(reference.t.ppf((1 + confidence) / 2, df)), rel=1e-6)


@pytest.mark.parametrize(("confidence", "df"), [(0.95, 0.5), (0.95, math.nan), (0.0, 3), (1.0, 3)])
def test_student_t_refuses_what_has_no_quantile(confidence: float, df: float) -> None:
    with pytest.raises(ValueError, match="Student's t"):
        stats.student_t(confidence, df)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.floats(0.001, 0.999))
@settings(max_examples=100, deadline=None)
def test_quantiles_match_numpy(values: list[float], p: float) -> None:
    ordered = np.sort(np.array(values))
    assert stats.quantile_linear(ordered, p) == pytest.approx(float(np.quantile(ordered, p)), rel=1e-9, abs=1e-9)
    assert stats.quantile_inverted_cdf(ordered, p) == float(np.quantile(ordered, p, method="inverted_cdf"))


def test_inverted_cdf_never_interpolates_infinity() -> None:
    ordered = np.array([1.0, 2.0, np.inf, np.inf])
    assert stats.quantile_inverted_cdf(ordered, 0.5) == 2.0
    assert stats.quantile_inverted_cdf(ordered, 0.51) == np.inf
    assert not any(math.isnan(stats.quantile_inverted_cdf(ordered, p)) for p in (0.01, 0.25, 0.5, 0.75, 0.99))


def test_inverted_cdf_takes_the_exact_rank_where_floats_are_a_hair_off() -> None:
    assert stats.quantile_inverted_cdf(np.arange(1.0, 101.0), 0.07) == 7.0


@pytest.mark.parametrize("quantile", [stats.quantile_linear, stats.quantile_inverted_cdf])
def test_quantile_of_nothing_is_refused(quantile: object) -> None:
    assert callable(quantile)
    with pytest.raises(ValueError, match="no values"):
        quantile(np.array([]), 0.5)


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("n", [1, 2, 5, 6, 17, 100, 367, 368, 1000, 250_000])
def test_order_ranks_are_the_tightest_that_hold_the_tails(n: int, p: float) -> None:
    low, high = stats.order_ranks(n, p)
    b = reference.binom(n, p)
    if low is None:
        assert b.cdf(0) > 0.025
    else:
        assert b.cdf(low - 1) <= 0.025 < b.cdf(low)
    if high is None:
        assert b.cdf(n - 1) < 0.975
    else:
        assert b.cdf(high - 1) >= 0.975 > b.cdf(high - 2)


def test_p99_has_an_upper_end_from_368_on() -> None:
    assert stats.order_ranks(367, 0.99)[1] is None
    assert stats.order_ranks(368, 0.99)[1] == 368


def test_quantile_interval_covers_the_median() -> None:
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(600):
        bounds = stats.quantile_interval(np.sort(rng.exponential(size=41)), 0.5)
        assert bounds.low is not None
        assert bounds.high is not None
        hits += bounds.low <= math.log(2) <= bounds.high
    assert hits / 600 >= 0.93


def test_quantile_interval_of_few_values_has_no_ends() -> None:
    assert stats.quantile_interval(np.array([]), 0.5) == stats.Bounds(low=None, high=None)
    assert stats.quantile_interval(np.array([3.0]), 0.5) == stats.Bounds(low=None, high=None)


def test_clustered_values_are_worth_fewer_and_their_interval_covers() -> None:
    rng = np.random.default_rng(3)
    hits, blind = 0, 0
    for _ in range(300):
        cluster = np.repeat(np.arange(40), 25)
        values = np.repeat(rng.normal(size=40), 25) + 0.1 * rng.normal(size=1000)
        ordered = np.sort(values)
        worth = stats.effective_size(values <= stats.quantile_linear(ordered, 0.5), cluster)
        assert worth < 120
        aware, naive = stats.quantile_interval(ordered, 0.5, effective_n=worth), stats.quantile_interval(ordered, 0.5)
        assert aware.low is not None
        assert aware.high is not None
        assert naive.low is not None
        assert naive.high is not None
        hits += aware.low <= 0 <= aware.high
        blind += naive.low <= 0 <= naive.high
    assert hits / 300 >= 0.9
    assert blind / 300 < 0.5


def test_values_of_one_each_are_worth_themselves() -> None:
    below = np.array([True, False] * 50)
    assert stats.effective_size(below, np.arange(100)) == pytest.approx(100, rel=0.02)
    assert stats.effective_size(np.ones(7, dtype=bool), np.arange(7)) == 7


def test_geometric_mean_by_hand_and_its_interval() -> None:
    found = stats.geometric_mean(np.array([1.0, 10.0, 100.0]))
    assert found.value == pytest.approx(10.0)
    half = 4.302652729911275 * math.log(10) / math.sqrt(3)
    assert found.low == pytest.approx(10 * math.exp(-half))
    assert found.high == pytest.approx(10 * math.exp(half))


def test_a_single_value_has_no_interval() -> None:
    found = stats.geometric_mean(np.array([5.0]))
    assert found.value == pytest.approx(5.0)
    assert (found.low, found.high, found.n) == (None, None, 1)


@pytest.mark.parametrize("bad", [[], [1.0, 0.0], [-1.0]])
def test_geometric_mean_refuses_what_has_no_logarithm(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="value"):
        stats.geometric_mean(np.array(bad))


def test_mean_interval_covers() -> None:
    rng = np.random.default_rng(11)
    found = [stats.mean_interval(rng.normal(5, 2, size=4)) for _ in range(800)]
    covered = sum(e.low is not None and e.high is not None and e.low <= 5 <= e.high for e in found)
    assert 0.92 <= covered / 800 <= 0.98


def test_welch_df_matches_scipy() -> None:
    a, b = np.array([1.0, 3.0, 2.0, 8.0]), np.array([2.0, 2.5, 2.2, 2.1, 2.9, 2.4])
    found = stats.welch_df(a.var(ddof=1), 4, b.var(ddof=1), 6)
    assert found == pytest.approx(float(reference.ttest_ind(a, b, equal_var=False).df))
    assert stats.welch_df(0.0, 3, 0.0, 4) == 5


@pytest.mark.parametrize("blocks", [10, 30])
def test_bootstrap_of_a_ratio_covers_the_truth(blocks: int) -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        tokens = rng.poisson(300, size=blocks).astype(float)
        joules = 0.2 * tokens + rng.normal(40, 8, size=blocks)
        found = stats.bootstrap_ratio(joules, tokens, rng, resamples=400)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= (0.2 * 300 + 40) / 300 <= found.high
    assert 0.91 <= hits / 300 <= 1.0


def test_bootstrap_is_the_same_for_the_same_generator() -> None:
    a, b = np.arange(1.0, 13.0), np.full(12, 2.0)
    found = [stats.bootstrap_ratio(a, b, np.random.default_rng(1)) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].value == pytest.approx(3.25)


def test_bootstrap_needs_ten_blocks_and_a_denominator() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="at least 10 blocks"):
        stats.bootstrap_ratio(np.ones(9), np.ones(9), rng)
    assert stats.bootstrap_ratio(np.ones(10), np.zeros(10), rng) is None


def test_trend_matches_scipy() -> None:
    rng = np.random.default_rng(2)
    blocks = 100 + 0.7 * np.arange(20) + rng.normal(size=20)
    found = stats.linear_trend(blocks)
    assert found is not None
    fit = reference.linregress(np.arange(20), blocks)
    half = reference.t.ppf(0.995, 18) * fit.stderr
    scale = 20 / blocks.mean()
    assert found.change == pytest.approx(fit.slope * scale)
    assert found.low == pytest.approx((fit.slope - half) * scale)
    assert found.high == pytest.approx((fit.slope + half) * scale)


def test_a_flat_series_seldom_shows_a_trend() -> None:
    rng = np.random.default_rng(9)
    found = [stats.linear_trend(rng.normal(100, 5, size=12)) for _ in range(500)]
    false_alarms = sum(t is not None and (t.low > 0 or t.high < 0) for t in found)
    assert false_alarms / 500 <= 0.03


def test_trend_of_too_little_is_none() -> None:
    assert stats.linear_trend(np.ones(9)) is None
    assert stats.linear_trend(np.zeros(12)) is None
    assert stats.linear_trend(np.array([])) is None


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, 10), (5, 10), (30, 10), (60, 20), (600, 30)])
def test_block_count(seconds: float, expected: int) -> None:
    assert stats.block_count(seconds) == expected
