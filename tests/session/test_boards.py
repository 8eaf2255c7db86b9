"""Which boards belong to a case that names none: those that the engine's start filled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench.records import DeviceInfo, EngineHandle, Placement, Reading, SensorInfo, Window
from bench.session.boards import measured_domains
from bench.session.telemetry import Baselines
from tests.session.fakes import a_board

S = 1_000_000_000
ENGINE = EngineHandle(
    name="x",
    version=None,
    build=None,
    command=(),
    env={},
    pids=(7,),
    settings={},
    precision=None,
    start_s=None,
    log_path=None,
)
IDLE, RESIDENT = Window(t0_ns=0, t1_ns=S), Window(t0_ns=2 * S, t1_ns=3 * S)
GIB = 1 << 30


def baselines(**growth_b: int | None) -> Baselines:
    """Memory in use of each device (`GPU_0`) before and after; None where it is not told."""
    readings = [
        Reading(uid=uid.replace("_", "-"), before_ns=at, after_ns=at + 1, memory_used_b=None if grown is None else held)
        for uid, grown in growth_b.items()
        for at, held in ((S // 2, GIB), (5 * S // 2, GIB + (grown or 0)))
    ]
    return Baselines(idle=IDLE, resident=RESIDENT, readings=tuple(readings))


def module_of(board: DeviceInfo) -> DeviceInfo:
    return replace(board, uid=f"{board.uid}-module", scope="module", board=board.uid)


def kept(devices: list[DeviceInfo], seen: Baselines) -> dict[str, SensorInfo | None]:
    return {d.uid: d.power for d in measured_domains(devices, Placement(), ENGINE, seen)}


@pytest.mark.parametrize(("grown_b", "uids"), [(8 * GIB, ["GPU-0", "GPU-0-module"]), (0, [])])
def test_a_module_goes_with_the_board_in_it(grown_b: int, uids: list[str]) -> None:
    """It tells no memory of its own, on Grace Hopper and on Apple silicon alike."""
    devices = [a_board(0), module_of(a_board(0)), a_board(1), module_of(a_board(1))]
    found = kept(devices, baselines(GPU_0=grown_b, GPU_0_module=None, GPU_1=0, GPU_1_module=None))
    assert list(found) == uids
    assert all(power is not None for power in found.values())


def test_a_board_whose_other_die_is_used_is_measured_by_its_sensor() -> None:
    primary = replace(a_board(0), covers=("GPU-1",))
    other = replace(a_board(1), board="GPU-0", power=None, power_reason="measured with GPU-0")
    found = kept([primary, other], baselines(GPU_0=0, GPU_1=8 * GIB))
    assert found["GPU-0"] is not None


def test_what_nobody_can_tell_lends_no_joules() -> None:
    devices = [a_board(0), module_of(a_board(0))]
    assert kept(devices, baselines(GPU_0=None, GPU_0_module=None)) == {"GPU-0": None, "GPU-0-module": None}
    assert kept(devices, Baselines()) == {"GPU-0": None, "GPU-0-module": None}
