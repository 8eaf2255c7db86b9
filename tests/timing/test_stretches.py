"""A long recording cut into stretches says what it says in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from bench.records import Telemetry, Window
from bench.timing.stretches import Recorded, joined, recorded
from tests.timing.builders import ENERGY, POWER, make_device, poll, telemetry, window_ms

CUTS = (0, 20_000, 31_000, 60_000)


def seen() -> Telemetry:
    """A board without a counter and one with, drawing 300 W that wave."""
    boards = [
        make_device("a", power=replace(POWER, gain_error=0.05), board="a"),
        make_device("b", energy=replace(ENERGY, gain_error=None), board="b"),
    ]
    waves = poll(-8, 68, 0.1, uid="a", power_w=lambda t: 300.0 + 50 * np.sin(t), utilisation=0.5)
    counts = poll(-8, 68, 0.1, uid="b", power_w=lambda _: 100.0, energy_j=lambda t: 5000 + 100 * t)
    return telemetry(boards, (*waves, *counts))


def in_stretches(told: Telemetry, cuts: Sequence[int] = CUTS) -> Recorded:
    windows = [window_ms(a, b) for a, b in pairwise(cuts)]
    return joined([recorded(told, window) for window in windows])


def test_joules_add_up_and_the_rest_is_that_of_one_piece() -> None:
    whole, cut = recorded(seen(), window_ms(0, 60_000)), in_stretches(seen())
    assert cut.window == whole.window
    for one, other in zip(whole.devices, cut.devices, strict=True):
        assert one.joules.energy_j is not None
        assert other.joules.energy_j == pytest.approx(one.joules.energy_j, rel=1e-6)
        assert other.mean_w == pytest.approx(one.mean_w, rel=1e-6)
        assert (other.least_w, other.most_w, other.readings) == (one.least_w, one.most_w, one.readings)
        assert (other.method, other.counted) == (one.method, one.counted)
        assert other.coverage == pytest.approx(one.coverage)
        assert other.utilisation == pytest.approx(one.utilisation)
        assert other.other_j == pytest.approx(one.other_j)
    for scope, same in zip(whole.scopes, cut.scopes, strict=True):
        assert same.joules.energy_j == pytest.approx(scope.joules.energy_j, rel=1e-6)


def test_an_interval_is_never_narrower_than_in_one_piece() -> None:
    whole, cut = recorded(seen(), window_ms(0, 60_000)).devices[0].joules, in_stretches(seen()).devices[0].joules
    assert whole.low_j is not None
    assert whole.high_j is not None
    assert cut.low_j == pytest.approx(whole.low_j, rel=0.001)
    assert cut.high_j == pytest.approx(whole.high_j, rel=0.001)
    assert in_stretches(seen()).devices[1].joules.low_j is None


def test_what_is_missing_in_one_stretch_is_missing_in_all_and_told_once() -> None:
    told = seen()
    readings = tuple(r for r in told.readings if r.uid != "a" or not 22e9 < r.before_ns < 28e9)
    broken, good = in_stretches(replace(told, readings=readings)).devices
    assert broken.joules.energy_j is None
    assert "power_coverage" in (broken.joules.reason or "")
    assert broken.coverage == pytest.approx(1 - 6 / 60, abs=0.01)
    assert good.joules.energy_j == pytest.approx(6000)
    (scope,) = in_stretches(replace(told, readings=readings)).scopes
    assert scope.joules.energy_j is None


def test_a_fault_of_every_stretch_is_told_once() -> None:
    told = telemetry([make_device(power=replace(POWER, averaging_window_s=0.02))], poll(-8, 68, 0.1, power_w=lambda _: 300.0))
    assert [fault.code for fault in in_stretches(told).devices[0].faults] == ["part_time_sensor"]


def test_a_device_that_came_later_has_no_energy() -> None:
    late = seen()
    first = replace(late, devices=late.devices[:1])
    found = joined([recorded(first, window_ms(0, 20_000)), recorded(late, window_ms(20_000, 60_000))])
    a, b = found.devices
    assert a.joules.energy_j is not None
    assert b.joules.energy_j is None
    assert b.joules.reason == "it was not there from the start"


def test_one_stretch_is_itself() -> None:
    only = recorded(seen(), Window(t0_ns=0, t1_ns=10**10))
    assert joined([only]) is only
