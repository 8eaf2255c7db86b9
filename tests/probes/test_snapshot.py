from __future__ import annotations

from collections.abc import Iterable

import pytest

from bench.ports import Discovery, ProbeStream
from bench.probes.snapshot import look
from bench.records import DeviceInfo, ProbeProblem, Reading, SensorInfo

S = 1_000_000_000
COUNTER = SensorInfo(api="counter", unit="uJ", wrap_j=1000.0)
POWER = SensorInfo(api="power", unit="mW")


class FakeStream:
    def __init__(self, found: Discovery, readings: list[Reading]) -> None:
        self._found = found
        self._readings = readings
        self.closed = False

    def discovery(self) -> Discovery:
        return self._found

    def watch(self, pids: Iterable[int]) -> None:
        pass

    def drain(self) -> list[Reading]:
        readings, self._readings = self._readings, []
        return readings

    def settled(self) -> bool:
        return True

    def ended(self) -> str | None:
        return None

    def close(self) -> None:
        self.closed = True


class FakeHost:
    def __init__(self, *streams: FakeStream) -> None:
        self.streams = streams

    def names(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(len(self.streams)))

    def open(self, name: str, period_s: float) -> ProbeStream:
        return self.streams[int(name)]


def _device(power: SensorInfo | None, energy: SensorInfo | None) -> DeviceInfo:
    return DeviceInfo(
        uid="d",
        probe="fake",
        vendor="fake",
        name="d",
        index=0,
        scope="accelerator",
        power=power,
        energy=energy,
        power_reason="none",
    )


def _counted(*points: tuple[float, float]) -> list[Reading]:
    return [Reading(uid="d", before_ns=round(t * S), after_ns=round(t * S), energy_j=e) for t, e in points]


@pytest.mark.parametrize(
    ("points", "power_w"),
    [
        ([(0, 100.0), (0.5, 150.0)], 100.0),
        ([(0, 990.0), (1, 40.0)], 50.0),
        ([(0, 100.0), (0.1, 150.0)], None),
        ([(0, 100.0)], None),
        ([], None),
    ],
)
def test_power_of_a_counter(points: list[tuple[float, float]], power_w: float | None) -> None:
    stream = FakeStream(Discovery(devices=(_device(None, COUNTER),)), _counted(*points))
    (now,) = look(FakeHost(stream), seconds=0.1).devices
    assert now.power_w == (None if power_w is None else pytest.approx(power_w))
    assert stream.closed


def test_a_counter_that_falls_without_a_known_wrap_has_no_power() -> None:
    counter = SensorInfo(api="counter", unit="uJ")
    stream = FakeStream(Discovery(devices=(_device(None, counter),)), _counted((0, 990.0), (1, 40.0)))
    assert look(FakeHost(stream), seconds=0.1).devices[0].power_w is None


def test_the_sensors_own_power_wins_and_the_last_values_are_shown() -> None:
    readings = [
        Reading(uid="d", before_ns=0, after_ns=0, power_w=10.0, memory_used_b=5, energy_j=0.0),
        Reading(uid="d", before_ns=S, after_ns=S, power_w=20.0, energy_j=900.0),
    ]
    stream = FakeStream(Discovery(devices=(_device(POWER, COUNTER),)), readings)
    (now,) = look(FakeHost(stream), seconds=5.0).devices
    assert (now.power_w, now.power_api, now.memory_used_b) == (20.0, "power", 5)


def test_problems_of_all_probes_are_kept() -> None:
    problems = [ProbeProblem(probe=str(k), subject="s", problem="p", fix="f") for k in range(2)]
    streams = [FakeStream(Discovery(problems=(problem,)), []) for problem in problems]
    assert look(FakeHost(*streams)).problems == tuple(problems)
