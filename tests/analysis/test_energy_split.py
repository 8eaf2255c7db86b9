"""Prefill, decode and idle told apart by regression, on sweeps whose coefficients are known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis.energy_split import EnergySplit, SweepPoint, split_energy

A_J, B_J, C_W = 0.02, 0.3, 110.0
SWEEP = [(n_in, n_out, s) for n_in, n_out, s in itertools.product((1e4, 1e5, 4e5), (2e3, 4e4), (60.0, 200.0))]


def points(noise: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None) -> list[SweepPoint]:
    factors = np.ones(len(SWEEP)) if noise is None else 1 + noise
    return [
        SweepPoint(energy_j=float(f * (A_J * i + B_J * o + C_W * s)), input_tokens=i, output_tokens=o, seconds=s)
        for (i, o, s), f in zip(SWEEP, factors, strict=True)
    ]


def split(of: list[SweepPoint]) -> EnergySplit:
    found = split_energy(of)
    assert isinstance(found, EnergySplit), found
    return found


def test_without_noise_the_coefficients_come_back() -> None:
    found = split(points())
    assert found.j_per_input_tok.value == pytest.approx(A_J)
    assert found.j_per_output_tok.value == pytest.approx(B_J)
    assert found.idle_w.value == pytest.approx(C_W)
    assert found.residual == pytest.approx(0, abs=1e-9)
    assert found.n == len(SWEEP)


def test_intervals_cover_the_truth_at_their_rate() -> None:
    rng, trials = np.random.default_rng(3), 400
    hits = np.zeros(3)
    for _ in range(trials):
        found = split(points(rng.normal(0, 0.02, len(SWEEP))))
        for i, (estimate, truth) in enumerate(
            ((found.j_per_input_tok, A_J), (found.j_per_output_tok, B_J), (found.idle_w, C_W)),
        ):
            assert estimate.low is not None
            assert estimate.high is not None
            hits[i] += estimate.low <= truth <= estimate.high
    assert (hits / trials >= 0.92).all()
    assert (hits / trials <= 0.98).all()


def test_lengths_that_rise_together_are_refused() -> None:
    same = [
        SweepPoint(energy_j=100.0 * k, input_tokens=1000.0 * k, output_tokens=500.0 * k, seconds=10.0 * k) for k in range(1, 9)
    ]
    found = split_energy(same)
    assert isinstance(found, str)
    assert "rise together" in found


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_too_few_trials_are_refused(count: int) -> None:
    found = split_energy(points()[:count])
    assert isinstance(found, str)
    assert found.startswith(f"{count} trials")


def test_a_sweep_without_prompts_can_not_be_split() -> None:
    found = split_energy([SweepPoint(energy_j=10.0 + o, input_tokens=0, output_tokens=o, seconds=10) for o in (1, 2, 3, 4, 5, 6)])
    assert isinstance(found, str)


@pytest.mark.parametrize(("energy_j", "seconds"), [(0.0, 1.0), (-5.0, 1.0), (5.0, 0.0)])
def test_what_can_not_be_is_an_error(energy_j: float, seconds: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        split_energy([*points(), SweepPoint(energy_j=energy_j, input_tokens=1, output_tokens=1, seconds=seconds)])


@given(st.permutations(range(len(SWEEP))), st.floats(0.01, 100))
@settings(max_examples=30, deadline=None)
def test_order_changes_nothing_and_energy_scales_every_coefficient(order: list[int], factor: float) -> None:
    noise = np.random.default_rng(1).normal(0, 0.02, len(SWEEP))
    plain = split(points(noise))
    mixed = [points(noise)[i] for i in order]
    scaled = split(
        [
            SweepPoint(
                energy_j=factor * p.energy_j, input_tokens=p.input_tokens, output_tokens=p.output_tokens, seconds=p.seconds
            )
            for p in mixed
        ]
    )
    for name in ("j_per_input_tok", "j_per_output_tok", "idle_w"):
        one, other = getattr(plain, name), getattr(scaled, name)
        assert other.value == pytest.approx(factor * one.value)
        assert other.low == pytest.approx(factor * one.low)
    assert scaled.residual == pytest.approx(plain.residual)
