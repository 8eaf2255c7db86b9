"""A whole trial through `measure`: energy per token, idle, attached endpoints, memory, and what is undefined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bench import codec
from bench.records import Case, DeviceInfo, Measured, Metric, Reading, SensorInfo, Status, Telemetry, Window
from bench.timing import SPECS, measure
from bench.timing.spec import REQUIRED
from tests.timing.builders import (
    ENERGY,
    POWER,
    Request,
    S,
    closed_loop,
    make_case,
    make_device,
    make_load,
    make_log,
    steady,
    telemetry,
    window_ms,
)
from tests.timing.builders import poll as polled


def numbers(metric: Metric) -> list[float]:
    fields = ("value", "mean", "p50", "p90", "p99", "p99_low", "p99_high", "low", "high")
    return [v for v in (getattr(metric, f) for f in fields) if v is not None]


def run(seen: Telemetry, *, case: Case | None = None, requests: Sequence[Request] | None = None, **extra: Any) -> Measured:
    log = make_log(closed_loop() if requests is None else requests)
    return measure(case or make_case(), make_load(log, window_ms(0, 10_000)), seen, {}, {}, **extra)


def board(power_w: float = 600.0, idle_w: float = 120.0, **device: Any) -> Telemetry:
    rest = lambda _: idle_w  # noqa: E731
    return telemetry(
        [make_device(**device)],
        polled(-2, 12, 0.1, power_w=lambda _: power_w),
        idle=Window(t0_ns=-60 * S, t1_ns=-50 * S),
        resident=Window(t0_ns=-40 * S, t1_ns=-30 * S),
        idle_readings=(*polled(-62, -48, 0.1, power_w=rest), *polled(-42, -28, 0.1, power_w=rest)),
    )


def test_every_metric_is_there_with_a_number_or_a_reason() -> None:
    for measured in (run(Telemetry()), run(board()), run(board(), requests=[])):
        assert set(REQUIRED) <= set(measured.metrics)
        assert list(measured.metrics) == [name for name in SPECS if name in measured.metrics]
        for name, metric in measured.metrics.items():
            assert metric.name == name
            assert metric.unit == SPECS[name].unit
            assert bool(numbers(metric)) != (metric.reason is not None and metric.p50 is None)


def test_gross_and_net_joules_per_token() -> None:
    """36,000 J in 60 s for 180,000 tokens over an idle of 120 W."""
    tokens_ms = [(i / 3.0, 4) for i in range(180_000)]
    requests = [Request(sent_ms=-1.0, chunks=tokens_ms, usage=180_000, prompt=60_000, closed_ms=59_999.9)]
    seen = replace(board(), readings=polled(-2, 62, 0.1, power_w=lambda _: 600.0))
    found = measure(make_case(), make_load(make_log(requests), window_ms(0, 60_000)), seen, {}, {}).metrics
    assert found["energy_j"].value == pytest.approx(36_000)
    assert found["power_mean_w"].value == pytest.approx(600)
    assert found["output_tok_per_s"].value == pytest.approx(3000)
    assert found["j_per_output_tok"].value == pytest.approx(0.2)
    assert found["j_per_output_tok_net"].value == pytest.approx(0.16)
    assert found["energy_net_j"].value == pytest.approx(28_800)
    assert found["tok_per_j"].value == pytest.approx(5)
    assert found["j_per_request"].value == pytest.approx(36_000)
    assert found["idle_power_w"].value == pytest.approx(120)
    assert found["resident_power_w"].value == pytest.approx(120)
    assert found["j_per_total_tok"].value == pytest.approx(36_000 / 240_000)
    assert found["energy_accelerator_j"].value == pytest.approx(36_000)


def interval(metric: Metric) -> tuple[float, float]:
    assert metric.low is not None
    assert metric.high is not None
    return metric.low, metric.high


def test_the_absolute_interval_holds_the_gain_and_the_same_board_one_does_not() -> None:
    found = run(board()).metrics
    absolute, same = found["j_per_output_tok"], found["j_per_output_tok_same_board"]
    assert absolute.value is not None
    assert absolute.value == same.value
    low, high = interval(absolute)
    assert low <= absolute.value * 0.95
    assert high >= absolute.value * 1.05
    narrow_low, narrow_high = interval(same)
    assert low < narrow_low <= absolute.value <= narrow_high < high
    assert interval(found["energy_j"]) == pytest.approx((5700, 6300))
    assert interval(found["power_mean_w"]) == pytest.approx((570, 630))
    inverse_low, inverse_high = interval(found["tok_per_j"])
    assert inverse_low == pytest.approx(1 / high)
    assert inverse_high == pytest.approx(1 / low)


def test_an_unknown_gain_leaves_no_absolute_interval() -> None:
    found = run(board(power=SensorInfo(api="x", unit="W"))).metrics
    assert (found["j_per_output_tok"].low, found["j_per_output_tok"].high) == (None, None)
    assert found["j_per_output_tok"].source == "integral; gain error unknown"
    assert found["energy_j"].low is None
    interval(found["j_per_output_tok_same_board"])


def test_the_same_trial_gives_the_same_numbers() -> None:
    assert run(board()) == run(board())


def test_a_record_survives_json() -> None:
    measured = run(board())
    assert codec.decode(codec.encode(measured), Measured) == measured


def test_without_a_resident_window_there_is_no_net() -> None:
    found = run(replace(board(), resident=None)).metrics
    assert found["j_per_output_tok"].value is not None
    assert found["j_per_output_tok_net"].reason == "no idle window was taken"
    assert found["resident_power_w"].value is None


def test_a_net_that_is_not_above_zero_is_undefined() -> None:
    found = run(board(power_w=118.0, idle_w=120.0)).metrics
    assert found["j_per_output_tok_net"].value is None
    assert "not above the resident idle" in (found["j_per_output_tok_net"].reason or "")


def test_without_a_window_nothing_is_defined() -> None:
    measured = measure(make_case(), make_load(make_log(closed_loop()), None), board(), {}, {})
    assert [(r.code, r.group, r.severity) for r in measured.reasons] == [("no_window", "all", "invalid")]
    assert measured.status == Status.INVALID
    assert set(measured.metrics) == set(REQUIRED)
    of_the_load = [m for name, m in measured.metrics.items() if name not in ("top1_agreement", "ppl_delta")]
    assert all(m.reason == "the load ended before the window began" and not numbers(m) for m in of_the_load)


def test_an_attached_endpoint_never_has_this_machines_joules() -> None:
    measured = run(board(), attached=True)
    for name in ("energy_j", "energy_accelerator_j", "j_per_output_tok", "idle_power_w", "memory_used_peak_b", "cpu_util_mean"):
        assert measured.metrics[name].reason == "attached endpoint: name its boards with --devices"
        assert not numbers(measured.metrics[name])
    assert measured.energy_scope is None
    named = run(board(), case=make_case(devices=("gpu-0",)), attached=True)
    assert named.metrics["energy_j"].value == pytest.approx(6000)


@pytest.mark.parametrize(("devices", "scope", "joules"), [
    ((), "accelerator", 6000.0), (("cpu",), "cpu_package", 1500.0),
])  # fmt: skip
def test_the_headline_scope(devices: tuple[str, ...], scope: str, joules: float) -> None:
    boards = [make_device(), make_device("pkg", scope="cpu_package"), make_device("mem", scope="dram")]
    watts = {"gpu-0": 600.0, "pkg": 150.0, "mem": 20.0}
    readings = [r for uid, w in watts.items() for r in polled(-2, 12, 0.1, uid=uid, power_w=lambda _, w=w: w)]  # type: ignore[misc]
    measured = run(telemetry(boards, readings), case=make_case(devices=devices))
    assert measured.energy_scope == scope
    assert measured.metrics["energy_j"].value == pytest.approx(joules)
    assert measured.metrics["energy_dram_j"].value == pytest.approx(200)
    assert measured.metrics["energy_cpu_package_j"].value == pytest.approx(1500)


def test_a_board_without_a_sensor_never_lends_the_packages_joules() -> None:
    boards = [make_device(power=None, power_reason="driver too old"), make_device("pkg", scope="cpu_package")]
    measured = run(telemetry(boards, polled(-2, 12, 0.1, uid="pkg", power_w=lambda _: 150.0)))
    assert measured.energy_scope == "accelerator"
    assert measured.metrics["energy_j"].reason == "gpu-0: driver too old"
    assert measured.metrics["energy_cpu_package_j"].value == pytest.approx(1500)
    assert measured.reasons == ()


def test_modelled_power_never_enters_a_measured_column() -> None:
    measured = run(telemetry([make_device(quality="modelled")], polled(-2, 12, 0.1, power_w=lambda _: 9.0)))
    assert measured.metrics["energy_accelerator_modelled_j"].value == pytest.approx(90)
    assert measured.metrics["energy_accelerator_j"].value is None
    assert measured.metrics["energy_j"].reason == "the accelerator's power is modelled, not measured"


def test_a_wall_clock_that_jumps_moves_nothing_because_nothing_reads_it() -> None:
    """Stamps are monotonic: 300 W for 60 s is 18,000 J whatever the date did."""
    readings = polled(-2, 62, 0.1, power_w=lambda _: 300.0)
    case, load = make_case(), make_load(make_log(closed_loop(seconds=60)), window_ms(0, 60_000))
    found = measure(case, load, telemetry([make_device()], readings), {}, {}).metrics
    assert found["energy_j"].value == pytest.approx(18_000)


# --- memory -----------------------------------------------------------------------------------------------------------


def with_memory(uid: str, peak_b: int, at_s: float, **changes: Any) -> list[Reading]:
    return [
        replace(r, memory_used_b=peak_b if abs(r.before_ns / S - at_s) < 0.05 else peak_b // 2)
        for r in polled(-2, 12, 0.1, uid=uid, power_w=lambda _: 100.0, **changes)
    ]


def test_memory_of_boards_is_each_ones_peak_in_the_window() -> None:
    boards = [make_device(f"g{i}", memory_total_b=100) for i in range(2)]
    readings = [*with_memory("g0", 40, 3), *with_memory("g1", 60, 7), *with_memory("g1", 90, 11)]
    found = run(telemetry(boards, readings[:282])).metrics
    assert found["memory_used_peak_b"].value == 100
    assert found["memory_used_peak_b"].source == "g0 40 B, g1 60 B"
    assert found["memory_reserved_util"].value == pytest.approx(0.5)


def test_memory_of_a_cpu_case_is_the_engines_processes() -> None:
    process = make_device("tree", scope="process", power=None, power_reason="a process has no power")
    readings = [replace(r, utilisation=0.5) for r in with_memory("tree", 1000, 5)]
    package = make_device("pkg", scope="cpu_package")
    found = run(telemetry([process, package], [*readings, *polled(-2, 12, 0.1, uid="pkg", power_w=lambda _: 100.0)])).metrics
    assert found["memory_used_peak_b"].value == 1000
    assert found["memory_reserved_util"].reason == "the memory there is not known"
    assert found["cpu_util_mean"].value == pytest.approx(0.5)
    assert found["accelerator_util_mean"].value is None


def test_the_module_around_a_board_has_no_memory_of_its_own() -> None:
    """As on Grace Hopper and Apple silicon. A module that stands alone has."""
    boards = [make_device("gpu", board="gpu"), make_device("module", scope="module", board="gpu")]
    readings = [*with_memory("gpu", 40, 3), *polled(-2, 12, 0.1, uid="module", power_w=lambda _: 100.0)]
    assert run(telemetry(boards, readings)).metrics["memory_used_peak_b"].value == 40
    alone = run(telemetry([make_device("apu", scope="module", board="apu")], with_memory("apu", 40, 3)))
    assert alone.metrics["memory_used_peak_b"].value == 40


def test_memory_that_one_board_hides_is_missing() -> None:
    boards: list[DeviceInfo] = [make_device("g0"), make_device("g1", reasons={"memory_used_b": "not supported"})]
    readings = [*with_memory("g0", 40, 3), *polled(-2, 12, 0.1, uid="g1", power_w=lambda _: 100.0)]
    found = run(telemetry(boards, readings)).metrics["memory_used_peak_b"]
    assert found.value is None
    assert found.reason == "g1: not supported"


def test_counter_is_preferred_and_named() -> None:
    device = make_device(power=POWER, energy=ENERGY)
    readings = polled(-2, 12, 0.1, power_w=lambda _: 300.0, energy_j=lambda t: 1000 + 300 * t)
    assert run(telemetry([device], readings)).metrics["energy_j"].source == "counter"


def test_no_request_at_all() -> None:
    measured = run(board(), requests=[])
    assert measured.metrics["energy_j"].value == pytest.approx(6000)
    for name in ("j_per_output_tok", "j_per_request", "output_tok_per_s", "ttft_ms", "error_share", "in_flight_mean"):
        assert not numbers(measured.metrics[name])
        assert measured.metrics[name].reason


@pytest.mark.parametrize("count", [1, 2])
def test_one_and_two_requests(count: int) -> None:
    measured = run(Telemetry(), requests=[steady(100.0 + 500 * i) for i in range(count)])
    assert measured.metrics["ttft_ms"].p50 == pytest.approx(50)
    assert measured.metrics["ttft_ms"].low is None
    assert measured.metrics["output_tok_per_s"].value == pytest.approx(0.8 * count)


def test_an_idle_window_with_a_gap_is_no_baseline() -> None:
    seen = board()
    holed = [r for r in seen.idle_readings if not -37 * S < r.before_ns < -33 * S]
    found = run(replace(seen, idle_readings=tuple(holed))).metrics
    assert found["resident_power_w"].value is None
    assert "power was read over" in (found["resident_power_w"].reason or "")
    assert found["j_per_output_tok_net"].value is None
    assert found["idle_power_w"].value == pytest.approx(120)


def test_a_short_idle_window_of_a_slow_sensor_still_has_a_mean() -> None:
    seen = board(power=replace(POWER, averaging_window_s=1.0))
    short = replace(seen, resident=Window(t0_ns=-34 * S, t1_ns=-32 * S))
    assert run(short).metrics["resident_power_w"].value == pytest.approx(120)


@pytest.mark.parametrize("nothing", [math.nan, math.inf])
def test_a_gauge_that_is_no_number_tells_nothing(nothing: float) -> None:
    told = {"kv_cache_util_mean": nothing, "mock_lag_p99_ms": nothing, "prompt_tokens_total": nothing}
    log = make_log(closed_loop())
    found = measure(make_case(), make_load(log, window_ms(0, 10_000)), Telemetry(), {"prompt_tokens_total": 1.0}, told)
    assert found == measure(make_case(), make_load(log, window_ms(0, 10_000)), Telemetry(), {"prompt_tokens_total": 1.0}, {})
    assert found.metrics["kv_cache_util_mean"].reason == "the engine does not tell"
