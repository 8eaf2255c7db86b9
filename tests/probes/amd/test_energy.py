"""Joules of AMD boards through the real path: amdsmi on the compiled AMD SMI, under the real child, host and recorder.

The same series on exact stamps are in tests/timing/test_energy_cases.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.probes.host import ChildProbeHost
from bench.records import Telemetry, Window
from bench.session.telemetry import Recorder
from bench.timing.recorded import RecordedDevice, recorded_devices, recorded_scopes
from tests.probes.amd.fake_amdsmi import GPU_0, GPU_1, GPU_2, MI250, MI300X, FakeAmdsmi, Value
from tests.probes.scripted import Script
from tests.probes.trees import make_roots, roots_env

SECONDS = 4.0
COUNTS_PER_J = 65536
PLAIN, ROUNDED, FALLS = GPU_0, GPU_1, GPU_2
DIES_W = (89, 0, 93, 0, 88, 0, 88, 0)
"""What the dies of four MI250X say: the odd ones nothing."""

COUNTERS: dict[str, Value] = {
    **{key: value for key, value in MI300X.items() if not key.startswith("1.")},
    "*.current": 250,
    "*.energy_rate_w": 0,
    "1.resolution": 15.3,
}
DIES: dict[str, Value] = {
    **{key: value for key, value in MI250.items() if key.startswith("*.")},
    "*.name": "AMD Instinct MI250X",
    "*.device_id": 0x7408,
    **{f"{die}.average": watts for die, watts in enumerate(DIES_W)},
    **{f"{die}.energy_rate_w": watts for die, watts in enumerate(DIES_W)},
    **{f"{die}.energy": 5_000_000_000 * (watts > 0) for die, watts in enumerate(DIES_W)},
}


def counts(t_s: float, start: int = 1_370_283_310_000) -> int:
    """An accumulator that rises by 65,536,000 in four seconds: 1000 J at 250 W."""
    return start + round(65_536_000 / SECONDS * t_s)


def play(fake: FakeAmdsmi, t_s: float) -> None:
    falling = counts(t_s, 4_750_896_266) if t_s < SECONDS / 2 else counts(t_s, 4_736_943_791)
    fake.change(b0__energy=counts(t_s), b1__energy=counts(t_s), b2__energy=falling)


Seen = tuple[Telemetry, Window]


def record(rocm: Path, folder: Path, boards: int, state: dict[str, Value], play: Callable[[FakeAmdsmi, float], None]) -> Seen:
    fake = FakeAmdsmi(rocm=rocm, state=folder / "amdsmi-state")
    fake.show(boards, state)
    env = {**roots_env(make_roots(folder)), **fake.env(), "BENCH_PROBES": "amd"}
    with Script(lambda t_s: play(fake, t_s)) as script, Recorder(ChildProbeHost(env, deadline_s=30)) as recorder:
        recorder.settle(30)
        recorder.rest(script.seconds_left() + SECONDS)
        telemetry = recorder.telemetry()
    assert telemetry.ends == ()
    return telemetry, Window(t0_ns=script.zero_ns, t1_ns=script.zero_ns + round(SECONDS * 1e9))


@pytest.fixture(scope="module")
def by_counter(amd_rocm: Path, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return record(amd_rocm, tmp_path_factory.mktemp("counters"), 3, COUNTERS, play)


@pytest.fixture(scope="module")
def of_dies(amd_rocm: Path, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return record(amd_rocm, tmp_path_factory.mktemp("dies"), 8, DIES, lambda fake, t_s: None)


def device(seen: Seen, uid: str) -> RecordedDevice:
    return next(one for one in recorded_devices(*seen) if one.device.uid == uid)


@pytest.mark.parametrize("uid", [PLAIN, ROUNDED])
def test_counts_are_of_their_true_unit_whatever_the_library_rounds_it_to(by_counter: Seen, uid: str) -> None:
    """Every reading is a whole number of counts of 2^-16 J; in the 15.3 uJ told none would be, and 1000 J would be 1002.7."""
    joules = [r.energy_j for r in by_counter[0].readings if r.uid == uid and r.energy_j is not None]
    assert len(joules) > 10
    assert all((energy_j * COUNTS_PER_J) == pytest.approx(round(energy_j * COUNTS_PER_J), abs=1e-3) for energy_j in joules)
    found = device(by_counter, uid)
    assert found.method == "counter"
    assert found.joules.energy_j == pytest.approx(1000.0, abs=250 * 0.12)


def test_both_resolutions_give_the_same_joules(by_counter: Seen) -> None:
    plain, rounded = (device(by_counter, uid).joules.energy_j for uid in (PLAIN, ROUNDED))
    assert plain is not None
    assert rounded == pytest.approx(plain, rel=1e-2)


def test_an_accumulator_that_ran_backwards_gives_nothing(by_counter: Seen) -> None:
    found = device(by_counter, FALLS)
    assert found.joules.energy_j is None
    assert [fault.code for fault in found.faults] == ["counter_reset"]


def test_eight_dies_are_four_boards(of_dies: Seen) -> None:
    (boards,) = [scope for scope in recorded_scopes(*of_dies) if scope.scope == "accelerator"]
    assert boards.joules.energy_j is not None, boards.joules.reason
    assert boards.joules.energy_j / SECONDS == pytest.approx(358, rel=0.03)
    listed = of_dies[0].devices
    assert len(listed) == 8
    for even, odd in zip(listed[::2], listed[1::2], strict=True):
        assert even.covers == (odd.uid,)
        assert odd.power is None
        assert even.uid in (odd.power_reason or "")
