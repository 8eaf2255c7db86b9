"""The energy metrics of a trial: gross, net, per unit, each with its terms; shared boards; polls that are too slow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from bench.records import Measured, Metric, Profile, SensorInfo, Telemetry
from bench.timing import measure
from bench.timing.energy import device_energy
from bench.timing.error_budget import MEANINGS
from bench.timing.joules import Baseline, Work, energy_metrics
from bench.timing.readings import device_series
from bench.timing.recorded import recorded_devices, recorded_scopes
from bench.timing.scopes import scope_energies
from bench.timing.spec import PER_UNIT
from tests.timing.builders import (
    ENERGY,
    POWER,
    S,
    closed_loop,
    make_case,
    make_device,
    make_load,
    make_log,
    poll,
    telemetry,
    window_ms,
)

WINDOW = window_ms(0, 10_000)
BASES = ("j_per_output_tok", "j_per_total_tok", "j_per_request")


def board(**device: object) -> Telemetry:
    """600 W in the window, about 120 W at rest."""
    rest = lambda t: 120.0 + 2 * np.sin(9 * t)  # noqa: E731
    return telemetry(
        [make_device(**device)],  # type: ignore[arg-type]
        poll(-2, 12, 0.1, power_w=lambda t: 600.0 + 20 * np.sin(7 * t)),
        idle=window_ms(-60_000, -50_000),
        resident=window_ms(-40_000, -30_000),
        idle_readings=(*poll(-62, -48, 0.1, power_w=rest), *poll(-42, -28, 0.1, power_w=rest)),
    )


def run(seen: Telemetry, profile: Profile = Profile.SMOKE) -> Measured:
    log = make_log(closed_loop(until_s=11))
    return measure(make_case(profile=profile), make_load(log, WINDOW), seen, {}, {})


def ends(metric: Metric) -> tuple[float, float]:
    assert metric.low is not None
    assert metric.high is not None
    return metric.low, metric.high


@pytest.mark.parametrize("base", BASES)
def test_every_energy_per_unit_is_gross_and_net_with_two_intervals(base: str) -> None:
    found = run(board()).metrics
    gross, gross_same, net, net_same = (found[f"{base}{ending}"] for ending in PER_UNIT)
    assert gross.value == gross_same.value
    assert net.value == net_same.value
    assert gross.value is not None
    assert net.value is not None
    assert net.value == pytest.approx(gross.value * 480 / 600, rel=0.01)
    for wide, narrow in ((gross, gross_same), (net, net_same)):
        assert set(wide.terms) - set(narrow.terms) == {"gain"}
        assert ends(wide)[0] < ends(narrow)[0] < (wide.value or 0) < ends(narrow)[1] < ends(wide)[1]
    assert "idle" in net.terms
    assert "idle" not in gross.terms
    assert net.terms["gain"][0] == pytest.approx(0.05 * net.value, rel=1e-6)


def test_an_interval_is_its_terms_in_quadrature() -> None:
    found = run(board()).metrics
    seen = 0
    for metric in found.values():
        if metric.terms and metric.low is not None and metric.value is not None:
            below, above = (math.hypot(*(term[side] for term in metric.terms.values())) for side in (0, 1))
            assert ends(metric) == pytest.approx((metric.value - below, metric.value + above)), metric.name
            seen += 1
    assert seen >= 15


def test_watt_hours_of_a_thousand_requests() -> None:
    found = run(board()).metrics
    joules, watt_hours = found["j_per_request"], found["wh_per_1000_requests"]
    assert joules.value is not None
    assert watt_hours.value == pytest.approx(joules.value * 1000 / 3600)
    assert ends(watt_hours) == pytest.approx(tuple(end / 3.6 for end in ends(joules)))
    assert watt_hours.unit == "Wh"


def test_tokens_per_joule_has_a_same_board_interval_too() -> None:
    found = run(board()).metrics
    low, high = ends(found["tok_per_j_same_board"])
    assert (low, high) == pytest.approx(tuple(1 / end for end in reversed(ends(found["j_per_output_tok_same_board"]))))
    wide_low, wide_high = ends(found["tok_per_j"])
    assert wide_low < low < high < wide_high


def test_idle_power_has_the_spread_of_its_blocks_and_the_gain() -> None:
    metric = run(board()).metrics["resident_power_w"]
    assert set(metric.terms) == {"blocks", "gain"}
    assert metric.terms["gain"][0] == pytest.approx(0.05 * 120, rel=0.01)
    assert ends(metric)[0] < 120 < ends(metric)[1]


def test_the_method_not_used_is_kept() -> None:
    device = make_device(energy=ENERGY)
    readings = poll(-2, 12, 0.1, power_w=lambda _: 600.0, energy_j=lambda t: 5000 + 610 * t)
    found = run(telemetry([device], readings)).metrics
    assert found["energy_j"].value == pytest.approx(6100)
    assert found["energy_j"].source == "counter"
    assert found["energy_other_j"].value == pytest.approx(6000)
    assert found["energy_other_j"].source == "integral"
    assert run(board()).metrics["energy_other_j"].reason == "there is one method only"


def test_an_integral_with_a_hole_is_no_second_opinion() -> None:
    device = make_device(energy=ENERGY)
    readings = [
        replace(r, power_w=None) if 3 < r.before_ns / 1e9 < 6 else r
        for r in poll(-2, 12, 0.1, power_w=lambda _: 600.0, energy_j=lambda t: 5000 + 600 * t)
    ]
    found = run(telemetry([device], readings)).metrics
    assert found["energy_j"].value == pytest.approx(6000)
    assert found["energy_other_j"].value is None


def test_raw_end_points_would_scatter_by_four_per_cent_of_a_second() -> None:
    """500 W, a counter that moves each 100 ms: what interpolation between its changes is worth."""
    device = make_device(power=None, energy=replace(ENERGY, update_period_s=0.1))

    def counter(t: float) -> float:
        return 1000.0 + 50.0 * float(np.floor(round(t / 0.1, 6)))

    series = device_series(telemetry([device], poll(-2, 4, 0.01, energy_j=counter)))["gpu-0"]
    rng = np.random.default_rng(2)
    raw, ours = [], []
    for t0 in rng.uniform(0, 1, 300):
        length_s = 1.0 + rng.uniform(0, 0.1)
        raw.append((counter(t0 + length_s) - counter(t0)) - 500 * length_s)
        found = device_energy(series, window_ms(t0 * 1e3, (t0 + length_s) * 1e3), 0.01)
        assert found.energy_j is not None
        ours.append(found.energy_j - 500 * length_s)
    assert float(np.std(raw)) == pytest.approx(20.4, rel=0.1)
    assert float(np.abs(ours).max()) < 1.0


# --- polls that are too slow ------------------------------------------------------------------------------------------


def test_power_that_jumps_between_polls_is_flagged_aliased() -> None:
    """A square wave of 1 Hz polled each 0.49 s: nothing says what lay between."""
    readings = poll(-5, 65, 0.49, power_w=lambda t: 500.0 if t % 1 < 0.5 else 100.0)
    series = device_series(telemetry([make_device()], readings))["gpu-0"]
    found = device_energy(series, window_ms(0, 60_000), 0.49)
    assert [fault.code for fault in found.faults] == ["aliased"]
    assert found.energy_j is not None


def test_power_that_is_followed_is_not() -> None:
    readings = poll(-5, 65, 0.05, power_w=lambda t: 500.0 if t % 1 < 0.5 else 100.0)
    series = device_series(telemetry([make_device()], readings))["gpu-0"]
    assert device_energy(series, window_ms(0, 60_000), 0.05).faults == ()


def test_a_sensor_that_averages_over_its_whole_period_misses_nothing() -> None:
    device = make_device(power=replace(POWER, averaging_window_s=0.5))
    readings = poll(-5, 65, 0.5, power_w=lambda t: 500.0 if t % 1 < 0.5 else 100.0)
    series = device_series(telemetry([device], readings))["gpu-0"]
    assert device_energy(series, window_ms(0, 60_000), 0.5).faults == ()


def test_aliased_is_a_warning_and_the_joules_stay() -> None:
    readings = poll(-2, 12, 0.1, power_w=lambda t: 600.0 if round(t * 10) % 2 else 200.0)
    measured = run(telemetry([make_device()], readings))
    assert [(r.code, r.severity) for r in measured.reasons if r.code == "aliased"] == [("aliased", "warning")]
    assert measured.metrics["j_per_output_tok"].value is not None


# --- shared boards ----------------------------------------------------------------------------------------------------


def codes(measured: Measured) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for reason in measured.reasons:
        found.setdefault(reason.code, set()).add(f"{reason.group} {reason.severity}")
    return found


def test_a_board_shared_by_what_it_is_has_no_joules_of_the_engine() -> None:
    measured = run(board(shared="MIG: 3 slices share the board's power"))
    assert codes(measured)["shared_device"] == {"energy invalid"}
    for name in ("j_per_output_tok", "energy_j", "energy_accelerator_j", "wh_per_1000_requests", "j_per_request_net"):
        assert measured.metrics[name].value is None
        assert "MIG: 3 slices" in (measured.metrics[name].reason or "")
    assert measured.metrics["output_tok_per_s"].value is not None


@pytest.mark.parametrize(("profile", "severity"), [(Profile.SMOKE, "warning"), (Profile.NIGHTLY, "invalid")])
def test_a_foreign_process_in_the_window_spoils_it(profile: Profile, severity: str) -> None:
    seen = board()
    visited = tuple(replace(r, foreign_processes=2.0 if 4 < r.before_ns / 1e9 < 5 else 0.0) for r in seen.readings)
    measured = run(replace(seen, readings=visited), profile)
    assert codes(measured)["foreign_process"] == {f"all {severity}"}
    assert codes(measured)["shared_device"] == {"energy invalid"}
    assert measured.metrics["j_per_output_tok"].value is None
    (reason,) = [r for r in measured.reasons if r.code == "shared_device"]
    assert reason.message == "gpu-0: up to 2 other processes in 9% of readings"


@pytest.mark.parametrize("foreign", [None, 0.0])
def test_no_foreign_process_or_none_that_can_be_told_is_nothing(foreign: float | None) -> None:
    seen = board()
    measured = run(replace(seen, readings=tuple(replace(r, foreign_processes=foreign) for r in seen.readings)))
    assert not {"foreign_process", "shared_device"} & set(codes(measured))


def test_a_foreign_process_outside_the_window_changes_nothing() -> None:
    seen = board()
    visited = tuple(replace(r, foreign_processes=3.0 if r.before_ns < 0 else 0.0) for r in seen.readings)
    assert not {"foreign_process", "shared_device"} & set(codes(run(replace(seen, readings=visited))))


# --- without an engine ------------------------------------------------------------------------------------------------


def test_a_recorded_window_tells_each_device_and_each_scope() -> None:
    boards = [
        make_device("a", covers=("a1",), board="x"),
        make_device("a1", board="x"),
        make_device("b", power=SensorInfo(api="x", unit="W")),
        make_device("p", scope="cpu_package"),
        make_device("blind", scope="dram", power=None, power_reason="no sensor"),
    ]
    readings = [
        replace(reading, uid=uid, power_w=power_w)
        for uid, power_w in (("a", 300.0), ("a1", 150.0), ("b", 100.0))
        for reading in poll(-1, 11, 0.1)
    ]
    seen = telemetry(boards, readings)
    found = {one.device.uid: one for one in recorded_devices(seen, WINDOW)}
    assert set(found) == {"a", "a1", "b", "p"}
    assert (found["a"].joules.energy_j, found["a"].mean_w) == pytest.approx((3000, 300))
    assert (found["a"].joules.low_j, found["a"].joules.high_j) == pytest.approx((2850, 3150))
    assert found["b"].joules.low_j is None
    assert (found["a"].counted, found["a1"].counted, found["b"].counted) == (True, False, True)
    assert found["p"].joules.energy_j is None
    assert "power_coverage" in (found["p"].joules.reason or "")
    sums = {one.scope: one.joules for one in recorded_scopes(seen, WINDOW)}
    assert sums["accelerator"].energy_j == pytest.approx(4000)
    assert sums["cpu_package"].energy_j is None
    assert sums["dram"].energy_j is None


def test_every_term_that_a_metric_can_have_is_put_in_words() -> None:
    """A window with a gap, spread tokens and an idle: each cause is there, and known to whoever explains it."""
    readings = [r for r in poll(-5, 65, 0.1, power_w=lambda t: 300.0 + 50 * np.sin(t)) if not 20 * S < r.before_ns < 20.5 * S]
    device = make_device(power=replace(POWER, averaging_window_s=0.1, gain_error=0.05), power_limit_w=700.0)
    series = device_series(telemetry([device], readings))
    (energy,) = scope_energies(series, window_ms(0, 60_000), 0.1).values()
    tokens = np.full(20, 100.0)
    work = Work(output_tokens=tokens, total_tokens=None, completed=tokens / 50, edge_tokens=5.0, reason="")
    rest = Baseline(power_w=100.0, reason=None, half_w=3.0, gain_w=5.0)
    found = energy_metrics(energy, 60.0, work, idle=rest, resident=rest, rng=np.random.default_rng(1))
    assert set(found["j_per_output_tok_net"].terms) == set(MEANINGS)
