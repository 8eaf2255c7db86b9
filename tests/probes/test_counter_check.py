"""A counter beside the integral of power, on machines that have other things to do."""

from __future__ import annotations

import pytest

from bench.clock import FakeClock
from bench.probes import counter_check
from bench.units import NS_PER_S


class Busy(FakeClock):
    """However short a nap is meant to be, a second passes."""

    def sleep(self, seconds: float) -> None:
        super().sleep(1.0)


@pytest.mark.parametrize("clock", [FakeClock(), Busy()])
@pytest.mark.parametrize(
    ("factor", "refused", "warned"), [(1.0, False, False), (1.5, False, True), (1000.0, True, False), (0.0, True, False)]
)
def test_the_verdict_does_not_depend_on_how_busy_the_machine_is(
    clock: FakeClock, factor: float, refused: bool, warned: bool
) -> None:
    """Few readings are enough where they are far apart."""

    def counter() -> float:
        return 1000.0 + factor * 200.0 * clock.monotonic_ns() / NS_PER_S

    verdict = counter_check.check({"card": (counter, lambda: 200.0)}, clock, 0.5)["card"]
    assert verdict.ratio == pytest.approx(factor)
    assert (verdict.refused is not None, verdict.warning is not None) == (refused, warned)


class Stolen(FakeClock):
    """Another program takes the core for `stolen_s` between some readings and their stamps."""

    def __init__(self, stolen_s: float, at: tuple[int, ...]) -> None:
        super().__init__()
        self.stolen_s, self.at, self.calls = stolen_s, at, 0

    def reading(self, value: float) -> float:
        self.calls += 1
        if self.calls in self.at:
            self.advance(self.stolen_s)
        return value


@pytest.mark.parametrize("renews_s", [0.001, 0.05, 0.1])
@pytest.mark.parametrize("phase_s", [0.0, 0.013, 0.031, 0.077])
@pytest.mark.parametrize("at", [(), (1,), (20,), (1, 20)])
def test_a_good_counter_is_not_accused_of_the_machine_s_load(renews_s: float, phase_s: float, at: tuple[int, ...]) -> None:
    """A value that is as old as its period, and a stamp that came 0.15 s late, explain a rise that is too small or too large."""
    clock = Stolen(0.15, at)

    def counter() -> float:
        renewed = (clock.monotonic_ns() / NS_PER_S + phase_s) // renews_s
        return clock.reading(1000.0 + 200.0 * renewed * renews_s)

    verdict = counter_check.check({"card": (counter, lambda: 200.0)}, clock, 0.5)["card"]
    assert (verdict.refused, verdict.warning) == (None, None)


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_what_timing_cannot_explain_is_told_on_a_busy_machine_too(factor: float) -> None:
    clock = Stolen(0.05, (1, 20))

    def counter() -> float:
        return clock.reading(1000.0 + factor * 200.0 * (clock.monotonic_ns() / NS_PER_S // 0.05) * 0.05)

    assert counter_check.check({"card": (counter, lambda: 200.0)}, clock, 0.5)["card"].warning is not None
