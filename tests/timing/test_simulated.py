"""Simulated devices: a J/token of their own, and nothing of them in a measured column."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.records import Measured, Metric, Telemetry
from bench.timing import measure
from tests.timing.builders import closed_loop, make_case, make_device, make_load, make_log, telemetry, window_ms
from tests.timing.builders import poll as polled

NAME = "j_per_output_tok_simulated"


def run(seen: Telemetry) -> Measured:
    return measure(make_case(), make_load(make_log(closed_loop(seconds=10)), window_ms(0, 10_000)), seen, {}, {})


def simulated(watts: float) -> Telemetry:
    readings = [
        replace(r, memory_used_b=5, utilisation=1.0, temperature_c=20.0 + r.before_ns / 1e8, throttle=("hw_thermal",))
        for r in polled(-2, 12, 0.1, power_w=lambda _: watts)
    ]
    return telemetry([make_device(quality="simulated", memory_total_b=10)], readings)


def test_it_is_joules_over_tokens_with_an_interval() -> None:
    real = run(telemetry([make_device()], polled(-2, 12, 0.1, power_w=lambda _: 300.0))).metrics["j_per_output_tok"]
    found = run(simulated(300.0)).metrics[NAME]
    assert found == replace(real, name=NAME)
    assert found.low is not None
    assert found.high is not None
    assert found.value is not None
    assert found.low <= found.value <= found.high


def test_it_appears_only_where_a_device_is_simulated() -> None:
    measured = run(telemetry([make_device()], polled(-2, 12, 0.1, power_w=lambda _: 300.0)))
    assert NAME not in measured.metrics


def test_nothing_simulated_enters_a_measured_column_or_judges_the_trial() -> None:
    """Only the two columns that say so differ from a run without any device."""
    with_it, without = run(simulated(300.0)), run(telemetry([], []))
    assert with_it.reasons == without.reasons

    def numbers(metrics: dict[str, Metric]) -> dict[str, float | None]:
        return {name: metric.value if metric.p50 is None else metric.p50 for name, metric in metrics.items()}

    theirs = {
        name: value for name, value in numbers(with_it.metrics).items() if not name.endswith(("_simulated", "_simulated_j"))
    }
    assert theirs == numbers(without.metrics)
    assert with_it.metrics["energy_accelerator_simulated_j"].value == pytest.approx(3000.0)


def test_two_powers_differ_as_they_do() -> None:
    one, two = (run(simulated(watts)).metrics[NAME].value for watts in (100.0, 250.0))
    assert one is not None
    assert two == pytest.approx(2.5 * one)


def test_a_faulty_simulation_gives_no_number() -> None:
    gap = [r for r in simulated(100.0).readings if not 3e9 < r.before_ns < 7e9]
    found = run(telemetry([make_device(quality="simulated")], gap)).metrics[NAME]
    assert found.value is None
    assert "gap" in (found.reason or "")
