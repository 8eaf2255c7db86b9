"""The probe on the compiled `libixml.so`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.iluvatar import ixml as abi
from bench.probes.iluvatar.probe import IluvatarProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots
from bench.probes.values import Unavailable
from bench.records import DeviceInfo
from tests.fakes import layout
from tests.fakes.build import shared_library
from tests.fakes.library import FakeLibrary
from tests.probes.iluvatar.host import BUSY, IDLE
from tests.probes.trees import replace_text


def _by_uid(probe: Probe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_card_is_described(probe: IluvatarProbe) -> None:
    found = probe.discover()
    device = found.devices[0]
    assert (device.uid, device.name, device.index, device.pci) == (IDLE, "Iluvatar MR-V100", 0, "0000:15:00.0")
    assert (device.driver, device.firmware, device.scope) == ("4.4.0", "2.0.17", "accelerator")
    assert (device.memory_total_b, device.power_limit_w, device.shared) == (32_768 << 20, 150.0, None)
    assert device.power is not None
    assert (device.power.api, device.power.unit) == ("nvmlDeviceGetPowerUsage", "W")
    assert found.problems == ()


def test_raw_units_become_ours(probe: IluvatarProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.power_w, idle.memory_used_b, idle.utilisation) == (57.0, 116 << 20, 0.0)
    assert (idle.temperature_c, idle.clock_mhz) == (36.0, 500.0)
    assert (busy.power_w, busy.utilisation, busy.temperature_c, busy.clock_mhz) == (131.0, 0.97, 61.0, 1500.0)
    assert [(raw.api, raw.unit, raw.value) for raw in probe.raw(BUSY)] == [("nvmlDeviceGetPowerUsage", "W", 131.0)]


def test_what_is_never_told_has_its_reason(probe: IluvatarProbe) -> None:
    reasons = _by_uid(probe)[IDLE].reasons
    assert "bits its header does not name" in reasons["throttle"]
    assert "nvmlDeviceGetTotalEnergyConsumption: not supported (3)" in reasons["energy_j"]


class TestUnits:
    @pytest.mark.parametrize("limit", ["limit", "management_limit", "default_limit", None])
    @pytest.mark.parametrize(("scale", "unit"), [(1, "W"), (1000, "mW")])
    def test_of_both_releases(self, fake: FakeLibrary, probe: IluvatarProbe, limit: str | None, scale: int, unit: str) -> None:
        fake.set("*.limit", None)
        if limit:
            fake.set(f"*.{limit}", 150 * scale)
        fake.set("0.power", 57 * scale)
        fake.set("1.power", 131 * scale)
        device = _by_uid(probe)[IDLE]
        assert device.power_limit_w == (150.0 if limit else None)
        assert device.power is not None
        assert device.power.unit == (unit if limit else "W, or mW from 1000")
        assert (probe.sample(IDLE).power_w, probe.sample(BUSY).power_w) == (57.0, 131.0)

    def test_of_one_card_is_that_of_all(self, fake: FakeLibrary, probe: IluvatarProbe) -> None:
        """A library counts all cards alike: 900 on the one without a limit is no kilowatt."""
        fake.set("*.limit", None)
        fake.set("1.limit", 150_000)
        fake.set("1.power", 131_000)
        fake.set("0.power", 900)
        devices = _by_uid(probe)
        assert devices[IDLE].power is None
        assert "no unit fits both" in (devices[IDLE].power_reason or "")
        assert probe.sample(BUSY).power_w == 131.0


class TestEnergyCounter:
    def test_it_is_kept_where_it_fits_the_power(self, fake: FakeLibrary, probe: IluvatarProbe) -> None:
        fake.set("0.energy", 5_000_000)
        fake.set("0.energy_rate_w", 57)
        assert _by_uid(probe)[IDLE].energy is not None
        fake.set("0.energy_rate_w", 0)
        assert probe.sample(IDLE).energy_j == 5000.0

    @pytest.mark.parametrize("rate_w", [0, 4, 57_000])
    def test_it_is_refused_where_it_does_not(self, fake: FakeLibrary, probe: IluvatarProbe, rate_w: int) -> None:
        fake.set("0.energy", 5_000_000)
        fake.set("0.energy_rate_w", rate_w)
        device = _by_uid(probe)[IDLE]
        assert device.energy is None
        assert "the energy counter" in device.reasons["energy_j"]

    @pytest.mark.parametrize("millijoules", [0, (1 << 64) - 1])
    def test_no_count_is_no_counter(self, fake: FakeLibrary, probe: IluvatarProbe, millijoules: int) -> None:
        fake.set("0.energy", millijoules)
        assert _by_uid(probe)[IDLE].energy is None


@pytest.mark.parametrize(
    ("call", "quantity"),
    [("memory", "memory_used_b"), ("utilisation", "utilisation"), ("temp", "temperature_c"), ("clock", "clock_mhz")],
)
@pytest.mark.parametrize("code", [3, 4, 999])
def test_one_failing_call_costs_one_quantity(
    fake: FakeLibrary, probe: IluvatarProbe, call: str, quantity: str, code: int
) -> None:
    fake.set(f"0.{call}.ret", code)
    assert f"({code})" in _by_uid(probe)[IDLE].reasons[quantity]
    assert getattr(probe.sample(IDLE), quantity) is None
    assert getattr(probe.sample(BUSY), quantity) is not None


@pytest.mark.parametrize(
    ("key", "value", "quantity"),
    [
        ("total", 0, "memory_used_b"),
        ("total", (1 << 64) - 1, "memory_used_b"),
        ("used", (1 << 64) - 1, "memory_used_b"),
        ("used", (32_768 << 20) + 1, "memory_used_b"),
        ("gpu", 101, "utilisation"),
        ("gpu", 0xFFFFFFFF, "utilisation"),
        ("temp", 0, "temperature_c"),
        ("temp", 0xFFFFFFFF, "temperature_c"),
        ("clock", 0xFFFFFFFF, "clock_mhz"),
    ],
)
def test_what_is_no_reading_is_missing(fake: FakeLibrary, probe: IluvatarProbe, key: str, value: int, quantity: str) -> None:
    probe.discover()
    fake.set(f"0.{key}", value)
    assert getattr(probe.sample(IDLE), quantity) is None
    assert getattr(probe.sample(BUSY), quantity) is not None


class TestIdentity:
    @pytest.mark.parametrize("call", ["name", "uuid", "pci", "vbios", "driver", "limit", "board", "position"])
    @pytest.mark.parametrize("code", [3, 15])
    def test_a_card_without_a_word_of_its_own_is_still_measured(
        self, fake: FakeLibrary, probe: IluvatarProbe, call: str, code: int
    ) -> None:
        fake.set(f"*.{call}.ret", code)
        first = probe.discover().devices[0]
        assert first.uid == ("iluvatar:pci:0000:15:00.0" if call == "uuid" else IDLE)
        assert first.name == ("Iluvatar GPU" if call == "name" else "Iluvatar MR-V100")
        assert probe.sample(first.uid).power_w == 57.0

    def test_a_chip_that_can_not_be_opened_costs_itself(self, fake: FakeLibrary, probe: IluvatarProbe) -> None:
        fake.set("0.handle.ret", 15)
        found = probe.discover()
        assert [device.uid for device in found.devices] == [BUSY]
        (problem,) = found.problems
        assert (problem.subject, "the GPU is lost (15)" in problem.problem) == ("iluvatar:0", True)

    def test_engines_see_chips_by_number(self, probe: IluvatarProbe) -> None:
        assert resolve(probe.discover().devices, ["iluvatar:1"]).visibility_env == {"CUDA_VISIBLE_DEVICES": "1"}


class TestProcesses:
    @pytest.fixture
    def seeing(self, fake: FakeLibrary, roots: Roots) -> IluvatarProbe:
        replace_text(roots.proc / "2/comm", "kthreadd\n")
        return IluvatarProbe(roots, fake.env(), check_s=0)

    @pytest.mark.parametrize("others", [0, 1, 7, 8, 20])
    def test_ours_and_others(self, fake: FakeLibrary, seeing: IluvatarProbe, others: int) -> None:
        fake.set("0.pids", ",".join([f"{os.getpid()}:4096", *(["1:7"] * others)]))
        seeing.discover()
        seeing.watch([os.getpid()])
        reading = seeing.sample(IDLE)
        seeing.close()
        assert (reading.engine_memory_b, reading.foreign_processes) == (4096, min(others, 1))

    @pytest.mark.parametrize(("pids", "foreign"), [(f"{0xFFFFFFFF}:4096", None), (f"ours:{(1 << 64) - 1}", 0.0)])
    def test_what_is_not_told_is_missing(
        self, fake: FakeLibrary, seeing: IluvatarProbe, pids: str, foreign: float | None
    ) -> None:
        fake.set("0.pids", pids.replace("ours", str(os.getpid())))
        seeing.discover()
        seeing.watch([os.getpid()])
        reading = seeing.sample(IDLE)
        seeing.close()
        assert (reading.engine_memory_b, reading.foreign_processes) == (None, foreign)

    @pytest.mark.parametrize("code", [3, 7])
    def test_a_list_that_is_refused_costs_itself(self, fake: FakeLibrary, seeing: IluvatarProbe, code: int) -> None:
        fake.set("0.processes.ret", code)
        seeing.discover()
        seeing.watch([os.getpid()])
        reading = seeing.sample(IDLE)
        seeing.close()
        assert (reading.power_w, reading.foreign_processes) == (57.0, None)


class TestLoading:
    def test_the_xml_parser_of_that_name_is_passed_over(self, ixml: Path, tmp_path: Path) -> None:
        other = shared_library("rocmsmi.c", tmp_path / "corex/lib64/libixml.so")
        (tmp_path / "corex/lib").mkdir()
        shutil.copy(ixml, tmp_path / "corex/lib/libixml.so")
        env = {"COREX_HOME": str(tmp_path / "corex")}
        assert abi.load(env).path == str(tmp_path / "corex/lib/libixml.so")
        (tmp_path / "corex/lib/libixml.so").unlink()
        with pytest.raises(Unavailable, match=r"libixml\.so has no nvmlInit_v2"):
            abi.load(env)
        assert other.exists()

    def test_layouts_are_those_of_the_header(self, ixml: Path) -> None:
        structs = {
            "nvmlPciInfo_t": abi.PciInfo,
            "nvmlMemory_t": abi.Memory,
            "nvmlUtilization_t": abi.Utilization,
            "nvmlProcessInfo_v1_t": abi.ProcessInfo,
        }
        compiled = layout.of_fake(ixml)
        assert {name.partition(".")[0] for name in compiled} == set(structs)
        assert layout.of_ctypes(structs, compiled) == compiled
