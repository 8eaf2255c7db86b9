"""Memory before the engine starts, with the model loaded, and at its peak."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.records import DeviceInfo, Metric, Reading, Telemetry, Window
from bench.timing import measure
from tests.timing.builders import S, closed_loop, make_case, make_device, make_load, make_log, poll, telemetry, window_ms

IDLE = Window(t0_ns=-60 * S, t1_ns=-50 * S)
RESIDENT = Window(t0_ns=-40 * S, t1_ns=-30 * S)
PROCESS = make_device("tree", scope="process", power=None, power_reason="a process has no power")


def reads(uid: str, start_s: float, end_s: float, memory_b: int | None, **changes: float) -> list[Reading]:
    readings = poll(start_s, end_s, 0.5, uid=uid, power_w=lambda _: 100.0)
    return [replace(reading, memory_used_b=memory_b, **changes) for reading in readings]


def of(devices: list[DeviceInfo], idle: list[Reading], loaded: list[Reading], load: list[Reading]) -> Telemetry:
    return telemetry(devices, load, idle_readings=(*idle, *loaded), idle=IDLE, resident=RESIDENT)


def memory(seen: Telemetry) -> dict[str, Metric]:
    found = measure(make_case(), make_load(make_log(closed_loop()), window_ms(0, 10_000)), seen, {}, {}).metrics
    return {name: found[f"memory_{name}_b"] for name in ("before", "loaded", "used_peak")}


def test_boards_are_summed_in_each_of_the_three() -> None:
    seen = of(
        [make_device("g0"), make_device("g1")],
        [*reads("g0", -59, -51, 10), *reads("g1", -59, -51, 20)],
        [*reads("g0", -39, -31, 400), *reads("g1", -39, -31, 500)],
        [*reads("g0", -2, 12, 410), *reads("g1", -2, 12, 600)],
    )
    assert {name: metric.value for name, metric in memory(seen).items()} == {"before": 30, "loaded": 900, "used_peak": 1010}
    assert memory(seen)["loaded"].source == "g0 400 B, g1 500 B"


def test_what_lies_outside_the_windows_does_not_count() -> None:
    idle = [*reads("g0", -59, -51, 10), *reads("g0", -49, -48, 70)]
    loaded = [*reads("g0", -45, -41, 999), *reads("g0", -39, -31, 400)]
    found = memory(of([make_device("g0")], idle, loaded, reads("g0", -2, 12, 410)))
    assert (found["before"].value, found["loaded"].value) == (10, 400)


def test_of_a_cpu_case_the_engines_processes_count_which_are_not_there_before() -> None:
    package = make_device("pkg", scope="cpu_package")
    seen = of([PROCESS, package], [], reads("tree", -39, -31, 400), [*reads("tree", -2, 12, 700), *reads("pkg", -2, 12, None)])
    found = memory(seen)
    assert (found["loaded"].value, found["used_peak"].value) == (400, 700)
    assert "not there yet" in str(found["before"].reason)


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"idle": None}, "before", "no idle window was taken"),
        ({"resident": None}, "loaded", "no resident window was taken"),
        ({"idle_readings": ()}, "loaded", "g0: no memory reading in the window"),
    ],
)
def test_what_was_not_read_is_missing_with_a_reason(changes: dict[str, None], name: str, reason: str) -> None:
    seen = of([make_device("g0")], reads("g0", -59, -51, 10), reads("g0", -39, -31, 400), reads("g0", -2, 12, 410))
    metric = memory(replace(seen, **changes))[name]
    assert (metric.value, metric.reason) == (None, reason)
