from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bench.clock import FakeClock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes import wire
from bench.probes.child import Child
from bench.probes.rate import JITTER, MOST_CORE_SHARE, SLOWEST_FOR_UPDATES_S, SLOWEST_S, Schedule, poll_period_s
from bench.probes.sensor_timing import BURST_S, ENOUGH_CALLS, SensorTiming
from bench.records import DeviceInfo, Reading, SensorInfo

S = 1_000_000_000


def board(uid: str, *, name: str = "Fake 1", energy: bool = True) -> DeviceInfo:
    sensor = SensorInfo(api="fake", unit="W")
    return DeviceInfo(
        uid=uid,
        probe="fake",
        vendor="fake",
        name=name,
        index=0,
        scope="accelerator",
        power=sensor,
        energy=sensor if energy else None,
    )


class FakeProbe:
    """Sensors that change every `update_s`; calls take `cost_s`; `broken` maps a uid to what its calls raise."""

    name = "fake"

    def __init__(
        self,
        clock: FakeClock,
        devices: Iterable[DeviceInfo],
        *,
        cost_s: float = 0.001,
        update_s: float = 0.02,
        call_cpu_s: float = 0.0,
    ) -> None:
        self.clock = clock
        self.devices = tuple(devices)
        self.cost_s = cost_s
        self.update_s = update_s
        self.call_cpu_s = call_cpu_s
        self.cpu_s = 0.0
        self.broken: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.called_ns: list[int] = []

    def discover(self) -> Discovery:
        return Discovery(devices=self.devices)

    def watch(self, pids: Iterable[int]) -> Discovery:
        return Discovery(devices=tuple(board(f"process:{pid}", energy=False) for pid in pids))

    def sample(self, uid: str) -> Reading:
        self.calls.append(uid)
        before_ns = self.clock.monotonic_ns()
        self.called_ns.append(before_ns)
        self.clock.advance(self.cost_s)
        self.cpu_s += self.call_cpu_s
        if uid in self.broken:
            raise self.broken[uid]
        step = before_ns // round(self.update_s * S)
        return Reading(
            uid=uid, before_ns=before_ns, after_ns=self.clock.monotonic_ns(), power_w=100.0 + step % 7, energy_j=float(step)
        )

    def close(self) -> None:
        pass


class Harness:
    """Drives a `Child` on fake time: commands come at set times, `close` at the end."""

    def __init__(self, probe: FakeProbe, seconds: float, period_s: float = 0.1, commands: dict[float, str] | None = None) -> None:
        self.lines: list[tuple[int, wire.Line]] = []
        self.clock = probe.clock
        self.start_ns = self.clock.monotonic_ns()
        self.commands = sorted({**(commands or {}), seconds: wire.CLOSE}.items())
        rng = random.Random(7)
        child = Child(
            probe,
            period_s,
            send=self._send,
            next_command=self._next_command,
            clock=self.clock,
            rng=rng,
            cpu_s=lambda: probe.cpu_s,
        )
        child.run()

    def _send(self, line: wire.Line) -> None:
        self.lines.append((self.clock.monotonic_ns(), line))

    def _next_command(self, timeout_s: float) -> str | None:
        now_s = (self.clock.monotonic_ns() - self.start_ns) / S
        due_s = self.commands[0][0]
        if due_s <= now_s + timeout_s:
            self.clock.advance(max(due_s - now_s, 0.0))
            return self.commands.pop(0)[1]
        self.clock.advance(timeout_s)
        return None

    def discoveries(self) -> list[Discovery]:
        return [line.discovery for _, line in self.lines if line.discovery is not None]

    def ticks(self) -> list[wire.Line]:
        nothing = wire.Line()
        return [line for _, line in self.lines if replace(line, readings=()) == nothing]

    def readings(self, uid: str) -> list[Reading]:
        return [reading for line in self.ticks() for reading in line.readings if reading.uid == uid]


