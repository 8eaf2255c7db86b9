from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.load import arrival_offsets_s
from bench.load.arrivals import levels, partition, peak_rate, share, trace_offsets_s
from bench.records import LoadSpec, Stage

OPEN = st.builds(
    LoadSpec,
    kind=st.just("open"),
    request_rate=st.floats(0.5, 5000),
    arrivals=st.sampled_from(["constant", "poisson", "gamma"]),
    burstiness=st.floats(0.1, 20),
)


@given(OPEN, st.floats(0.01, 3), st.integers(0, 2**32))
def test_sorted_inside_the_horizon_and_the_same_for_a_seed(load: LoadSpec, horizon_s: float, seed: int) -> None:
    offsets = arrival_offsets_s(load, horizon_s, seed)
    assert np.all(np.diff(offsets) >= 0)
    assert np.all((offsets >= 0) & (offsets < horizon_s))
    assert np.array_equal(offsets, arrival_offsets_s(load, horizon_s, seed))


@given(OPEN, st.integers(0, 2**32))
def test_a_longer_horizon_only_adds(load: LoadSpec, seed: int) -> None:
    short, long = arrival_offsets_s(load, 1.0, seed), arrival_offsets_s(load, 2.5, seed)
    assert np.array_equal(long[: len(short)], short)


@pytest.mark.parametrize(("arrivals", "burstiness"), [("constant", None), ("poisson", None), ("gamma", 0.25), ("gamma", 4.0)])
def test_rate_and_spread_are_those_asked_for(arrivals: str, burstiness: float | None) -> None:
    load = LoadSpec(kind="open", request_rate=200.0, arrivals=arrivals, burstiness=burstiness, num_prompts=40_000)  # type: ignore[arg-type]
    offsets = arrival_offsets_s(load, 0, 7)
    gaps = np.diff(offsets, prepend=0.0)
    variation = {"constant": 0.0, "poisson": 1.0}.get(arrivals, 1 / (burstiness or 1) ** 0.5)
    assert len(offsets) == 40_000
    assert gaps.mean() == pytest.approx(1 / 200, rel=5 * max(variation, 1e-9) / 200 + 1e-9)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05, abs=1e-9)


def test_constant_arrivals_do_not_drift() -> None:
    offsets = arrival_offsets_s(LoadSpec(kind="open", request_rate=200.0, arrivals="constant"), 60.0, 0)
    assert len(offsets) == pytest.approx(200 * 60, abs=1)
    assert offsets[-1] == pytest.approx(len(offsets) / 200, abs=1e-6)


def test_seeds_differ() -> None:
    load = LoadSpec(kind="open", request_rate=50.0, arrivals="poisson")
    assert not np.array_equal(arrival_offsets_s(load, 5, 1)[:50], arrival_offsets_s(load, 5, 2)[:50])


def test_burst_is_all_at_once() -> None:
    assert arrival_offsets_s(LoadSpec(kind="open", arrivals="burst", num_prompts=5), 9, 0).tolist() == [0.0] * 5


@pytest.mark.parametrize("rate", [None, 0.0, -1.0, float("inf"), float("nan")])
def test_no_rate_is_refused(rate: float | None) -> None:
    with pytest.raises(UsageError, match="request rate"):
        arrival_offsets_s(LoadSpec(kind="open", request_rate=rate, arrivals="poisson"), 1, 0)


@given(st.integers(0, 500), st.integers(1, 17))
def test_partition_is_a_permutation_and_shares_add_up(count: int, workers: int) -> None:
    parts = [partition(count, workers, w) for w in range(workers)]
    assert sorted(i for part in parts for i in part) == list(range(count))
    shares = [share(count, workers, w) for w in range(workers)]
    assert shares == [len(part) for part in parts]
    assert max(shares) - min(shares) <= 1


# --- stages ---------------------------------------------------------------------------------------------------------------

RATES = st.one_of(st.just(0.0), st.floats(0.5, 200))
STAGES = st.lists(
    st.builds(Stage, start=RATES, end=RATES, duration_s=st.floats(0.5, 20)),
    min_size=1,
    max_size=5,
).map(tuple)


def staged(stages: tuple[Stage, ...], arrivals: str = "constant", burstiness: float | None = None) -> LoadSpec:
    return LoadSpec(kind="open", arrivals=arrivals, burstiness=burstiness, stages=stages)  # type: ignore[arg-type]


def expected_by(stages: tuple[Stage, ...], at_s: float) -> float:
    """The rate's integral from the first stage's beginning, by the rule that anybody would write down."""
    total = 0.0
    for stage in stages:
        part = min(max(at_s, 0.0), stage.duration_s)
        total += (stage.start + (stage.end - stage.start) * part / stage.duration_s / 2) * part
        at_s -= stage.duration_s
    return total


def seconds(stages: tuple[Stage, ...]) -> float:
    return sum(stage.duration_s for stage in stages)


