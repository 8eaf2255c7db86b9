"""The probe on the compiled `libmxsml.so`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from bench.ports import Probe
from bench.probes.metax import library
from bench.probes.metax.probe import MetaxProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes import layout
from tests.fakes.library import FakeLibrary, Value
from tests.probes.faults import LibraryFaults
from tests.probes.metax.conftest import in_this_process
from tests.probes.metax.host import GPU_0, GPU_1
from tests.probes.trees import make_roots, replace_text, roots_env

_STRUCTS = {
    "mxSmlDeviceInfo_t": library.DeviceInfo,
    "mxSmlMemoryInfo_t": library.MemoryInfo,
    "mxSmlBoardWayElectricInfo_t": library.BoardWayElectricInfo,
    "mxSmlProcessGpuInfo_t": library.ProcessGpuInfo,
    "mxSmlProcessInfo_t": library.ProcessInfo,
    "mxSmlDeviceUnavailableReasonInfo_t": library.UnavailableReason,
}
C600: dict[str, Value] = {
    "driver": "3.9.10",
    "*.name": "MXC600-A",
    "*.limit": 850_000,
    "*.power": "31000 31000 31000",
    "*.total": 75_497_472,
    "*.used": 182_272,
    "*.hotspot": 3100,
    "*.usage": 0,
    "*.clock": 500,
}


def _by_uid(probe: Probe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_sizes_and_offsets_agree(mxsml: Path) -> None:
    told = layout.of_fake(mxsml)
    assert {name.partition(".")[0] for name in told} == set(_STRUCTS)
    assert layout.of_ctypes(_STRUCTS, told) == told


def test_a_board_is_described(probe: MetaxProbe) -> None:
    device = _by_uid(probe)[GPU_0]
    assert (device.name, device.index, device.scope, device.pci) == ("MetaX C500", 0, "accelerator", "0000:08:00.0")
    assert (device.driver, device.firmware, device.shared) == ("3.8.30", "1.33.5.0", None)
    assert (device.memory_total_b, device.power_limit_w) == (64 << 30, 350.0)
    assert device.power is not None
    assert (device.power.api, device.power.unit) == ("mxSmlGetBoardPowerInfo, rails summed", "mW")
    assert device.energy is None
    assert device.reasons["energy_j"] == "MXSML has no energy counter"


def test_raw_units_become_ours(probe: MetaxProbe) -> None:
    """Rails of 18,075, 15,652 and 14,190 mW are 47.917 W; 878,592 KB are 858 MiB; 3900 is 39 degrees."""
    probe.discover()
    idle, busy = probe.sample(GPU_0), probe.sample(GPU_1)
    assert (idle.power_w, idle.memory_used_b, idle.temperature_c) == pytest.approx((47.917, 858 << 20, 39.0), rel=1e-12)
    assert (idle.utilisation, idle.clock_mhz, idle.throttle) == (0.0, 500.0, ())
    assert (busy.power_w, busy.temperature_c, busy.utilisation) == pytest.approx((312.5, 61.25, 0.97), rel=1e-12)
    assert (busy.clock_mhz, busy.throttle) == (1500.0, ("sw_power_cap",))
    (raw,) = probe.raw(GPU_0)
    assert (raw.quantity, raw.value, raw.unit) == ("power_w", 47917.0, "mW")


@pytest.mark.parametrize(
    ("rails", "watts"),
    [
        ("47000", 47.0),
        ("40000 7500", 47.5),
        ("10000 10000 10000 10000 7000", 47.0),
        ("65535", 65.535),  # all ones in 16 bits, and a reading like any other in milliwatts
        (" ".join(["5000"] * 12), 60.0),
    ],
)
def test_any_number_of_rails_is_summed(fake: FakeLibrary, probe: MetaxProbe, rails: str, watts: float) -> None:
    """N class has two, C class three, and a library that has more says how much room it needs."""
    probe.discover()
    fake.set("0.power", rails)
    assert probe.sample(GPU_0).power_w == pytest.approx(watts)


@pytest.mark.parametrize("rails", ["18075 4294967295 14190", "18075 15652 4294967295", ""])
def test_a_rail_without_a_reading_makes_no_smaller_sum(fake: FakeLibrary, probe: MetaxProbe, rails: str) -> None:
    probe.discover()
    fake.set("0.power", rails or None)
    assert probe.sample(GPU_0).power_w is None


@pytest.mark.parametrize(
    ("key", "raw", "field"),
    [
        ("usage", -1, "utilisation"),
        ("usage", 101, "utilisation"),
        ("hotspot", 0, "temperature_c"),
        ("hotspot", -27315, "temperature_c"),
        ("clock", 0xFFFFFFFF, "clock_mhz"),
        ("used", -1, "memory_used_b"),
        ("throttle", 0xFFFFFFFFFFFFFFFF, "throttle"),
    ],
)
def test_what_is_no_reading_is_missing(fake: FakeLibrary, probe: MetaxProbe, key: str, raw: int, field: str) -> None:
    probe.discover()
    fake.set(f"0.{key}", raw)
    assert getattr(probe.sample(GPU_0), field) is None
    assert getattr(probe.sample(GPU_1), field) is not None


@pytest.mark.parametrize("call", ["usage", "temperature", "clock", "throttle", "memory", "limit", "version", "processes", "dies"])
def test_a_call_that_fails_costs_its_own_quantity(fake: FakeLibrary, probe: MetaxProbe, call: str) -> None:
    fake.set(f"*.{call}.ret", 4)
    assert set(_by_uid(probe)) == {GPU_0, GPU_1}
    assert probe.sample(GPU_0).power_w == pytest.approx(47.917)


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x401, ()),
        (0x2, ("application_clocks",)),
        (0x48, ("sw_thermal",)),
        (0x30, ("vr_thermal", "memory_thermal")),
        (0x380, ("peak_current", "hw_power_brake", "didt")),
        (0x80000000, ("other",)),
    ],
)
def test_limits_have_their_standard_names(fake: FakeLibrary, probe: MetaxProbe, bits: int, names: tuple[str, ...]) -> None:
    probe.discover()
    fake.set("0.throttle", bits)
    assert probe.sample(GPU_0).throttle == names


def test_n_class_is_asked_for_its_dla(fake: FakeLibrary, probe: MetaxProbe) -> None:
    """The calls for XCORE are refused there."""
    fake.set("0.brand", 1)
    fake.set("0.usage", 40)
    probe.discover()
    reading = probe.sample(GPU_0)
    assert (reading.utilisation, reading.clock_mhz) == (0.4, 500.0)


def test_an_old_library_lacks_the_limit_and_no_more(
    old_mxsml: Path, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = in_this_process(old_mxsml, tmp_path, monkeypatch)
    probe = MetaxProbe(roots, fake.env())
    device = _by_uid(probe)[GPU_0]
    assert device.power_limit_w is None
    assert "has no mxSmlGetBoardPowerLimit" in device.reasons["power_limit_w"]
    reading = probe.sample(GPU_0)
    assert (reading.power_w, reading.memory_used_b) == pytest.approx((47.917, 858 << 20), rel=1e-12)
    assert reading.throttle is None


# --- boards of several dies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known_by", ["board", "die"])
def test_two_dies_with_the_boards_watts_are_counted_once(fake: FakeLibrary, probe: MetaxProbe, known_by: str) -> None:
    """Each die repeats the board's 93 W: two boards draw 186 W, not 372."""
    ids = (0, 0, 1, 1) if known_by == "board" else (0, 1, 0, 1)
    fake.show(4, {**C600, **{f"{device}.{known_by}": value for device, value in enumerate(ids)}})
    devices = probe.discover().devices
    readings = [probe.sample(device.uid) for device in devices]
    assert sum(reading.power_w or 0.0 for reading in readings) == pytest.approx(186.0)
    assert [reading.power_w is None for reading in readings] == [False, True, False, True]
    assert [device.covers for device in devices] == [(devices[1].uid,), (), (devices[3].uid,), ()]
    assert "one sensor for the whole board" in (devices[1].power_reason or "")
    assert [device.power_limit_w for device in devices] == [850.0, None, 850.0, None]
    assert {device.memory_total_b for device in devices} == {72 << 30}
    assert resolve(devices, ["metax:1"]).device_uids == (devices[1].uid, devices[0].uid)