class TestSchedule:
    @given(st.integers(0, 10**6), st.floats(0.01, 5.0), st.lists(st.floats(0, 3.0), max_size=50))
    def test_ticks_stay_on_the_grid_and_are_never_taken_twice(self, seed: int, period_s: float, late: list[float]) -> None:
        schedule = Schedule(0, period_s, random.Random(seed))
        period_ns = round(period_s * S)
        now_ns, last_tick = 0, 0
        for lateness in late:
            due_ns = schedule.next_ns(now_ns)
            tick = round(due_ns / period_ns)
            assert abs(due_ns - tick * period_ns) <= JITTER * period_ns + 1
            assert tick > last_tick
            assert due_ns >= now_ns - JITTER * period_ns - 1
            last_tick = tick
            now_ns = max(now_ns, due_ns) + round(lateness * S)

    def test_it_does_not_drift_or_bunch(self) -> None:
        schedule = Schedule(0, 0.1, random.Random(1))
        now_ns = 0
        for _ in range(1000):
            now_ns = schedule.next_ns(now_ns)
        assert now_ns == pytest.approx(100 * S, abs=0.1 * JITTER * S + 1)

    def test_polls_do_not_lock_onto_the_period(self) -> None:
        schedule = Schedule(0, 0.1, random.Random(1))
        now_ns, phases = 0, set()
        for _ in range(100):
            now_ns = schedule.next_ns(now_ns)
            phases.add((now_ns // 1_000_000) % 100)
        assert len(phases) > 10


def test_discovery_comes_before_any_reading() -> None:
    probe = FakeProbe(FakeClock(), [board("a"), board("b")])
    harness = Harness(probe, 1.0)
    assert [d.uid for d in harness.discoveries()[0].devices] == ["a", "b"]
    assert harness.lines[0][1].discovery is not None


def test_one_line_a_tick_with_every_device() -> None:
    harness = Harness(FakeProbe(FakeClock(), [board("a"), board("b")]), 5.0)
    assert len(harness.readings("a")) == pytest.approx(50, abs=3)
    assert all([r.uid for r in line.readings] == ["a", "b"] for line in harness.ticks())


def test_a_slow_device_skips_ticks() -> None:
    harness = Harness(FakeProbe(FakeClock(), [board("a")], cost_s=0.25), 10.0)
    assert len(harness.readings("a")) < 45
    stamps = [r.before_ns for r in harness.readings("a")]
    assert all(b - a >= 0.25 * S for a, b in itertools.pairwise(stamps))


def test_commands_are_obeyed_even_when_there_is_never_time_to_wait() -> None:
    harness = Harness(FakeProbe(FakeClock(), [board("a")], cost_s=0.5), 3.0)
    assert harness.clock.monotonic_ns() - harness.start_ns < 6 * S


@pytest.mark.parametrize("error", [ProbeError("GPU is lost", hint="reset it"), ValueError("boom"), OSError("gone")])
def test_a_failing_device_is_reported_once_and_the_others_go_on(error: Exception) -> None:
    probe = FakeProbe(FakeClock(), [board("a"), board("b", name="Fake 2")])
    probe.broken["a"] = error
    harness = Harness(probe, 5.0)
    assert harness.readings("a") == []
    assert len(harness.readings("b")) > 40
    problems = harness.discoveries()[-1].problems
    assert [(p.subject, str(error) in p.problem) for p in problems] == [("a", True)]
    assert all(p.fix for p in problems)


def test_a_tick_in_which_all_fail_is_still_a_sign_of_life() -> None:
    probe = FakeProbe(FakeClock(), [board("a")])
    probe.broken["a"] = ProbeError("lost")
    assert len(Harness(probe, 5.0).ticks()) > 40


def test_watched_trees_are_announced_and_sampled() -> None:
    harness = Harness(FakeProbe(FakeClock(), [board("a")]), 5.0, commands={2.0: "watch 41 42"})
    last = next(line for _, line in reversed(harness.lines) if line.discovery is not None)
    assert last.watched == 1
    assert last.discovery is not None
    assert [d.uid for d in last.discovery.devices] == ["a", "process:41", "process:42"]
    first = harness.readings("process:42")[0]
    assert (first.before_ns - harness.start_ns) / S == pytest.approx(2.0, abs=0.25)


def test_a_domain_that_nobody_may_read_is_listed_but_not_polled() -> None:
    locked = DeviceInfo(
        uid="rapl:package-0",
        probe="cpu",
        vendor="intel",
        name="x",
        index=0,
        scope="cpu_package",
        power_reason="Permission denied",
    )
    probe = FakeProbe(FakeClock(), [locked])
    harness = Harness(probe, 2.0)
    assert probe.calls == []
    assert harness.discoveries()[-1].devices == (locked,)


class TestRate:
    @given(st.floats(0.01, 5), st.floats(0, 1), st.none() | st.floats(0.001, 5))
    def test_never_faster_than_asked_nor_than_the_calls_cost(self, asked_s: float, cpu_s: float, update_s: float | None) -> None:
        period_s = poll_period_s(asked_s, cpu_s, update_s)
        assert period_s >= asked_s
        assert period_s == pytest.approx(SLOWEST_S) or cpu_s / period_s <= MOST_CORE_SHARE * 1.000001
        assert period_s <= max(asked_s, SLOWEST_S)

    @given(st.floats(0.01, 5), st.none() | st.floats(0.001, 0.99))
    def test_cheap_calls_see_each_value_twice_where_the_asked_rate_does(self, asked_s: float, update_s: float | None) -> None:
        period_s = poll_period_s(asked_s, 0.0, update_s)
        assert period_s <= max(asked_s, SLOWEST_FOR_UPDATES_S)
        assert update_s is None or period_s <= max(asked_s, update_s / 2)

    @pytest.mark.parametrize(
        ("call_cpu_s", "update_s", "expected_s"),
        [(0.0, 0.02, 0.1), (0.004, 0.02, 0.8), (0.0, 0.3, 0.15), (0.0, 1000.0, 0.1), (0.2, 0.02, SLOWEST_S)],
    )
    def test_the_child_picks_its_rate_from_what_it_measured(self, call_cpu_s: float, update_s: float, expected_s: float) -> None:
        """Two devices: a tick costs two calls. A value that stands still tells no period, and the asked one stays."""
        probe = FakeProbe(FakeClock(), [board("a"), board("b")], update_s=update_s, call_cpu_s=call_cpu_s)
        harness = Harness(probe, 100.0)
        told = [line.period_s for _, line in harness.lines if line.period_s is not None]
        assert told == ([] if expected_s == 0.1 else [pytest.approx(expected_s, rel=0.05)])
        late = [r.before_ns / S for r in harness.readings("a") if r.before_ns - harness.start_ns > 5 * S]
        assert (late[-1] - late[0]) / (len(late) - 1) == pytest.approx(expected_s, rel=0.06)

    def test_what_is_published_stays_where_nothing_moved(self) -> None:
        sensor = SensorInfo(api="fake", unit="W", update_period_s=0.1)
        device = structs.replace(board("a", energy=False), power=sensor)
        harness = Harness(FakeProbe(FakeClock(), [device], update_s=1000.0), 3.0)
        power = harness.discoveries()[-1].devices[0].power
        assert power is not None
        assert power.update_period_s == 0.1
        assert power.call_cost_s is not None


class JumpyClock(FakeClock):
    """A wall clock that is set back by an hour now and again, as by a time server."""

    def wall_ns(self) -> int:
        return super().wall_ns() - 3600 * S * (self.monotonic_ns() // (30 * S))


def test_a_wall_clock_set_back_moves_no_stamp() -> None:
    harness = Harness(FakeProbe(JumpyClock(), [board("a")]), 60.0)
    stamps = [r.before_ns for r in harness.readings("a")]
    assert stamps == sorted(stamps)
    assert (stamps[-1] - stamps[0]) / S == pytest.approx(60, abs=0.5)


def test_raw_values_are_told_when_asked_for() -> None:
    class RawProbe(FakeProbe):
        def raw(self, uid: str) -> tuple[wire.RawValue, ...]:
            if uid == "b":
                raise ProbeError("lost")
            return (wire.RawValue(quantity="power_w", api="fake", unit="mW", value=100_000.0),)

    harness = Harness(RawProbe(FakeClock(), [board("a"), board("b")]), 3.0, commands={2.0: "raw"})
    (told,) = [line.raw for _, line in harness.lines if line.raw is not None]
    assert [value.value for value in told["a"]] == [100_000.0]
    assert told["b"] == ()
    assert harness.discoveries()[-1].problems[0].subject == "b"
    (nothing,) = [
        line.raw for _, line in Harness(FakeProbe(FakeClock(), [board("a")]), 3.0, commands={2.0: "raw"}).lines if line.raw
    ]
    assert nothing == {"a": ()}


class TestSensorTiming:
    def test_cost_and_update_period_are_measured(self) -> None:
        probe = FakeProbe(FakeClock(), [board("a"), board("b")], cost_s=0.001, update_s=0.05)
        harness = Harness(probe, 3.0)
        for device in harness.discoveries()[-1].devices:
            assert device.power is not None
            assert device.energy is not None
            assert device.power.call_cost_s == pytest.approx(0.001, rel=0.01)
            assert device.energy.update_period_s == pytest.approx(0.05, abs=0.012)

    def test_one_board_stands_for_its_model(self) -> None:
        probe = FakeProbe(FakeClock(), [board("a"), board("b")], update_s=0.05)
        harness = Harness(probe, 3.0)
        assert probe.calls.count("b") == len(harness.readings("b"))
        assert probe.calls.count("a") > probe.calls.count("b") + ENOUGH_CALLS

    def test_polls_of_the_burst_are_not_readings(self) -> None:
        harness = Harness(FakeProbe(FakeClock(), [board("a")], update_s=0.05), 1.0)
        assert len(harness.readings("a")) == pytest.approx(10, abs=3)

    def test_a_frozen_sensor_has_no_update_period(self) -> None:
        harness = Harness(FakeProbe(FakeClock(), [board("a")], update_s=1000.0), 3.0)
        (device,) = harness.discoveries()[-1].devices
        assert device.power is not None
        assert device.power.update_period_s is None
        assert device.power.call_cost_s == pytest.approx(0.001, rel=0.01)

    def test_the_burst_ends(self) -> None:
        probe = FakeProbe(FakeClock(), [board("a")], update_s=1000.0)
        Harness(probe, BURST_S + 1)
        during = len(probe.calls)
        longer = FakeProbe(FakeClock(), [board("a")], update_s=1000.0)
        Harness(longer, BURST_S + 2)
        assert len(longer.calls) - during == pytest.approx(10, abs=3)

    def test_a_slow_driver_is_not_kept_busy(self) -> None:
        probe = FakeProbe(FakeClock(), [board("a")], cost_s=0.02, update_s=0.05)
        Harness(probe, 1.0, period_s=0.5)
        assert len(probe.calls) * probe.cost_s < 0.3

    @pytest.mark.parametrize("update_s", [0.02, 0.3, 1000.0])
    @pytest.mark.parametrize("broken", [False, True])
    @pytest.mark.parametrize("devices", [[], [board("a"), board("b", name="Fake 2")]])
    def test_it_says_once_when_the_burst_is_over(self, update_s: float, broken: bool, devices: list[DeviceInfo]) -> None:
        probe = FakeProbe(FakeClock(), devices, update_s=update_s)
        probe.broken |= {"a": ProbeError("lost")} if broken else {}
        harness = Harness(probe, 6.0)
        (over_ns,) = [at_ns for at_ns, line in harness.lines if line.settled]
        assert over_ns - harness.start_ns <= (BURST_S + 0.2) * S
        late_ticks = [at_ns for at_ns, line in harness.lines if at_ns > over_ns and line in harness.ticks()]
        late_calls = [at_ns for at_ns in probe.called_ns if at_ns > over_ns]
        assert len(late_calls) == len(devices) * len(late_ticks)
        assert all(at_ns <= over_ns for at_ns, line in harness.lines if line.period_s is not None)

    def test_a_device_that_fails_in_the_burst_is_let_go(self) -> None:
        probe = FakeProbe(FakeClock(), [board("a")])
        probe.broken["a"] = ProbeError("lost")
        harness = Harness(probe, 3.0)
        assert len(probe.calls) == pytest.approx(len(harness.ticks()) + 1, abs=2)

    def test_nothing_to_time_changes_nothing(self) -> None:
        device = board("a")
        timing = SensorTiming([device])
        assert timing.applied(device) == device
