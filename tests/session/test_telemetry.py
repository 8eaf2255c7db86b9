"""The recorder on hand-written streams and a fake clock: what a window holds, what is forgotten, what ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.clock import FakeClock
from bench.records import Reading, Window
from bench.session.telemetry import SETTLE_S, Baselines, Recorder
from tests.session.fakes import FakeProbes, FakeStream, a_board

S = 1_000_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def probes(clock: FakeClock) -> FakeProbes:
    return FakeProbes(clock, [], devices=tuple(a_board(index) for index in range(8)))


def times(readings: tuple[Reading, ...], uid: str = "GPU-0") -> list[int]:
    return [reading.before_ns for reading in readings if reading.uid == uid]


class TestSettling:
    @pytest.mark.parametrize(("burst_s", "waited_s"), [(0.0, 0.0), (1.0, 1.0), (60.0, SETTLE_S)])
    def test_a_window_begins_when_the_sensors_have_been_timed_or_at_the_deadline(
        self, clock: FakeClock, probes: FakeProbes, burst_s: float, waited_s: float
    ) -> None:
        probes.settles_s = burst_s
        start_ns = clock.monotonic_ns()
        with Recorder(probes, clock=clock) as recorder:
            recorder.settle()
            assert (clock.monotonic_ns() - start_ns) / S == pytest.approx(waited_s, abs=0.06)

    def test_a_probe_that_has_ended_is_not_waited_for(self, clock: FakeClock, probes: FakeProbes) -> None:
        probes.settles_s = 60.0
        start_ns = clock.monotonic_ns()
        with Recorder(probes, clock=clock) as recorder:
            probes.streams[0].end = "the driver is gone"
            recorder.settle()
        assert clock.monotonic_ns() == start_ns


class TestWindows:
    def test_both_edges_of_a_rest_lie_between_readings(self, clock: FakeClock, probes: FakeProbes) -> None:
        with Recorder(probes, clock=clock) as recorder:
            window = recorder.rest(5.03)
            readings = recorder.telemetry().readings
        assert window.seconds == pytest.approx(5.03)
        for board in range(8):
            at = times(readings, f"GPU-{board}")
            assert at[0] <= window.t0_ns
            assert sum(t >= window.t1_ns for t in at) >= 3

    def test_a_board_that_falls_silent_is_not_waited_for_forever(self, clock: FakeClock, probes: FakeProbes) -> None:
        with Recorder(probes, clock=clock) as recorder:
            recorder.rest(1.0)
            probes.streams[0].stop()
            end_ns = clock.monotonic_ns()
            recorder.read_past(Window(t0_ns=end_ns - S, t1_ns=end_ns))
            assert clock.monotonic_ns() - end_ns <= 2.1 * S

    def test_a_board_that_was_lost_long_before_is_not_waited_for(self, clock: FakeClock, probes: FakeProbes) -> None:
        with Recorder(probes, clock=clock) as recorder:
            probes.streams[0].stop()
            clock.advance(60)
            window = Window(t0_ns=clock.monotonic_ns() - S, t1_ns=clock.monotonic_ns())
            assert recorder.read_past(window) == window
            assert clock.monotonic_ns() == window.t1_ns


class TestMemory:
    def test_a_long_night_keeps_the_readings_of_one_trial(self, clock: FakeClock, probes: FakeProbes) -> None:
        """Eight boards at 10 Hz are 3.5 million readings in twelve hours; a trial of a minute needs 5,000 of them."""
        most = 0
        with Recorder(probes, clock=clock) as recorder:
            for _ in range(12):
                since_ns = clock.monotonic_ns()
                recorder.forget(since_ns)
                for _ in range(12):
                    clock.advance(5.0)
                    recorder.collect()
                cut = recorder.cut(recorder.discovery().devices, since_ns, Baselines())
                assert times(cut.readings)[0] <= since_ns
                assert len(times(cut.readings)) >= 600
                most = max(most, len(recorder.telemetry().readings))
        assert most <= 8 * 10 * (60 + 3)

    def test_baselines_outlive_what_is_forgotten(self, clock: FakeClock, probes: FakeProbes) -> None:
        with Recorder(probes, clock=clock) as recorder:
            idle = recorder.rest(3.0)
            clock.advance(600)
            resident = recorder.rest(3.0)
            baselines = recorder.baselines(idle, resident)
            clock.advance(600)
            recorder.forget(clock.monotonic_ns())
            cut = recorder.cut((a_board(0),), clock.monotonic_ns(), baselines)
        assert (cut.idle, cut.resident) == (idle, resident)
        for window in (idle, resident):
            inside = [t for t in times(cut.idle_readings) if window.t0_ns <= t < window.t1_ns]
            assert len(inside) == 30
        assert max(times(cut.idle_readings)) < resident.t1_ns + 3 * S
        assert {reading.uid for reading in cut.idle_readings} == {"GPU-0"}

    def test_what_is_taken_is_not_kept(self, clock: FakeClock, probes: FakeProbes) -> None:
        with Recorder(probes, clock=clock) as recorder:
            clock.advance(1.0)
            first = recorder.take()
            clock.advance(1.0)
            second = recorder.take()
            assert recorder.telemetry().readings == ()
        assert (len(times(first)), len(times(second))) == (11, 10)
        assert times(first)[-1] < times(second)[0]


class TestSpill:
    def test_a_killed_trial_keeps_its_readings(self, clock: FakeClock, probes: FakeProbes, tmp_path: Path) -> None:
        with Recorder(probes, clock=clock) as recorder:
            recorder.spill_to(tmp_path / "telemetry.jsonl")
            clock.advance(0.5)
            recorder.collect()
            recorder.spill_to(None)
            clock.advance(0.5)
            recorder.collect()
        assert len((tmp_path / "telemetry.jsonl").read_bytes().splitlines()) == 8 * 6

    def test_a_disk_that_is_full_costs_nothing_that_is_in_memory(
        self, clock: FakeClock, probes: FakeProbes, tmp_path: Path
    ) -> None:
        with Recorder(probes, clock=clock) as recorder:
            recorder.spill_to(tmp_path)  # a folder: every write fails
            clock.advance(0.5)
            assert len(recorder.telemetry().readings) == 8 * 6


class TestStreams:
    def test_one_that_ends_is_noted_once_with_its_moment(self, clock: FakeClock, probes: FakeProbes) -> None:
        with Recorder(probes, clock=clock) as recorder:
            clock.advance(1.0)
            probes.streams[0].end = "SIGSEGV"
            recorder.collect()
            at_ns = clock.monotonic_ns()
            clock.advance(5.0)
            (end,) = recorder.telemetry().ends
        assert (end.probe, end.reason, end.at_ns) == ("fake", "SIGSEGV", at_ns)

    def test_those_that_were_opened_are_closed_when_the_next_can_not_be(self, clock: FakeClock) -> None:
        probes = Interrupted(clock, [])
        with pytest.raises(KeyboardInterrupt), Recorder(probes, clock=clock):
            raise AssertionError("it was opened")
        assert [stream.closed for stream in probes.streams] == [True, True]

    @pytest.mark.parametrize(
        ("uids", "expected"), [({"GPU-0"}, 100.0), ({"GPU-0", "GPU-7"}, 200.0), ({"GPU-0", "gone"}, None), (set(), None)]
    )
    def test_power_for_the_terminal(self, clock: FakeClock, probes: FakeProbes, uids: set[str], expected: float | None) -> None:
        with Recorder(probes, clock=clock) as recorder:
            recorder.rest(1.0)
            assert recorder.power_w(uids) == expected


class Interrupted(FakeProbes):
    """Three probes; a person gives up while the last one is opened."""

    def names(self) -> tuple[str, ...]:
        return ("a", "b", "last")

    def open(self, name: str, period_s: float) -> FakeStream:
        if name == "last":
            raise KeyboardInterrupt
        return super().open(name, period_s)
