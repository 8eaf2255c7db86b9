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
