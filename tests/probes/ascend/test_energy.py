"""Joules of Ascend cards through the real path: ctypes on the compiled DCMI, under the real child, host and recorder.

There is no counter: power is polled and integrated. The same series on exact stamps is in tests/timing/test_energy_cases.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.clock import SYSTEM
from bench.probes.host import ChildProbeHost
from bench.records import Telemetry, Window
from bench.session.telemetry import Recorder
from bench.timing.recorded import recorded_devices, recorded_scopes
from tests.fakes.library import Value
from tests.probes.ascend import host
from tests.probes.trees import make_roots, roots_env

SECONDS = 2.0
CASE_S = 600.0
STATE: dict[str, Value] = {**host.A3, "1.power": 1788, "2.name": "910B2", "2.power": 2145, "2.mcu": 3400}
"""A card of two dies, each of which answers with the card's 178.8 W, and a 910B2 at 214.5 W whose card says 340 W."""


@pytest.fixture(scope="module")
def seen(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Telemetry, Window]:
    folder = tmp_path_factory.mktemp("recorded")
    fake = host.fake(driver, folder)
    fake.show(3, STATE)
    env = {**roots_env(make_roots(folder)), **fake.env(), "BENCH_PROBES": "ascend"}
    with Recorder(ChildProbeHost(env, deadline_s=30)) as recorder:
        recorder.settle(30)
        recorder.rest(0.5)
        begin_ns = SYSTEM.monotonic_ns()
        recorder.rest(SECONDS)
        end_ns = SYSTEM.monotonic_ns()
        recorder.rest(0.5)
        telemetry = recorder.telemetry()
    assert telemetry.ends == ()
    return telemetry, Window(t0_ns=begin_ns, t1_ns=end_ns)


def mean_w(joules: float | None, window: Window) -> float:
    assert joules is not None
    return joules / ((window.t1_ns - window.t0_ns) / 1e9)


def test_the_row_of_the_card_is_never_added(seen: tuple[Telemetry, Window]) -> None:
    """Raw 2145 for 600 s is 128,700 J, whatever the card's own sensor says."""
    (found,) = [one for one in recorded_devices(*seen) if one.device.name == "Ascend 910B2"]
    assert (found.method, found.device.energy) == ("integral", None)
    assert mean_w(found.joules.energy_j, seen[1]) * CASE_S == pytest.approx(128_700, rel=1e-6)


def test_two_dies_are_not_added_twice(seen: tuple[Telemetry, Window]) -> None:
    dies = [one for one in recorded_devices(*seen) if one.device.name == "Ascend910"]
    assert [mean_w(one.joules.energy_j, seen[1]) for one in dies] == [pytest.approx(178.8, rel=1e-6)]


def test_the_sum_is_that_of_the_cards(seen: tuple[Telemetry, Window]) -> None:
    (boards,) = [scope for scope in recorded_scopes(*seen) if scope.scope == "accelerator"]
    assert mean_w(boards.joules.energy_j, seen[1]) == pytest.approx(178.8 + 214.5, rel=1e-6)