def test_the_second_die_measures_its_board_where_the_first_can_not(fake: FakeLibrary, probe: MetaxProbe) -> None:
    fake.show(2, {**C600, "*.board": 0, "0.power.ret": 3})
    first, second = probe.discover().devices
    assert (first.power, second.covers) == (None, (first.uid,))
    assert probe.sample(second.uid).power_w == pytest.approx(93.0)


@pytest.mark.parametrize("boards", [(0, 1, 2), (-1, -1, -1)])
def test_boards_of_one_die_each_keep_their_watts(fake: FakeLibrary, probe: MetaxProbe, boards: tuple[int, ...]) -> None:
    fake.show(3, {**C600, **{f"{device}.board": value for device, value in enumerate(boards)}})
    devices = probe.discover().devices
    assert [probe.sample(device.uid).power_w for device in devices] == [pytest.approx(93.0)] * 3
    assert [device.covers for device in devices] == [()] * 3


def test_one_device_of_two_dies_is_the_sum_of_them(fake: FakeLibrary, probe: MetaxProbe) -> None:
    """Memory adds up, the hotter die counts, and the busy share is the mean."""
    dies: dict[str, Value] = {
        "*.dies": 2,
        "0.used1": 1_000_000,
        "0.hotspot1": 7050,
        "0.usage": 50,
        "0.usage1": 100,
        "0.clock1": 900,
    }
    for key, value in {**dies, "0.throttle": 0x4, "0.throttle1": 0x8}.items():
        fake.set(key, value)
    device = _by_uid(probe)[GPU_0]
    reading = probe.sample(GPU_0)
    assert device.memory_total_b == 128 << 30
    assert reading.memory_used_b == (878_592 + 1_000_000) * 1024
    assert (reading.power_w, reading.temperature_c, reading.utilisation) == pytest.approx((47.917, 70.5, 0.75), rel=1e-12)
    assert (reading.clock_mhz, reading.throttle) == (700.0, ("sw_power_cap", "sw_thermal"))