@given(STAGES, st.floats(0, 5))
def test_stages_have_exactly_as_many_constant_arrivals_as_their_integral(stages: tuple[Stage, ...], warmup_s: float) -> None:
    length_s = seconds(stages)
    offsets = arrival_offsets_s(staged(stages), warmup_s + length_s, 0, warmup_s=warmup_s)
    before = warmup_s * stages[0].start
    expected = before + expected_by(stages, length_s)
    assert abs(len(offsets) - expected) <= 1 + 1e-6
    assert np.all(np.diff(offsets) >= 0)
    assert np.all((offsets >= 0) & (offsets < warmup_s + length_s))
    for index in range(0, len(offsets), max(1, len(offsets) // 20)):  # each arrives when the integral says so
        at_s = float(offsets[index])
        count = at_s * stages[0].start if at_s < warmup_s else before + expected_by(stages, at_s - warmup_s)
        assert count == pytest.approx(index + 1, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize(("arrivals", "burstiness"), [("poisson", None), ("gamma", 0.5), ("gamma", 5.0)])
def test_random_arrivals_follow_the_stages_with_their_own_spread(arrivals: str, burstiness: float | None) -> None:
    """Counts over many seeds: mean as the integral, variance that of the process (n / shape for gamma)."""
    stages = (Stage(start=0, end=60, duration_s=4), Stage(start=20, end=20, duration_s=3))
    counts = np.array(
        [
            np.histogram(arrival_offsets_s(staged(stages, arrivals, burstiness), 7.0, seed), bins=[0, 2, 4, 7])[0]
            for seed in range(600)
        ]
    )
    for column, mean in zip(counts.T, (30.0, 90.0, 60.0), strict=True):
        spread = (mean / (burstiness or 1.0)) ** 0.5
        assert abs(column.mean() - mean) < 5 * spread / 600**0.5 + 1  # gamma: the first gap is not a stationary one
        assert column.std() == pytest.approx(spread, rel=0.2)


@given(STAGES, st.sampled_from(["constant", "poisson", "gamma"]), st.integers(0, 2**32))
def test_staged_arrivals_are_those_of_their_seed_and_a_longer_horizon_only_adds(
    stages: tuple[Stage, ...], arrivals: str, seed: int
) -> None:
    load, length_s = staged(stages, arrivals, 2.0 if arrivals == "gamma" else None), seconds(stages)
    short, long = (arrival_offsets_s(load, length_s + more_s, seed, warmup_s=1.0) for more_s in (1.0, 3.0))
    assert np.all(np.diff(long) >= 0)
    assert np.allclose(long[: len(short)], short, rtol=0, atol=1e-6)
    assert abs(int((long < length_s + 1.0 - 1e-6).sum()) - len(short)) <= 1


def test_one_flat_stage_is_the_plain_load() -> None:
    plain = LoadSpec(kind="open", request_rate=40.0, arrivals="poisson")
    flat = staged((Stage(start=40, end=40, duration_s=6),), "poisson")
    gaps = np.diff(arrival_offsets_s(flat, 8.0, 3, warmup_s=2.0))
    assert gaps.mean() == pytest.approx(np.diff(arrival_offsets_s(plain, 8.0, 3)).mean(), rel=1e-9)


def test_after_the_last_stage_its_end_goes_on() -> None:
    offsets = arrival_offsets_s(staged((Stage(start=1, end=10, duration_s=2),)), 10.0, 0, warmup_s=0)
    tail = offsets[offsets > 2.2]
    assert np.allclose(np.diff(tail), 0.1)


LEVELS = st.lists(
    st.builds(Stage, start=st.integers(1, 40), end=st.integers(1, 40), duration_s=st.floats(0.5, 20)), min_size=1, max_size=5
).map(tuple)


@given(LEVELS)
def test_levels_go_in_steps_of_one_and_have_the_area_of_the_line(stages: tuple[Stage, ...]) -> None:
    steps = levels(stages)
    times, counts = [at for at, _ in steps], [level for _, level in steps]
    assert times == sorted(times)
    assert counts[0] == stages[0].start
    assert counts[-1] == stages[-1].end
    ends = np.array([*times[1:], seconds(stages)])
    area = float(((ends - np.array(times)) * np.array(counts)).sum())
    assert area == pytest.approx(expected_by(stages, seconds(stages)), rel=1e-9)
    for stage in stages:
        assert {stage.start, stage.end} <= set(counts)


def test_the_peak_is_what_workers_are_counted_by() -> None:
    assert peak_rate(staged((Stage(start=1, end=30, duration_s=1), Stage(start=5, end=5, duration_s=1)))) == 30
    assert peak_rate(LoadSpec(kind="open", request_rate=7.0)) == 7.0
    assert peak_rate(LoadSpec(kind="closed", batch_size=3, stages=(Stage(start=1, end=3, duration_s=1),))) is None


# --- traces ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=50).map(sorted), st.floats(0.1, 100))
def test_a_trace_at_another_speed_keeps_its_order_and_scales_its_gaps(stamps: list[float], speed: float) -> None:
    stamps_s = np.array(stamps)
    offsets = trace_offsets_s(stamps_s, speed)
    assert offsets[0] == 0.0
    assert np.all(np.diff(offsets) >= 0)
    assert np.allclose(np.diff(offsets) * speed, np.diff(stamps_s), rtol=1e-9, atol=1e-7)
