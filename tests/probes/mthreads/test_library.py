"""The probe on the real binding, and that on the compiled `libmtml.so.2`."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import ClassVar

import pymtml
import pytest

from bench.errors import ProbeError
from bench.ports import Probe
from bench.probes.mthreads.probe import MthreadsProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes import layout
from tests.fakes.library import FakeLibrary
from tests.probes.faults import LibraryFaults
from tests.probes.mthreads.conftest import in_this_process
from tests.probes.mthreads.host import GPU_0, GPU_1, S5000
from tests.probes.trees import make_roots, replace_text, roots_env

_STRUCTS = {"MtmlPciInfo": pymtml.c_mtmlPciInfo_t, "MtmlDeviceProperty": pymtml.c_mtmlDeviceProperty_t}


def _by_uid(probe: Probe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_sizes_and_offsets_agree(mtml: Path) -> None:
    """Those of the binding: where a device is part of another one is told by bits of its properties."""
    told = layout.of_fake(mtml)
    assert {name.partition(".")[0] for name in told} == set(_STRUCTS)
    assert layout.of_ctypes(_STRUCTS, told) == told


def test_a_device_is_described(probe: MthreadsProbe) -> None:
    device = _by_uid(probe)[GPU_0]
    assert (device.name, device.index, device.scope, device.pci) == ("MTT S5000", 0, "accelerator", "0000:18:00.0")
    assert (device.driver, device.firmware, device.shared, device.visible_as) == ("5.1.0-server", "4.3.41", None, None)
    assert (device.memory_total_b, device.power_limit_w) == (80 << 30, None)
    assert device.power is not None
    assert (device.power.api, device.power.unit) == ("mtmlDeviceGetPowerUsage", "mW")
    assert device.energy is None
    assert device.reasons["energy_j"] == "MTML has no energy counter"
    assert device.reasons["power_limit_w"] == "MTML tells no power limit"


def test_raw_units_become_ours(probe: MthreadsProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(GPU_0), probe.sample(GPU_1)
    assert (idle.power_w, busy.power_w) == pytest.approx((92.42, 561.25))
    assert (idle.temperature_c, idle.utilisation, idle.clock_mhz) == (48.0, 0.0, 800.0)
    assert (busy.temperature_c, busy.utilisation, busy.clock_mhz) == (66.0, 0.97, 1750.0)
    assert (idle.memory_used_b, busy.memory_used_b) == (0, 74_120 << 20)
    assert (idle.throttle, idle.energy_j) == (None, None)
    (raw,) = probe.raw(GPU_0)
    assert (raw.quantity, raw.value, raw.unit) == ("power_w", 92420.0, "mW")


def test_all_ones_in_16_bits_are_milliwatts_like_any_other(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    probe.discover()
    fake.set("0.power", 65_535)
    assert probe.sample(GPU_0).power_w == pytest.approx(65.535)


@pytest.mark.parametrize(
    ("key", "raw", "field"),
    [
        ("utilisation", 101, "utilisation"),
        ("utilisation", 0xFFFFFFFF, "utilisation"),
        ("temperature", 0, "temperature_c"),
        ("temperature", -1, "temperature_c"),
        ("clock", 0xFFFFFFFF, "clock_mhz"),
        ("used", (1 << 64) - 1, "memory_used_b"),
    ],
)
def test_what_is_no_reading_is_missing(fake: FakeLibrary, probe: MthreadsProbe, key: str, raw: int, field: str) -> None:
    probe.discover()
    fake.set(f"0.{key}", raw)
    assert getattr(probe.sample(GPU_0), field) is None
    assert getattr(probe.sample(GPU_1), field) is not None


@pytest.mark.parametrize("raw", [0, (1 << 64) - 1])
def test_a_size_of_memory_that_is_none(fake: FakeLibrary, probe: MthreadsProbe, raw: int) -> None:
    fake.set("0.total", raw)
    devices = _by_uid(probe)
    assert (devices[GPU_0].memory_total_b, devices[GPU_1].memory_total_b) == (None, 80 << 30)


@pytest.mark.parametrize(
    "call", ["name", "pci", "bios", "property", "total", "used", "utilisation", "temperature", "clock", "gpu", "memory"]
)
def test_a_call_that_fails_costs_its_own_quantity(fake: FakeLibrary, probe: MthreadsProbe, call: str) -> None:
    fake.set(f"*.{call}.ret", 4)
    assert set(_by_uid(probe)) == {GPU_0, GPU_1}
    assert probe.sample(GPU_0).power_w == pytest.approx(92.42)


def test_without_a_driver_version_or_an_id(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    fake.set("0.driver.ret", 4)
    fake.set("*.uuid.ret", 4)
    first, second = probe.discover().devices
    assert (first.uid, second.uid, first.driver) == ("mthreads:pci:0000:18:00.0", "mthreads:pci:0000:2a:00.0", None)
    assert (first.covers, second.covers) == ((), ())
    assert probe.sample(second.uid).power_w == pytest.approx(561.25)


def test_handles_of_parts_are_asked_for_again_after_a_failure(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    fake.set("0.gpu.ret", 11)
    probe.discover()
    assert probe.sample(GPU_0).clock_mhz is None
    fake.set("0.gpu.ret", None)
    assert probe.sample(GPU_0).clock_mhz == 800.0


def test_a_device_that_does_not_open_is_a_problem_and_the_other_is_measured(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    fake.set("0.device.ret", 2)
    found = probe.discover()
    assert [device.uid for device in found.devices] == [GPU_1]
    (problem,) = found.problems
    assert (problem.subject, problem.problem) == ("device 0", "mtmlLibraryInitDeviceByIndex: driver failure (2)")
    assert probe.sample(GPU_1).power_w == pytest.approx(561.25)


def test_an_older_binding_that_lacks_a_call(probe: MthreadsProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pymtml, "mtmlDeviceGetMtBiosVersion")
    monkeypatch.delattr(pymtml, "mtmlGpuGetClock")
    device = _by_uid(probe)[GPU_0]
    assert (device.firmware, probe.sample(GPU_0).clock_mhz) == (None, None)
    assert "no mtmlGpuGetClock" in device.reasons["clock_mhz"]
    assert probe.sample(GPU_0).power_w == pytest.approx(92.42)


def test_visible_devices_are_numbered(probe: MthreadsProbe) -> None:
    assert resolve(probe.discover().devices, ["mthreads:1"]).visibility_env == {"MUSA_VISIBLE_DEVICES": "1"}


# --- cards in parts -----------------------------------------------------------------------------------------------------

_CUT = {**S5000, "0.mpc": 1, "0.instances": 2, "1.mpc": 2, "1.parent": 0, "2.mpc": 2, "2.parent": 0}


def test_instances_are_measured_with_their_card_and_once(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    """The card draws 92 W; each instance would tell them again."""
    fake.show(4, {**_CUT, "*.power": 92_420, "3.power": 90_000})
    card, one, two, whole = probe.discover().devices
    assert (card.covers, whole.covers) == ((one.uid, two.uid), ())
    watts = [probe.sample(device.uid).power_w for device in (card, one, two, whole)]
    assert watts == [pytest.approx(92.42), None, None, pytest.approx(90.0)]
    assert set(resolve(probe.discover().devices, [one.uid]).device_uids) == {one.uid, card.uid, two.uid}


def test_who_uses_an_instance_shares_the_card(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    fake.show(3, _CUT)
    card, one, two = probe.discover().devices
    assert card.shared == "cut into 2 MPC instances"
    assert (one.shared, two.shared) == (None, None)
    fake.set("0.instances", 1)
    assert probe.discover().devices[0].shared is None


def test_a_card_that_is_cut_has_no_number_of_its_own(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    fake.show(4, _CUT)
    _, one, two, whole = probe.discover().devices
    assert (one.visible_as, two.visible_as, whole.visible_as) == ("0", "1", "2")


@pytest.mark.parametrize("call", ["parent", "property"])
def test_an_instance_of_an_unknown_card_makes_no_crash(fake: FakeLibrary, probe: MthreadsProbe, call: str) -> None:
    fake.show(3, {**_CUT, f"1.{call}.ret": 4})
    assert len(probe.discover().devices) == 3


def test_a_guests_virtual_device_is_marked_as_shared(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    fake.set("1.role", 2)
    devices = _by_uid(probe)
    assert devices[GPU_0].shared is None
    assert "virtual device" in (devices[GPU_1].shared or "")


# --- presence and faults --------------------------------------------------------------------------------------------------


def _said(roots: Roots, before: str = "") -> str:
    """In a process of its own: in this one the loader knows the fake by its name."""
    replace_text(roots.dev / "mtgpu.0", "")
    code = (
        f"import os, sys; {before}\n"
        "from bench.probes.mthreads.probe import MthreadsProbe; found = MthreadsProbe(env=os.environ).discover()\n"
        "print(found.devices, *((problem.problem, problem.fix) for problem in found.problems))"
    )
    env = {**os.environ, **roots_env(roots), "PATH": "", "LD_LIBRARY_PATH": ""}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout


def test_a_card_without_its_library_is_a_problem_with_the_fix(roots: Roots) -> None:
    said = _said(roots)
    assert said.startswith("() (")
    assert "libmtml.so" in said
    assert "--device=/dev/mtgpu.0" in said


def test_a_card_without_the_binding_is_a_problem_with_the_fix(roots: Roots) -> None:
    said = _said(roots, "sys.modules['pymtml'] = None")
    assert "mthreads-ml-py: import of pymtml halted" in said


def test_the_other_package_of_that_name_is_refused(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pymtml` on PyPI is empty: a placeholder."""
    replace_text(roots.dev / "mtgpu.0", "")
    monkeypatch.setitem(sys.modules, "pymtml", types.ModuleType("pymtml"))
    (problem,) = MthreadsProbe(roots, {"PATH": ""}).discover().problems
    assert "is not the binding" in problem.problem


