"""Ratios of repeats: known answers, coverage over simulated repeats, and what must not be compared."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from bench.analysis.compare import ENERGY, Comparison, Point, Ratio, Sample, adjust, compare_points, mean_ratio, paired_ratio
from bench.analysis.compare_pairs import newest_points, pair_points
from bench.analysis.multiple import adjusted_p

POINT = Point(
    workload_id="w",
    series_id="s",
    config_id="c",
    host_id="h",
    case_id="k",
    run_id="r",
    started="2026-12-01",
    name="point",
    model="tiny",
    precision="bf16",
    weights=None,
    engine="vllm",
    version="1",
    build=None,
    devices=("A",),
    boards=("GPU-1",),
    scope="accelerator",
    window_kind="steady",
    setting={"batch_size": "8"},
)
REPEATS = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=8)


def sampled(name: str, *values: float, gain: float | None = None, reason: str | None = None) -> dict[str, Sample]:
    return {name: Sample(values=values, gain=gain, reason=reason)}


def only(base: Point, cand: Point) -> Comparison:
    (found,) = adjust(compare_points(base, cand))
    return found


@given(REPEATS, REPEATS)
def test_interval_and_p_are_those_of_welch_on_logs(base: list[float], cand: list[float]) -> None:
    found = mean_ratio(base, cand)
    one, two = np.log(base), np.log(cand)
    if min(one.std(), two.std()) < 1e-6:
        return  # scipy loses its digits there
    expected = scipy_stats.ttest_ind(two, one, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.low is not None
    assert found.high is not None
    assert math.log(found.value) == pytest.approx(two.mean() - one.mean(), abs=1e-9)
    assert math.log(found.low) == pytest.approx(interval.low, rel=1e-6, abs=1e-7)
    assert math.log(found.high) == pytest.approx(interval.high, rel=1e-6, abs=1e-7)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-5, abs=1e-12)


@given(REPEATS, REPEATS, st.floats(1e-2, 1e2))
def test_unit_does_not_matter_and_swapping_sides_inverts(base: list[float], cand: list[float], scale: float) -> None:
    found, scaled = mean_ratio(base, cand), mean_ratio([scale * v for v in base], [scale * v for v in cand])
    back = mean_ratio(cand, base)
    assert found.low is not None
    assert back.high is not None
    assert scaled.value == pytest.approx(found.value)
    assert back.value == pytest.approx(1.0 / found.value)
    assert math.log(back.high) == pytest.approx(-math.log(found.low), abs=1e-9)


@pytest.mark.parametrize(("base", "cand"), [((100.0,), (90.0, 91.0)), ((100.0, 101.0), (90.0,)), ((100.0,), (1.0,))])
def test_one_repeat_gives_a_ratio_and_no_claim(base: tuple[float, ...], cand: tuple[float, ...]) -> None:
    name = "output_tok_per_s"
    found = only(replace(POINT, samples=sampled(name, *base)), replace(POINT, samples=sampled(name, *cand)))
    assert found.ratio is not None
    assert (found.ratio.low, found.ratio.high, found.ratio.p) == (None, None, None)
    assert found.verdict == "can't know"
    assert not found.is_worse


def test_repeats_without_any_spread_are_compared_exactly() -> None:
    assert mean_ratio([2.0, 2.0], [3.0, 3.0]).p == 0.0
    same = mean_ratio([2.0, 2.0], [2.0, 2.0])
    assert (same.low, same.high, same.p) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("bad", [[], [0.0, 1.0], [-1.0], [math.nan]])
def test_what_has_no_logarithm_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        mean_ratio(bad, [1.0])


# --- coverage ---------------------------------------------------------------------------------------------------------

DESIGNS = [(n, n, 0.006, 0.006) for n in (3, 5, 10)] + [
    (3, 10, 0.006, 0.006),
    (5, 5, 0.006, 0.018),
    (3, 10, 0.018, 0.006),
    (10, 3, 0.018, 0.006),
]


def coverage(n_base: int, n_cand: int, sd_base: float, sd_cand: float, rounds: int, rng: np.random.Generator) -> float:
    """Share of 95% intervals that hold the true ratio of simulated repeats."""
    truth = 0.97
    base = np.exp(rng.normal(0.0, sd_base, (rounds, n_base)))
    cand = truth * np.exp(rng.normal(0.0, sd_cand, (rounds, n_cand)))
    found = [mean_ratio(one, two) for one, two in zip(base.tolist(), cand.tolist(), strict=True)]
    return sum(r.low is not None and r.high is not None and r.low <= truth <= r.high for r in found) / rounds


@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_hold_the_truth_as_often_as_they_say(design: tuple[int, int, float, float]) -> None:
    assert 0.92 <= coverage(*design, rounds=500, rng=np.random.default_rng(20261201)) <= 0.975


@pytest.mark.proof
def test_coverage_of_ratio_intervals_over_many_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng()
    found = {design: coverage(*design, rounds=20_000, rng=rng) for design in DESIGNS}
    with capsys.disabled():
        for (n_base, n_cand, sd_base, sd_cand), share in found.items():
            sys.stdout.write(
                f"n = {n_base} and {n_cand}, sd = {sd_base:.1%} and {sd_cand:.1%}: {share:.2%} of 95% intervals hold the ratio\n"
            )
    assert all(0.92 <= share <= 0.975 for share in found.values())


# --- joules -----------------------------------------------------------------------------------------------------------


def joules(gain: float | None, **over: object) -> Point:
    return replace(POINT, samples=sampled(ENERGY, 0.250, 0.251, 0.249, gain=gain), **over)  # type: ignore[arg-type]


def test_gain_cancels_on_the_same_boards_only() -> None:
    same, other = only(joules(0.05), joules(0.05)), only(joules(0.05), joules(0.05, boards=("GPU-2",)))
    assert same.ratio is not None
    assert other.ratio is not None
    assert same.ratio.high is not None
    assert other.ratio.high is not None
    assert same.ratio.high < 1.02
    # two independent gains of 5% each
    assert math.log(other.ratio.high) == pytest.approx(math.hypot(0.0488, 0.0488), rel=0.05)


@pytest.mark.parametrize(
    ("base", "cand", "why"),
    [
        (joules(0.05), joules(None, boards=("GPU-2",)), "gain error"),
        (joules(0.05), joules(0.05, scope="node"), "accelerator and node"),
        (joules(0.05), joules(0.05, model="large"), "other model"),
        (joules(0.05), joules(0.05, workload_id="v", setting={"batch_size": "16"}), "batch_size 8 and 16"),
        (joules(0.05), joules(0.05, window_kind="whole_job"), "kind of window"),
        (joules(0.05), replace(POINT, samples=sampled(ENERGY, reason="no sensor")), "candidate: no sensor"),
        (replace(POINT, samples=sampled(ENERGY, 0.0, 1.0)), joules(0.05), "base: a value of 0"),
    ],
)
def test_what_must_not_be_compared_says_why(base: Point, cand: Point, why: str) -> None:
    found = only(base, cand)
    assert found.verdict == "not comparable"
    assert found.ratio is None
    assert why in (found.reason or "")


# --- many tests -------------------------------------------------------------------------------------------------------


def test_adjusted_p_values_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    raw = rng.uniform(size=20) ** 3
    found = adjusted_p([None, *raw.tolist()])
    assert found[0] is None
    assert found[1:] == pytest.approx(scipy_stats.false_discovery_control(raw))


def test_twenty_equal_points_show_no_difference_where_single_tests_would() -> None:
    rng = np.random.default_rng(3)
    names = ("output_tok_per_s",)
    rows = []
    for _ in range(60):
        one, two = (replace(POINT, samples=sampled(names[0], *np.exp(rng.normal(0, 0.01, 5)))) for _ in range(2))
        rows += compare_points(one, two)
    assert sum(row.ratio is not None and row.ratio.p is not None and row.ratio.p < 0.05 for row in rows) >= 1
    assert all(row.verdict == "no difference shown" for row in adjust(rows))


@pytest.mark.parametrize(
    ("name", "factor", "worse"),
    [("output_tok_per_s", 0.9, True), ("output_tok_per_s", 1.1, False), ("ttft_ms", 1.1, True), ("ttft_ms", 0.9, False)],
)
def test_worse_follows_the_direction_of_the_metric(name: str, factor: float, worse: bool) -> None:
    base = replace(POINT, samples=sampled(name, 100.0, 100.2, 99.8))
    found = only(base, replace(POINT, samples=sampled(name, 100.0 * factor, 100.2 * factor, 99.8 * factor)))
    assert found.verdict == "differs"
    assert found.is_worse is worse


# --- pairs ------------------------------------------------------------------------------------------------------------


def test_points_pair_by_the_most_that_they_share() -> None:
    bases = [POINT, replace(POINT, host_id="h2", series_id="s2", devices=("B",))]
    cands = [replace(p, version="2", config_id="c2") for p in reversed(bases)]
    found = pair_points(bases, cands)
    assert [(p.base.host_id, p.cand.host_id) for p in found if p.base and p.cand] == [("h", "h"), ("h2", "h2")]
    assert found[0].flags == ("engine version: 1 and 2",)


def test_another_precision_is_compared_and_flagged() -> None:
    (found,) = pair_points([POINT], [replace(POINT, precision="fp8", series_id="t")])
    assert found.reason is None
    assert "precision: bf16 and fp8" in found.flags


def test_several_that_fit_are_left_to_the_person() -> None:
    cands = [replace(POINT, config_id=c, version=c) for c in ("c1", "c2")]
    found = pair_points([POINT], cands)
    assert all(pair.base is None or pair.cand is None for pair in found)
    assert "several fit" in (found[0].reason or "")


def test_a_point_without_counterpart_names_the_difference() -> None:
    other = replace(POINT, workload_id="v", series_id="t", case_id="l", setting={"batch_size": "16"})
    found = pair_points([POINT], [other])
    assert len(found) == 2
    assert "batch_size 8 and 16" in (found[0].reason or "")


def test_the_newest_run_of_a_configuration_counts() -> None:
    late = replace(POINT, run_id="r2", started="2026-12-02")
    assert newest_points([late, POINT]) == [late]


@pytest.mark.parametrize("ratio", [paired_ratio, mean_ratio])
def test_values_as_far_apart_as_can_be_have_a_finite_ratio(ratio: Callable[..., Ratio]) -> None:
    found = ratio([1e18, 1e-30], [1e-30, 1e18])
    assert (found.low, found.high) != (None, None)
    assert all(end is not None and math.isfinite(end) for end in (found.value, found.low, found.high))
    assert math.isfinite(ratio([1e-30], [1e30]).value)