# --- who uses it --------------------------------------------------------------------------------------------------------


def test_memory_of_the_engines_processes(fake: FakeLibrary, roots: Roots) -> None:
    """What a process holds on other devices is not this one's."""
    replace_text(roots.proc / "2/comm", "kthreadd\n")
    fake.set("processes", f"{os.getpid()}:4096 1:512")
    probe = MetaxProbe(roots, fake.env(), harness_pid=-1)
    probe.discover()
    probe.watch([os.getpid()])
    reading = probe.sample(GPU_0)
    assert (reading.engine_memory_b, reading.foreign_processes) == (4096, 1.0)


@pytest.mark.parametrize(("key", "value", "words"), [("mode", 2, "virtual function"), ("slices", 3, "3 sGPU slices")])
def test_a_board_in_parts_is_marked_as_shared(fake: FakeLibrary, probe: MetaxProbe, key: str, value: int, words: str) -> None:
    fake.set(f"1.{key}", value)
    devices = _by_uid(probe)
    assert devices[GPU_0].shared is None
    assert words in (devices[GPU_1].shared or "")


# --- presence and faults --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["state", "info.ret"])
def test_a_faulty_board_is_a_problem_and_the_others_are_measured(fake: FakeLibrary, probe: MetaxProbe, key: str) -> None:
    """It stays in the list of devices."""
    fake.set(f"0.{key}", 0 if key == "state" else 4)
    fake.set("0.why", "MetaX Sysfs File Unaccessible")
    found = probe.discover()
    assert [device.uid for device in found.devices] == [GPU_1]
    (problem,) = found.problems
    assert "MetaX Sysfs File Unaccessible" in problem.problem
    assert probe.sample(GPU_1).power_w is not None


def test_a_faulty_die_does_not_lend_its_sibling_to_the_board_before(fake: FakeLibrary, probe: MetaxProbe) -> None:
    fake.show(4, {**C600, "1.die": 1, "2.state": 0, "3.die": 1})
    first, second, fourth = probe.discover().devices
    assert (first.covers, fourth.covers) == ((second.uid,), ())
    assert probe.sample(fourth.uid).power_w == pytest.approx(93.0)


def test_visible_devices_are_numbered(probe: MetaxProbe) -> None:
    assert resolve(probe.discover().devices, ["metax:1"]).visibility_env == {"MACA_VISIBLE_DEVICES": "1"}


def test_a_card_without_its_library_is_a_problem_with_the_fix(roots: Roots) -> None:
    """In a process of its own: in this one the loader knows the fake by its name."""
    replace_text(roots.dev / "mxcd", "")
    code = (
        "import os; from bench.probes.metax.probe import MetaxProbe; found = MetaxProbe(env=os.environ).discover()\n"
        "print(found.devices, *((problem.problem, problem.fix) for problem in found.problems))"
    )
    env = {**os.environ, **roots_env(roots), "PATH": "", "MACA_PATH": "/nowhere"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
    assert said.startswith("() (")
    assert "/nowhere/lib/libmxsml.so: cannot open" in said
    assert "--device=/dev/mxcd" in said


class TestMetaxFaults(LibraryFaults):
    name = "metax"
    codes: ClassVar = {"not_supported": 3, "no_permission": 8, "lost": 2, "timeout": 23}
    no_readings: ClassVar = (0, 100, 0xFFFFFFFF, 701_000, 6_000_000, "18075 4294967295")

    @pytest.fixture
    def fake(self, mxsml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
        return in_this_process(mxsml, tmp_path, monkeypatch)

    @pytest.fixture
    def probe(self, fake: FakeLibrary, roots: Roots) -> Probe:
        return MetaxProbe(roots, fake.env())

    @pytest.fixture
    def without(self, powerless_mxsml: Path, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Probe:
        return MetaxProbe(roots, in_this_process(powerless_mxsml, tmp_path, monkeypatch).env())


class TestMetaxLibraryConformance(ProbeConformance):
    name = "metax"
    vendor_modules = ("pymxsml",)

    @pytest.fixture
    def working(self, fake: FakeLibrary, tmp_path: Path) -> Probe:
        return MetaxProbe(make_roots(tmp_path), fake.env())

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return MetaxProbe(make_roots(tmp_path / "none"), {"PATH": ""})