def test_a_library_shut_down_is_started_again(fake: FakeLibrary, probe: MthreadsProbe) -> None:
    """Handles of the first time are void."""
    probe.discover()
    probe.close()
    with pytest.raises(ProbeError):
        probe.sample(GPU_0)
    fake.set("0.power", 93_000)
    probe.discover()
    assert probe.sample(GPU_0).power_w == pytest.approx(93.0)


class TestMthreadsFaults(LibraryFaults):
    name = "mthreads"
    codes: ClassVar = {"not_supported": 4, "no_permission": 5, "lost": 1, "timeout": 11}
    no_readings: ClassVar = (0, 100, 0xFFFFFFFF, 6_000_000)

    @pytest.fixture
    def fake(self, mtml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
        return in_this_process(mtml, tmp_path, monkeypatch)

    @pytest.fixture
    def probe(self, fake: FakeLibrary, roots: Roots) -> Probe:
        return MthreadsProbe(roots, fake.env())

    @pytest.fixture
    def without(self, powerless_mtml: Path, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Probe:
        return MthreadsProbe(roots, in_this_process(powerless_mtml, tmp_path, monkeypatch).env())


class TestMthreadsLibraryConformance(ProbeConformance):
    name = "mthreads"
    vendor_modules = ("pymtml",)

    @pytest.fixture
    def working(self, fake: FakeLibrary, tmp_path: Path) -> Probe:
        return MthreadsProbe(make_roots(tmp_path), fake.env())

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return MthreadsProbe(make_roots(tmp_path / "none"), {"PATH": ""})
