"""A recording of a day keeps the readings of minutes."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest
from msgspec.structs import replace

from bench.clock import FakeClock
from bench.lab.power import STRETCH_S, Stretches, record_command
from bench.session.telemetry import Recorder
from bench.units import NS_PER_S
from tests.session.fakes import FakeProbes, a_board


@pytest.mark.parametrize("hours", [0.1, 0.25, 6.0])
def test_memory_does_not_grow_with_the_time_and_no_joule_is_lost(hours: float) -> None:
    clock = FakeClock()
    devices = tuple(replace(a_board(i), board=f"GPU-{i}") for i in range(2))
    with Recorder(FakeProbes(clock, [], devices=devices), period_s=1.0, clock=clock) as recorder:
        recorder.settle()
        t0_ns = clock.monotonic_ns()
        stretches, most = Stretches(recorder, t0_ns), 0
        while clock.monotonic_ns() < t0_ns + hours * 3600 * NS_PER_S:
            clock.advance(5.0)
            stretches.collect(clock.monotonic_ns())
            most = max(most, len(recorder.telemetry().readings))
        t1_ns = clock.monotonic_ns()
        found = stretches.end(t1_ns)
    assert most <= 2 * (STRETCH_S + 90)
    assert (found.window.t0_ns, found.window.t1_ns) == (t0_ns, t1_ns)
    for device in found.devices:
        assert device.joules.energy_j == pytest.approx(100.0 * found.window.seconds)
        assert device.joules.reason is None
    (scope,) = found.scopes
    assert scope.joules.energy_j == pytest.approx(200.0 * found.window.seconds)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_as_the_command_starts_is_for_the_command(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """On a busy machine the command runs before its starter has got so far. It may not be left behind, nor its energy lost."""
    real = subprocess.Popen

    def slow(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        process = real(*args, **kwargs)
        signal.raise_signal(number)
        return process

    monkeypatch.setattr(subprocess, "Popen", slow)
    with Recorder(FakeProbes(FakeClock(), [])) as recorder:
        found = record_command(["sh", "-c", "trap 'exit 9' INT TERM; while :; do sleep 0.05; done"], recorder)
    assert found.exit_code in (9, 128 + number)  # 9 where the shell had set its trap by then
