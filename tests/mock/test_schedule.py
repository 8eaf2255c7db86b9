"""Streams are written at absolute times, in order, whatever happened before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from bench.mock import schedule
from bench.mock.schedule import COALESCE_NS, Alarm, LoopAlarm, Schedule, TimerfdAlarm, new_alarm


class HandAlarm:
    """An alarm that the test rings."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.at_ns: int | None = None

    def set(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def close(self) -> None:
        self.at_ns = None


class FakeStream:
    def __init__(self, dues: list[int], written: list[tuple[int, int]], name: int = 0) -> None:
        self.dues = dues
        self.written = written
        self.name = name

    def write_due(self, due_ns: int) -> int | None:
        self.written.append((due_ns, self.name))
        self.dues = self.dues[1:]
        return self.dues[0] if self.dues else None


class Bench:
    """A schedule with a clock that the test turns."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.alarm: HandAlarm
        self.written: list[tuple[int, int]] = []
        self.schedule = Schedule(self._new)

    def _new(self, ring: Callable[[], None]) -> Alarm:
        self.alarm = HandAlarm(ring)
        return self.alarm

    def add(self, dues: list[int], name: int = 0) -> None:
        self.schedule.add(dues[0], FakeStream(dues, self.written, name))

    def turn_to(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.alarm.ring()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    monkeypatch.setattr(schedule, "now_ns", lambda: made.now_ns)
    return made


def test_the_alarm_is_set_for_the_earliest(bench: Bench) -> None:
    bench.add([900_000])
    assert bench.alarm.at_ns == 900_000
    bench.add([700_000])
    assert bench.alarm.at_ns == 700_000
    bench.add([800_000])
    assert bench.alarm.at_ns == 700_000


def test_due_times_do_not_move_when_a_round_comes_late(bench: Bench) -> None:
    bench.add([100, 200, 300, 10_000_000])
    bench.turn_to(5_000_000)
    assert [due for due, _ in bench.written] == [100, 200, 300]
    assert bench.alarm.at_ns == 10_000_000


def test_nothing_is_written_early(bench: Bench) -> None:
    bench.add([1_000_000])
    bench.turn_to(999_999)
    assert bench.written == []
    bench.turn_to(1_000_000)
    assert len(bench.written) == 1


def test_streams_that_are_due_soon_share_the_next_round(bench: Bench) -> None:
    bench.add([100, 200], 1)
    bench.add([100, 300], 2)
    bench.turn_to(150)
    assert bench.alarm.at_ns == 150 + COALESCE_NS


def test_a_stream_added_from_within_a_round_gets_its_turn(bench: Bench) -> None:
    class Adds(FakeStream):
        def write_due(self, due_ns: int) -> int | None:
            bench.add([due_ns + 5_000_000], 7)
            return super().write_due(due_ns)

    bench.schedule.add(100, Adds([100], bench.written))
    bench.turn_to(100)
    assert bench.alarm.at_ns == 5_000_100


def test_a_stream_that_fails_does_not_stop_the_others(bench: Bench) -> None:
    class Fails(FakeStream):
        def write_due(self, due_ns: int) -> int | None:
            raise OSError("gone")

    bench.schedule.add(100, Fails([100], bench.written))
    bench.add([200], 2)
    with pytest.raises(OSError, match="gone"):
        bench.turn_to(300)
    assert bench.alarm.at_ns == 300
    bench.turn_to(300)
    assert bench.written == [(200, 2)]


def test_nothing_is_written_after_the_end(bench: Bench) -> None:
    bench.add([100])
    bench.schedule.close()
    bench.alarm.ring()
    assert bench.written == []


@given(st.lists(st.lists(st.integers(0, 50_000_000), min_size=1, max_size=8).map(sorted), min_size=1, max_size=10))
def test_everything_is_written_once_and_in_order(streams: list[list[int]]) -> None:
    made = Bench()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "now_ns", lambda: made.now_ns)
        for name, dues in enumerate(streams):
            made.add(dues, name)
        while made.alarm.at_ns is not None and len(made.written) < sum(map(len, streams)):
            made.turn_to(max(made.now_ns, made.alarm.at_ns))
    assert sorted(made.written) == sorted((due, name) for name, dues in enumerate(streams) for due in dues)
    for name, dues in enumerate(streams):
        assert [due for due, written in made.written if written == name] == dues


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("kind", ["loop", "finest"])
def test_real_alarms_ring_and_can_be_set_anew(new_loop: Callable[[], asyncio.AbstractEventLoop], kind: str) -> None:
    loop = new_loop()
    rung: list[int] = []

    def ring() -> None:
        rung.append(schedule.now_ns())
        loop.stop()

    alarm = LoopAlarm(loop, ring) if kind == "loop" else new_alarm(loop, ring)
    now = schedule.now_ns()
    due_ns = now + 5_000_000
    alarm.set(now + 60_000_000_000)
    alarm.set(due_ns)
    loop.run_forever()
    early_ns = 0 if isinstance(alarm, TimerfdAlarm) else 1_500_000  # uvloop rounds to its millisecond
    assert rung[0] >= due_ns - early_ns
    alarm.close()
    loop.close()
