from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.load import arrival_offsets_s
from bench.load.arrivals import partition, share
from bench.records import LoadSpec

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
