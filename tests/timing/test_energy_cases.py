"""Energy of devices and scopes on series whose answer is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from bench.records import DeviceInfo, Reading, SensorInfo, Telemetry, Window
from bench.timing.energy import DeviceEnergy, device_energy
from bench.timing.readings import device_series
from bench.timing.scopes import ScopeEnergy, accountable, scope_energies
from tests.timing.builders import ENERGY, POWER, make_device, poll, telemetry, window_ms

WRAP_INTEL_J = 262_143.328850
WRAP_AMD_J = 65_532.610987


def energy_of(
    readings: Sequence[Reading], seconds: tuple[float, float], device: DeviceInfo | None = None, *, period_s: float = 0.1
) -> DeviceEnergy:
    one = device or make_device()
    series = device_series(telemetry([one], readings))[one.uid]
    return device_energy(series, window_ms(seconds[0] * 1e3, seconds[1] * 1e3), period_s)


def codes(found: DeviceEnergy | ScopeEnergy) -> list[str]:
    return [fault.code for fault in found.faults]


def counter_only(**sensor: float | None) -> DeviceInfo:
    return make_device(power=None, energy=replace(ENERGY, **sensor))


def constant(power_w: float | None) -> Callable[[float], float | None]:
    return lambda _: power_w


def stepped(power_w: float, update_s: float) -> Callable[[float], float]:
    """A counter that moves on every `update_s` only."""
    return lambda t: 1000.0 + power_w * update_s * np.floor(round(t / update_s, 6))


# --- integral ---------------------------------------------------------------------------------------------------------


def test_constant_power_is_not_thinned_out_by_equal_values() -> None:
    found = energy_of(poll(0, 60, 0.1, power_w=lambda _: 300.0), (0, 60))
    assert found.energy_j == pytest.approx(18_000)
    assert found.method == "integral"
    assert codes(found) == []
    assert found.coverage == 1.0


def test_a_step_of_power() -> None:
    found = energy_of(poll(0, 20, 0.1, power_w=lambda t: 100.0 if t < 10 else 500.0), (0, 20))
    assert found.energy_j == pytest.approx(6000, abs=20 + 1e-9)


def test_a_ramp_is_a_trapezoid_not_a_left_sum() -> None:
    found = energy_of(poll(0, 10, 1.0, power_w=lambda t: 70.0 * t), (0, 10), period_s=1.0)
    assert found.energy_j == pytest.approx(3500)


def test_edges_between_polls_are_interpolated() -> None:
    found = energy_of(poll(0, 10, 1.0, power_w=lambda t: 100 + 10 * t), (0.5, 9.5), period_s=1.0)
    assert found.energy_j == pytest.approx(1350)


@pytest.mark.parametrize(("phase_s", "expected"), [(0.25, 30_000), (0.75, 6000)])
def test_a_square_wave_polled_at_its_own_rate_is_aliased_and_says_so(phase_s: float, expected: float) -> None:
    device = make_device(power=replace(POWER, averaging_window_s=0.02), power_limit_w=500.0)
    readings = poll(phase_s - 2, phase_s + 62, 1.0, power_w=lambda t: 500.0 if t % 1 < 0.5 else 100.0)
    found = energy_of(readings, (0, 60), device, period_s=1.0)
    assert found.energy_j == pytest.approx(expected)
    assert codes(found) == ["part_time_sensor"]


def test_a_counter_sees_all_of_the_square_wave() -> None:
    def joules(t: float) -> float:
        whole, rest = divmod(t + 10, 1.0)
        return 300.0 * whole + 500.0 * min(rest, 0.5) + 100.0 * max(rest - 0.5, 0.0)

    found = energy_of(poll(-2, 62, 0.25, energy_j=joules), (0, 60), counter_only(), period_s=0.25)
    assert found.energy_j == pytest.approx(18_000)


@pytest.mark.parametrize("seen_w", [200.0, 700.0])
def test_a_part_time_sensors_interval_covers_what_it_missed(seen_w: float) -> None:
    sensor = replace(POWER, averaging_window_s=0.025, update_period_s=0.1)
    device = make_device(power=sensor, power_limit_w=700.0)
    series = device_series(telemetry([device], poll(-1, 61, 0.1, power_w=lambda _: seen_w)))["gpu-0"]
    found = device_energy(series, window_ms(0, 60_000), 0.1, idle_w=100.0)
    assert found.energy_j == pytest.approx(60 * seen_w)
    assert found.low_j is not None
    assert found.high_j is not None
    assert found.low_j <= 19_500 <= found.high_j
    assert codes(found) == ["part_time_sensor"]


def test_a_gap_contributes_bounds_and_coverage() -> None:
    readings = [*poll(0, 10, 0.1, power_w=lambda _: 300.0), *poll(15, 60, 0.1, power_w=lambda _: 300.0)]
    series = device_series(telemetry([make_device(power_limit_w=700.0)], readings))["gpu-0"]
    found = device_energy(series, window_ms(0, 60_000), 0.1, idle_w=100.0)
    assert found.coverage == pytest.approx(0.917, abs=0.001)
    assert found.low_j == pytest.approx(17_000)
    assert found.high_j == pytest.approx(20_000)
    assert found.energy_j is not None
    assert 17_000 <= found.energy_j <= 20_000
    assert codes(found) == ["power_coverage"]


@pytest.mark.parametrize(
    ("gap_s", "expected"), [(0.2, []), (0.3, []), (0.4, ["power_gap"]), (0.5, ["power_gap"]), (0.7, ["power_coverage"])]
)
def test_gaps_up_to_a_hundredth_of_the_window_widen_the_interval(gap_s: float, expected: list[str]) -> None:
    """Three periods are 0.3 s, one per cent of the window 0.6 s."""
    readings = [*poll(-1, 10, 0.1, power_w=lambda _: 300.0), *poll(10 + gap_s, 61, 0.1, power_w=lambda _: 300.0)]
    series = device_series(telemetry([make_device(power_limit_w=700.0)], readings))["gpu-0"]
    found = device_energy(series, window_ms(0, 60_000), 0.1, idle_w=100.0)
    assert codes(found) == expected
    assert found.energy_j == pytest.approx(18_000)
    blind_s = gap_s if expected else 0.0
    assert found.coverage == pytest.approx(1 - blind_s / 60)
    assert (found.low_j, found.high_j) == pytest.approx((18_000 - 200 * blind_s, 18_000 + 400 * blind_s))


@pytest.mark.parametrize(("first_s", "last_s"), [(5.0, 60.0), (0.0, 50.0), (20.0, 21.0)])
def test_readings_that_do_not_reach_the_edges_are_a_gap_too(first_s: float, last_s: float) -> None:
    found = energy_of(poll(first_s, last_s, 0.1, power_w=lambda _: 300.0), (0, 60))
    assert found.coverage == pytest.approx((last_s - first_s) / 60)
    assert "power_coverage" in codes(found)


def test_readings_far_from_the_window_are_none() -> None:
    found = energy_of(poll(100, 120, 0.1, power_w=lambda _: 300.0), (0, 60))
    assert found.energy_j is None
    assert codes(found) == ["power_coverage"]


@pytest.mark.parametrize("watts", [300_000.0, 5_100.0, -1.0])
def test_watts_that_nothing_draws_are_refused(watts: float) -> None:
    found = energy_of(poll(0, 60, 0.1, power_w=lambda _: watts), (0, 60))
    assert found.energy_j is None
    assert codes(found) == ["impossible"]


def test_watts_far_above_the_limit_are_refused_and_a_cpus_turbo_is_not() -> None:
    readings = poll(0, 60, 0.1, power_w=lambda _: 700.0)
    assert energy_of(readings, (0, 60), make_device(power_limit_w=400.0)).energy_j is None
    cpu = make_device(scope="cpu_package", power_limit_w=400.0)
    assert energy_of(readings, (0, 60), cpu).energy_j == pytest.approx(42_000)


# --- counters ---------------------------------------------------------------------------------------------------------


def test_a_wrap_that_cannot_have_been_missed_is_added() -> None:
    readings = poll(0, 1, 1.0, energy_j=lambda t: 262_143.0 if t == 0 else 0.5)
    device = make_device(scope="cpu_package", power=None, energy=replace(ENERGY, wrap_j=WRAP_INTEL_J))
    assert energy_of(readings, (0, 1), device, period_s=1.0).energy_j == pytest.approx(0.82885)


def amd_package() -> DeviceInfo:
    return make_device(scope="cpu_package", power=None, energy=replace(ENERGY, wrap_j=WRAP_AMD_J))


def test_end_points_600_s_apart_may_have_lost_wraps() -> None:
    found = energy_of(poll(0, 600, 600.0, energy_j=lambda t: (400.0 * t) % WRAP_AMD_J), (0, 600), amd_package(), period_s=600.0)
    assert found.energy_j is None
    assert codes(found) == ["counter_reset"]


def test_the_same_counter_polled_each_minute() -> None:
    found = energy_of(poll(0, 600, 60.0, energy_j=lambda t: (400.0 * t) % WRAP_AMD_J), (0, 600), amd_package(), period_s=60.0)
    assert found.energy_j == pytest.approx(240_000)


def test_a_fall_without_a_known_range_is_missing_never_negative() -> None:
    found = energy_of(poll(0, 10, 1.0, energy_j=lambda t: 9000.0 - 5 * t), (0, 10), counter_only(), period_s=1.0)
    assert found.energy_j is None
    assert codes(found) == ["counter_reset"]


@pytest.mark.parametrize("wrap_j", [None, 2**64 * 1e-6])
def test_a_reset_is_not_a_wrap(wrap_j: float | None) -> None:
    device = counter_only(wrap_j=wrap_j)
    found = energy_of(poll(0, 5, 5.0, energy_j=lambda t: 22_543_283.0 if t == 0 else 200.0), (0, 5), device, period_s=5.0)
    assert found.energy_j is None
    assert codes(found) == ["counter_reset"]


def test_a_fall_just_below_the_top_of_the_range_is_a_wrap_no_watts_explain() -> None:
    readings = poll(0, 1, 1.0, energy_j=lambda t: 60_000.0 if t == 0 else 50_000.0)
    found = energy_of(readings, (0, 1), amd_package(), period_s=1.0)
    assert codes(found) == ["counter_reset"]


def test_a_fall_that_no_watts_explain_is_refused_however_long_the_rest() -> None:
    readings = poll(0, 600, 1.0, energy_j=lambda t: 60_000.0 + t if t < 300 else 50_000.0 + t)
    found = energy_of(readings, (0, 600), amd_package(), period_s=1.0)
    assert found.energy_j is None
    assert codes(found) == ["counter_reset"]


def test_a_change_is_placed_midway_between_the_polls_around_it() -> None:
    """Power climbs by 100 W/s; the counter moves every half second, right between two polls."""
    readings = poll(-2.05, 12.05, 0.1, energy_j=lambda t: 1000 + 50.0 * (np.floor(2 * t) / 2) ** 2 * np.sign(t))
    assert energy_of(readings, (2, 10), counter_only()).energy_j == pytest.approx(50 * (100 - 4), rel=1e-6)


def test_a_change_is_no_older_than_the_counters_period() -> None:
    """A counter of 1 ms polled each 0.5 s is fresh at every poll, not a quarter of a second old."""
    readings = poll(-2, 12, 0.5, energy_j=lambda t: 1000 + 50.0 * t * abs(t))
    found = energy_of(readings, (2, 10), counter_only(update_period_s=0.001), period_s=0.5)
    assert found.energy_j == pytest.approx(50 * (100 - 4), rel=2e-4)
    assert found.endpoint_j < 1.0


def test_accumulator_counts_in_their_true_unit() -> None:
    per_count_j = 2.0**-16
    found = energy_of(
        poll(0, 10, 10.0, energy_j=lambda t: 7.0 + 65_536_000 * per_count_j * t / 10), (0, 10), counter_only(), period_s=10.0
    )
    assert found.energy_j == pytest.approx(1000.0)


def test_an_accumulator_that_ran_backwards_is_refused() -> None:
    counts = {0.0: 4_750_896_266, 1.0: 4_736_943_791}
    found = energy_of(poll(0, 1, 1.0, energy_j=lambda t: counts[t] * 2.0**-16), (0, 1), counter_only(), period_s=1.0)
    assert found.energy_j is None
    assert codes(found) == ["counter_reset"]


def test_a_rise_that_no_watts_explain_is_refused() -> None:
    found = energy_of(poll(0, 10, 0.1, energy_j=lambda t: 1e6 * t), (0, 10), counter_only())
    assert found.energy_j is None
    assert codes(found) == ["counter_reset"]


@pytest.mark.parametrize(("jump_j", "update_s"), [(1000.0, 0.1), (30_000.0, 0.1), (30_000.0, 1.0)])
def test_one_jump_is_refused_though_the_mean_over_the_window_looks_right(jump_j: float, update_s: float) -> None:
    """100 W of a package that may draw 1 kW: the jump adds up to 500 W to the mean, which nothing else would notice."""
    counts = stepped(100.0, update_s)
    readings = poll(-2, 62, 0.1, energy_j=lambda t: counts(t) + (jump_j if t > 30.05 else 0.0))
    found = energy_of(readings, (0, 60), make_device(scope="cpu_package", power=None, energy=ENERGY))
    assert found.energy_j is None
    assert codes(found) == ["counter_reset"]
    assert "jumped by" in found.faults[0].message


@pytest.mark.parametrize("silent_s", [0.3, 0.9, 3.0])
def test_a_counter_that_makes_up_for_lost_time_has_not_jumped(silent_s: float) -> None:
    """A driver that was busy, a card that slept: the rise is what was drawn meanwhile."""

    def joules(t: float) -> float:
        return 1000.0 + 300.0 * (10.0 if 10.0 <= t < 10.0 + silent_s else t)

    readings = poll(-2, 62, 0.1, energy_j=joules)
    found = energy_of(readings, (0, 60), make_device(power=None, energy=ENERGY, power_limit_w=300.0))
    assert found.energy_j == pytest.approx(18_000, rel=1e-3)
    assert codes(found) == []


def test_a_stuck_counter_gives_way_to_the_integral() -> None:
    device = make_device(energy=ENERGY)
    found = energy_of(poll(-1, 11, 0.1, power_w=lambda _: 400.0, energy_j=lambda _: 5000.0), (0, 10), device)
    assert found.method == "integral"
    assert found.energy_j == pytest.approx(4000)
    assert codes(found) == ["counter_stuck"]


def test_a_counter_that_sticks_halfway_is_stuck() -> None:
    device = make_device(energy=ENERGY)
    readings = poll(-1, 21, 0.1, power_w=lambda _: 400.0, energy_j=lambda t: 400.0 * min(t, 12.0) + 1000)
    found = energy_of(readings, (0, 20), device)
    assert found.energy_j == pytest.approx(8000)
    assert codes(found) == ["counter_stuck"]


def test_a_flat_counter_without_power_is_missing() -> None:
    found = energy_of(poll(-1, 11, 0.1, energy_j=lambda _: 5000.0), (0, 10), counter_only())
    assert found.energy_j is None
    assert codes(found) == ["below_sensor_resolution"]


@pytest.mark.parametrize("seconds", [1.0, 60.0])
@pytest.mark.parametrize("offset_s", [0.0, 0.013, 0.05, 0.087])
def test_end_points_between_counter_changes_are_interpolated(seconds: float, offset_s: float) -> None:
    readings = poll(-2, seconds + 2, 0.01, energy_j=stepped(500.0, 0.1))
    found = energy_of(readings, (offset_s, seconds + offset_s), counter_only(), period_s=0.01)
    assert found.energy_j == pytest.approx(500 * seconds, rel=1e-3)
    assert codes(found) == []


def test_a_window_shorter_than_the_counters_step_has_no_energy() -> None:
    readings = poll(0.0, 0.04, 0.01, power_w=lambda _: 300.0, energy_j=lambda _: 77.0)
    device = make_device(power=None, energy=replace(ENERGY, update_period_s=0.1))
    found = energy_of(readings, (0, 0.04), device, period_s=0.01)
    assert found.energy_j is None
    assert codes(found) == ["below_sensor_resolution"]


def test_a_window_of_two_steps_is_below_resolution() -> None:
    readings = poll(-2, 3, 0.1, energy_j=stepped(500.0, 0.1))
    found = energy_of(readings, (0.05, 0.25), make_device(power=None, energy=replace(ENERGY, update_period_s=0.1)))
    assert codes(found) == ["below_sensor_resolution"]


@pytest.mark.parametrize(("counter_w", "expected"), [(300.0, []), (310.0, []), (330.0, ["power_methods_disagree"])])
def test_counter_and_integral_are_compared(counter_w: float, expected: list[str]) -> None:
    device = make_device(power=replace(POWER, averaging_window_s=1.0), energy=ENERGY)
    readings = poll(-2, 62, 0.1, power_w=lambda _: 300.0, energy_j=lambda t: 1000 + counter_w * t)
    found = energy_of(readings, (0, 60), device)
    assert found.energy_j == pytest.approx(60 * counter_w)
    assert found.other_j == pytest.approx(18_000)
    assert codes(found) == expected


def test_a_short_window_is_not_compared() -> None:
    device = make_device(power=replace(POWER, averaging_window_s=1.0), energy=ENERGY)
    readings = poll(-2, 22, 0.1, power_w=lambda _: 300.0, energy_j=lambda t: 1000 + 400 * t)
    assert codes(energy_of(readings, (0, 19), device)) == []


# --- scopes -----------------------------------------------------------------------------------------------------------


def scope_sum(devices: Sequence[DeviceInfo], readings: Sequence[Reading], window: Window) -> dict[str, ScopeEnergy]:
    found = scope_energies(device_series(telemetry(devices, readings)), window, 0.1)
    return {f"{scope}/{quality}": energy for (scope, quality), energy in found.items()}


def test_two_dies_of_a_board_count_once() -> None:
    watts = [89.0, None, 93.0, None, 88.0, None, 88.0, None]
    devices: list[DeviceInfo] = []
    readings: list[Reading] = []
    for i, power_w in enumerate(watts):
        sibling = (f"die-{i + 1}",) if power_w else ()
        reason = None if power_w else "covered by sibling"
        power = POWER if power_w else None
        devices.append(make_device(f"die-{i}", board=f"card-{i // 2}", covers=sibling, power=power, power_reason=reason, index=i))
        readings += poll(0, 10, 0.1, uid=f"die-{i}", power_w=constant(power_w))
    found = scope_sum(devices, readings, window_ms(0, 10_000))["accelerator/measured"]
    assert found.energy_j == pytest.approx(3580)
    assert len(found.parts) == 4


def test_slices_that_repeat_their_parent_count_once() -> None:
    parent = make_device("parent", board="b", power=None, energy=ENERGY, covers=("s0", "s1", "s2"))
    slices = [make_device(f"s{i}", board="b", power=None, power_reason="no power per slice", index=i) for i in range(3)]
    readings = [r for uid in ("parent", "s0", "s1", "s2") for r in poll(0, 50, 0.1, uid=uid, energy_j=lambda t: 5.0 + 200 * t)]
    found = scope_sum([*slices, parent], readings, window_ms(0, 50_000))["accelerator/measured"]
    assert found.energy_j == pytest.approx(10_000)
    assert [part.device.uid for part in found.parts] == ["parent"]
    alone = energy_of(poll(0, 50, 0.1, uid="s0", energy_j=lambda t: 5.0 + 200 * t), (0, 50), slices[0])
    assert alone.energy_j is None
    assert alone.faults[0].message == "no power per slice"


def test_what_another_domain_covers_is_left_out_whatever_board_it_names() -> None:
    package = make_device("pkg", scope="node", covers=("core",))
    assert [device.uid for device in accountable([make_device("core", scope="node"), package])] == ["pkg"]


def test_chip_and_card_are_two_views_of_one_thing() -> None:
    chip = make_device("chip", board="card", power=replace(POWER, unit="0.1 W"))
    card = make_device("card", scope="module", board="card")
    readings = [*poll(0, 600, 1.0, uid="chip", power_w=lambda _: 214.5), *poll(0, 600, 1.0, uid="card", power_w=lambda _: 340.0)]
    found = scope_sum([chip, card], readings, window_ms(0, 600_000))
    assert found["accelerator/measured"].energy_j == pytest.approx(128_700)
    assert found["module/measured"].energy_j == pytest.approx(204_000)


def test_two_uncovered_dies_of_one_scope_and_board_are_read_once() -> None:
    dies = [make_device(f"d{i}", board="b", index=i) for i in range(2)]
    assert [device.uid for device in accountable(dies)] == ["d0"]


def test_packages_add_up_and_dram_stays_apart() -> None:
    devices = [make_device("p0", scope="cpu_package"), make_device("p1", scope="cpu_package"), make_device("m0", scope="dram")]
    readings = [
        r for uid, w in (("p0", 100.0), ("p1", 120.0), ("m0", 20.0)) for r in poll(0, 10, 0.1, uid=uid, power_w=constant(w))
    ]
    found = scope_sum(devices, readings, window_ms(0, 10_000))
    assert found["cpu_package/measured"].energy_j == pytest.approx(2200)
    assert found["dram/measured"].energy_j == pytest.approx(200)


def test_a_total_with_a_missing_part_is_missing_and_names_it() -> None:
    devices = [make_device("a"), make_device("b")]
    found = scope_sum(devices, poll(0, 10, 0.1, uid="a", power_w=lambda _: 100.0), window_ms(0, 10_000))["accelerator/measured"]
    assert found.energy_j is None
    assert found.reason is not None
    assert found.reason.startswith("b: ")


def test_modelled_power_has_a_total_of_its_own() -> None:
    devices = [make_device("a"), make_device("b", quality="modelled")]
    readings = [r for uid in "ab" for r in poll(0, 10, 0.1, uid=uid, power_w=lambda _: 100.0)]
    found = scope_sum(devices, readings, window_ms(0, 10_000))
    assert found["accelerator/measured"].energy_j == pytest.approx(1000)
    assert found["accelerator/modelled"].energy_j == pytest.approx(1000)


def test_a_device_without_readings_is_missing() -> None:
    found = device_energy(device_series(Telemetry(devices=(make_device(),)))["gpu-0"], window_ms(0, 1000), 0.1)
    assert found.energy_j is None
    assert codes(found) == ["power_coverage"]


def test_a_counter_read_twice_only_before_the_window_is_missing() -> None:
    found = energy_of(poll(-4, -3, 1.0, energy_j=lambda t: 1000 + 100 * t), (0, 60), counter_only(), period_s=0.1)
    assert found.energy_j is None
    assert codes(found) == ["power_coverage"]


def test_an_unknown_gain_gives_no_gain_term() -> None:
    device = make_device(power=SensorInfo(api="x", unit="W"))
    assert energy_of(poll(0, 10, 0.1, power_w=lambda _: 100.0), (0, 10), device).gain_j is None
