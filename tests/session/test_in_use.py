"""Boards on which others compute: refused before an engine is started there, unless told."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.errors import EXIT_MISSING, EXIT_OK
from bench.records import DeviceInfo, Status
from tests.session.fakes import Rig, a_board, a_case

IN_USE = "in use by others: Fake 1000 (GPU-0) by 2 processes"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Two boards: others compute on the first."""
    made = Rig(tmp_path)
    made.probes.devices = (a_board(0), a_board(1))
    made.probes.others = {"GPU-0": 2.0, "GPU-1": 0.0}
    return made


def test_a_named_board_that_others_use_starts_nothing(rig: Rig) -> None:
    outcome = rig.run(a_case(devices=("GPU-0", "GPU-1"), repeats=2))
    assert "start" not in rig.events
    assert [record.status for record in outcome.records] == [Status.FAILED] * 2
    for record in outcome.records:
        assert (record.error or "").startswith(f"{IN_USE} (next: ")
    (error,) = outcome.errors
    assert (str(error), error.exit_code) == (IN_USE, EXIT_MISSING)
    assert "--share-devices" in (error.hint or "")
    assert "probe closed" in rig.events


def test_one_that_nobody_uses_is_measured(rig: Rig) -> None:
    assert rig.run(a_case(devices=("GPU-1",))).exit_code == EXIT_OK


def test_the_rest_of_the_run_goes_on_and_the_refused_trials_can_be_measured_later(rig: Rig) -> None:
    cases = (a_case("busy", devices=("GPU-0",)), a_case("free", devices=("GPU-1",)))
    outcome = rig.run(*cases)
    assert [(r.case.name, r.status) for r in outcome.records] == [("busy", Status.FAILED), ("free", Status.VALID)]
    rig.probes.others = {}
    again = rig.run(*cases, history=outcome.records)
    assert [(r.case.name, r.status) for r in again.records] == [("free", Status.VALID), ("busy", Status.VALID)]


def test_boards_that_nobody_named_are_refused_once_the_engine_has_filled_them(rig: Rig) -> None:
    """It may use none at all, so that nothing can be said before."""
    assert str(rig.run(a_case()).errors[0]) == IN_USE
    assert not [event for event in rig.events if event.startswith("load")]
    assert "engine down" in rig.events
    rig.probes.others = {"GPU-1": 2.0}  # the engine fills the other one
    assert rig.run(a_case(seed=1)).exit_code == EXIT_OK


@pytest.mark.parametrize("devices", [(), ("GPU-0",)], ids=["unnamed", "named"])
def test_who_says_so_measures_them(rig: Rig, devices: tuple[str, ...]) -> None:
    rig.share_devices = True
    (record,) = rig.run(a_case(devices=devices)).records
    assert "foreign_process" in {reason.code for reason in record.reasons}


@pytest.mark.parametrize("devices", [(), ("GPU-0",)], ids=["unnamed", "named"])
def test_what_computes_behind_an_address_is_nobody_elses(rig: Rig, devices: tuple[str, ...]) -> None:
    rig.runner.pids = ()
    (record,) = rig.run(a_case(base_url="http://elsewhere:8000", devices=devices)).records
    assert record.status is Status.VALID
    kept = rig.store.saved[0].telemetry
    assert kept is not None
    assert {reading.foreign_processes for reading in kept.readings} <= {None}
    assert "foreign_process" not in {reason.code for reason in record.reasons}


@pytest.mark.parametrize("change", [{"scope": "cpu_package"}, {"scope": "process"}])
def test_only_boards_can_be_refused(rig: Rig, change: dict[str, str]) -> None:
    package: DeviceInfo = replace(a_board(0), **change)
    rig.probes.devices = (package,)
    assert rig.run(a_case(devices=("GPU-0",))).errors == []


@pytest.mark.parametrize("devices", [(), ("GPU-0",)], ids=["unnamed", "named"])
def test_what_cannot_be_told_is_not_refused(rig: Rig, devices: tuple[str, ...]) -> None:
    rig.probes.others = {}
    assert rig.run(a_case(devices=devices)).errors == []
    rig.probes.others, rig.probes.tells_memory = {"GPU-0": 2.0}, False
    refused = [str(error) for error in rig.run(a_case(seed=1, devices=devices)).errors]
    assert refused == ([IN_USE] if devices else [])
