"""What must hold for any log and any readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bench.records import EventLog, Measured, Metric, Outcome, Reading, Telemetry, Window
from bench.timing import measure
from bench.timing.energy import device_energy
from bench.timing.readings import device_series
from bench.timing.requests import observe, request_metrics
from tests.timing.builders import (
    ENERGY,
    POWER,
    Request,
    S,
    make_case,
    make_device,
    make_load,
    make_log,
    poll,
    steady,
    telemetry,
    window_ms,
)

FEW = settings(max_examples=40, deadline=None)
NUMBERS = ("value", "mean", "p50", "p90", "p99", "p99_low", "p99_high", "low", "high")
WINDOW = window_ms(0, 10_000)


@st.composite
def requests(draw: st.DrawFn, *, first_ms: int = -2000, last_ms: int = 11_000) -> Request:
    sent = draw(st.integers(first_ms, last_ms))
    count = draw(st.integers(0, 12))
    at, chunks = sent + draw(st.integers(1, 500)), []
    for _ in range(count):
        chunks.append((at, draw(st.integers(0, 12))))
        at += draw(st.integers(0, 300))
    outcome = (
        draw(st.sampled_from([Outcome.OK] * 6 + [Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.TRUNCATED]))
        if count
        else Outcome.EMPTY
    )
    usage = draw(st.sampled_from([count, count, count + 1, 3 * count, None])) if outcome == Outcome.OK else None
    return Request(
        sent_ms=sent,
        chunks=chunks,
        outcome=outcome,
        usage=usage,
        prompt=draw(st.sampled_from([8, 100, None])),
        finish=draw(st.sampled_from(["stop", "length"])),
        closed_ms=draw(st.sampled_from([at, at + 7, None])),
    )


LOGS = st.lists(requests(), max_size=25)


def numbers(metric: Metric) -> dict[str, float]:
    return {name: v for name in NUMBERS if (v := getattr(metric, name)) is not None}


def same(a: dict[str, Metric], b: dict[str, Metric]) -> None:
    assert a.keys() == b.keys()
    for name, one in a.items():
        other = b[name]
        assert numbers(one).keys() == numbers(other).keys(), name
        for field, value in numbers(one).items():
            assert getattr(other, field) == pytest.approx(value, rel=1e-9, abs=1e-9), (name, field)
        assert (one.n, one.reason, one.source) == (other.n, other.reason, other.source)


def measured(log: EventLog, seen: Telemetry, window: Window = WINDOW) -> Measured:
    return measure(make_case(), make_load(log, window), seen, {}, {})


def of_requests(log: EventLog, window: Window = WINDOW) -> dict[str, Metric]:
    return request_metrics(observe(make_case(), log, window), {}, {})


def board(origin_ns: int = 0) -> Telemetry:
    readings = poll(-3, 13, 0.1, power_w=lambda t: 200 + 50 * np.sin(t), energy_j=None, origin_ns=origin_ns)
    return telemetry([make_device()], readings)


@given(LOGS, st.integers(0, 10**17))
@FEW
def test_shifting_the_clock_changes_nothing(rows: list[Request], shift_ns: int) -> None:
    base = 5 * S
    before = measured(make_log(rows, base), board(base), window_ms(0, 10_000, base))
    after = measured(make_log(rows, base + shift_ns), board(base + shift_ns), window_ms(0, 10_000, base + shift_ns))
    same(before.metrics, after.metrics)
    assert [(r.code, r.group) for r in before.reasons] == [(r.code, r.group) for r in after.reasons]


def stretched(row: Request, factor: int) -> Request:
    return replace(
        row,
        sent_ms=None if row.sent_ms is None else row.sent_ms * factor,
        closed_ms=None if row.closed_ms is None else row.closed_ms * factor,
        chunks=[(c[0] * factor, *c[1:]) for c in row.chunks],
    )


@given(LOGS, st.integers(2, 3))
@FEW
def test_scaling_time_scales_latencies_and_rates(rows: list[Request], factor: int) -> None:
    one, slow = (
        of_requests(make_log(rows)),
        of_requests(make_log([stretched(r, factor) for r in rows]), window_ms(0, 10_000 * factor)),
    )
    for name in ("ttft_ms", "tpot_ms", "icl_ms", "itl_ms", "e2e_ms", "ttft_adjusted_ms"):
        for field, value in numbers(one[name]).items():
            assert getattr(slow[name], field) == pytest.approx(factor * value)
    for name in ("output_tok_per_s", "input_tok_per_s", "requests_per_s"):
        assert (one[name].value is None) == (slow[name].value is None)
        if one[name].value is not None:
            assert slow[name].value == pytest.approx((one[name].value or 0.0) / factor)
    for name in ("error_share", "in_flight_mean", "tokens_per_chunk"):
        assert numbers(slow[name]) == pytest.approx(numbers(one[name]))


@given(LOGS, st.randoms(use_true_random=False))
@FEW
def test_the_order_of_requests_changes_nothing(rows: list[Request], shuffle: Any) -> None:
    mixed = list(rows)
    shuffle.shuffle(mixed)
    same(of_requests(make_log(rows)), of_requests(make_log(mixed)))


@given(LOGS, st.integers(1, 9999))
@FEW
def test_tokens_and_completions_of_two_halves_add_up(rows: list[Request], cut_ms: int) -> None:
    log = make_log(rows)
    whole = of_requests(log)
    parts = [(of_requests(log, window_ms(*ends)), (ends[1] - ends[0]) / 1e3) for ends in ((0, cut_ms), (cut_ms, 10_000))]
    for name in ("output_tok_per_s", "requests_per_s"):
        if whole[name].value is None and "no token" not in (whole[name].reason or ""):
            continue
        total = sum((found[name].value or 0.0) * seconds for found, seconds in parts)
        assert total == pytest.approx((whole[name].value or 0.0) * 10)


@given(LOGS, st.lists(requests(first_ms=-9000, last_ms=-1), max_size=8))
@FEW
def test_requests_outside_the_window_change_no_latency(rows: list[Request], extra: list[Request]) -> None:
    latencies = ("ttft_ms", "tpot_ms", "icl_ms", "e2e_ms", "ttft_adjusted_ms", "e2e_adjusted_ms", "error_share", "output_tokens")
    plain, more = of_requests(make_log(rows)), of_requests(make_log([*extra, *rows]))
    for name in latencies:
        assert numbers(more[name]) == pytest.approx(numbers(plain[name]))
        assert more[name].n == plain[name].n


@given(LOGS)
@FEW
def test_missing_never_turns_into_zero_or_nan(rows: list[Request]) -> None:
    found = measured(make_log(rows), Telemetry()).metrics
    for name, metric in found.items():
        for field, value in numbers(metric).items():
            assert np.isfinite(value), (name, field)
        assert numbers(metric) or metric.reason, name
    uncounted = [replace(r, usage=None, prompt=None) for r in rows]
    found = measured(make_log(uncounted), Telemetry()).metrics
    for name in ("output_tok_per_s", "input_tok_per_s", "total_tok_per_s", "tpot_ms", "itl_ms", "output_tokens", "energy_j"):
        assert numbers(found[name]) == {}, name


@given(LOGS)
@FEW
def test_intervals_hold_their_value_and_percentiles_rise(rows: list[Request]) -> None:
    for name, m in measured(make_log(rows), board()).metrics.items():
        middle = m.value if m.value is not None else m.p50
        for low, high in (
            (m.low, middle),
            (middle, m.high),
            (m.p50, m.p90),
            (m.p90, m.p99),
            (m.p99_low, m.p99),
            (m.p99, m.p99_high),
        ):
            assert low is None or high is None or low <= high + 1e-9, name


# --- energy -----------------------------------------------------------------------------------------------------------

WATTS = st.lists(st.floats(0, 900), min_size=15, max_size=15)


def knots(watts: Sequence[float], t_s: float) -> float:
    return float(np.interp(t_s, np.arange(-2, len(watts) - 2), watts))


def joules(readings: Sequence[Reading], t0_s: float, t1_s: float, period_s: float = 0.25, *, counter: bool = False) -> float:
    device = make_device(power=None, energy=ENERGY) if counter else make_device()
    series = device_series(telemetry([device], readings))["gpu-0"]
    energy = device_energy(series, window_ms(t0_s * 1e3, t1_s * 1e3), period_s).energy_j
    assert energy is not None
    return energy


@given(WATTS)
@FEW
def test_sampling_the_same_power_more_finely_changes_nothing(watts: list[float]) -> None:
    coarse = joules(poll(-2, 12, 1.0, power_w=lambda t: knots(watts, t)), 0, 10, 1.0)
    fine = joules(poll(-2, 12, 0.125, power_w=lambda t: knots(watts, t)), 0, 10, 0.125)
    assert fine == pytest.approx(coarse, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("counter", [False, True])
@given(watts=WATTS, cut_s=st.floats(1, 9))
@FEW
def test_energy_of_two_halves_adds_up(watts: list[float], cut_s: float, counter: bool) -> None:
    run_j = np.concatenate(([0.0], np.cumsum(np.array(watts) + 1.0)))
    readings = poll(
        -2,
        12,
        0.25,
        power_w=lambda t: knots(watts, t),
        energy_j=lambda t: float(np.interp(t, np.arange(-3, len(watts) - 2), run_j)),
    )
    cut_s = round(cut_s, 6)
    whole = joules(readings, 0, 10, counter=counter)
    halves = joules(readings, 0, cut_s, counter=counter) + joules(readings, cut_s, 10, counter=counter)
    assert halves == pytest.approx(whole, rel=1e-9, abs=1e-6)


@given(WATTS, st.floats(0.1, 3))
@FEW
def test_scaling_power_scales_energy(watts: list[float], factor: float) -> None:
    one = joules(poll(-2, 12, 0.25, power_w=lambda t: knots(watts, t)), 0, 10)
    more = joules(poll(-2, 12, 0.25, power_w=lambda t: factor * knots(watts, t)), 0, 10)
    assert more == pytest.approx(factor * one, rel=1e-9, abs=1e-6)


@given(st.permutations(["a", "b", "c"]))
@FEW
def test_the_order_of_devices_and_readings_changes_nothing(order: list[str]) -> None:
    watts = {"a": 100.0, "b": 33.3, "c": 250.7}
    log = make_log([Request(chunks=[(50 * i, 4) for i in range(1, 190)], usage=189, closed_ms=9999)])
    by_uid = {uid: poll(-2, 12, 0.1, uid=uid, power_w=lambda t, w=w: w + t) for uid, w in watts.items()}  # type: ignore[misc]
    plain = telemetry([make_device(uid) for uid in watts], [r for uid in watts for r in by_uid[uid]])
    mixed = telemetry([make_device(uid) for uid in order], [r for uid in order for r in by_uid[uid][::-1]])
    assert measured(log, plain) == measured(log, mixed)


@given(WATTS)
@FEW
def test_a_reading_handed_over_twice_counts_once(watts: list[float]) -> None:
    readings = poll(-2, 12, 0.25, power_w=lambda t: knots(watts, t))
    assert joules([*readings, *readings[10:30]], 0, 10) == joules(readings, 0, 10)


def test_the_interval_of_joules_per_token_covers_the_truth() -> None:
    """A board whose gain is off by up to its stated 5%, with noise, serving tokens at random: 0.3 J each and 60 W idle."""
    rng, hits, trials = np.random.default_rng(4), 0, 60
    for _ in range(trials):
        gain = 1 + rng.uniform(-0.05, 0.05)
        at = np.sort(rng.uniform(0, 10_000, size=3000))
        log = make_log([Request(chunks=[(float(t), 4) for t in at], usage=3000, closed_ms=10_000)])
        per_tenth = np.histogram(at, bins=np.arange(-2000, 12_001, 100))[0]
        watts = np.append(gain * (60 + 0.3 * per_tenth * 10 + rng.normal(0, 5, size=140)), 60.0)
        seen = telemetry([make_device()], poll(-2, 12, 0.1, power_w=lambda t, w=watts: float(w[round(t * 10) + 20])))  # type: ignore[misc]
        found = measured(log, seen).metrics["j_per_output_tok"]
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= (600 + 0.3 * 3000) / 3000 <= found.high
    assert hits / trials >= 0.9


@given(LOGS)
@FEW
def test_no_interval_of_a_rate_or_of_drawn_energy_goes_below_nothing(rows: list[Request]) -> None:
    unsure = structs.replace(board(), devices=(make_device(power=structs.replace(POWER, gain_error=1.5)),))
    found = measured(make_log(rows), unsure).metrics
    assert found["energy_j"].low == 0.0
    for name, metric in found.items():
        assert "_net" in name or all(value >= 0 for value in numbers(metric).values()), name


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=12),
    st.sampled_from(["usage", "prompt", "cached", "reasoning"]),
)
@FEW
def test_no_count_whatever_it_is_makes_a_rate_that_can_not_be(counts: list[int], field: str) -> None:
    rows = [steady(700.0 * i, input_requested=8, output_requested=8, **{field: count}) for i, count in enumerate(counts)]
    found = measured(make_log(rows), board()).metrics
    for name in ("output_tok_per_s", "input_tok_per_s", "total_tok_per_s", "tok_per_j", "j_per_output_tok", "tpot_ms"):
        assert all(0 < value < 1e6 for key, value in numbers(found[name]).items() if key in ("value", "p50")), name
