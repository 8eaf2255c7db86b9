"""The selftest of sensors: what is found, and what to type next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from bench.clock import FakeClock
from bench.lab.selftest import NEXT_STEPS, DeviceTest, selftest
from bench.records import Reading, SensorInfo
from bench.session.telemetry import Recorder
from bench.timing.energies import HARMLESS
from bench.timing.validity import RULES
from bench.units import NS_PER_S
from tests.session.fakes import FakeProbes, FakeStream, a_board

Counter = Callable[[float], float]
"""Joules at so many seconds; the board draws 100 W."""


class Counting(FakeStream):
    """A board with a counter beside its power."""

    counter: Counter

    def drain(self) -> list[Reading]:
        start_s = self.settled_ns / NS_PER_S
        return [replace(r, energy_j=self.counter(r.before_ns / NS_PER_S - start_s)) for r in super().drain()]


@dataclass
class CountingProbes(FakeProbes):
    counter: Counter = field(default=lambda s: 100.0 * s)

    def open(self, name: str, period_s: float) -> FakeStream:
        stream = Counting(self.clock, self.devices, period_s, self.events)
        stream.counter = self.counter
        return stream


def found(counter: Counter, seconds: float = 10.0) -> DeviceTest:
    clock = FakeClock()
    board = replace(a_board(0), power_limit_w=400.0, energy=SensorInfo(api="fake", unit="J"))
    with Recorder(CountingProbes(clock, [], devices=(board,), counter=counter), clock=clock) as recorder:
        (test,) = selftest(recorder, seconds, tools=lambda _name, _devices: {}, clock=clock).devices
    return test


def test_a_good_sensor_has_nothing_to_mend() -> None:
    test = found(lambda s: 5000.0 + 100.0 * s)
    assert (test.faults, test.next_steps) == ((), ())
    assert test.counter_j == pytest.approx(1000.0)
    assert test.integral_j == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("counter", "seconds", "code"),
    [
        (lambda s: 5000.0 + 120.0 * s, 10.0, "power_methods_disagree"),
        (lambda s: 5000.0 + 100.0 * s if s < 5 else 100.0 * s, 10.0, "counter_reset"),
        (lambda s: 5000.0, 10.0, "counter_stuck"),
        (lambda s: 5000.0 + 100.0 * (s // 0.8) * 0.8, 1.0, "below_sensor_resolution"),
    ],
)
def test_a_fault_says_what_to_do_about_it(counter: Counter, seconds: float, code: str) -> None:
    test = found(counter, seconds)
    assert [fault.partition(":")[0] for fault in test.faults] == [code]
    assert test.next_steps == (NEXT_STEPS[code],)


def test_every_fault_of_an_energy_has_a_next_step() -> None:
    """Those of the load, and the ones that leave a number standing, aside."""
    judged_elsewhere = {"not_steady", "shared_device", "stream_ended"}
    faults = {rule.code for rule in RULES.values() if rule.groups[0] == "energy" or rule.code == "impossible"}
    assert faults - judged_elsewhere - (HARMLESS - {"counter_stuck"}) == set(NEXT_STEPS)
