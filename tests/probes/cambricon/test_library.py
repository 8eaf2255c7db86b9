"""The probe on the compiled `libcndev.so`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bench.errors import ProbeError
from bench.ports import Probe, ProbeStream
from bench.probes.cambricon import library, structs
from bench.probes.cambricon.probe import CambriconProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots, opened_by_signs
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes import layout
from tests.fakes.library import FakeLibrary, Value
from tests.probes.cambricon import host
from tests.probes.cambricon.conftest import in_this_process
from tests.probes.cambricon.host import MLU370_X8, UIDS
from tests.probes.faults import LibraryFaults
from tests.probes.polling import until
from tests.probes.trees import make_roots, replace_text, roots_env

IDLE, BUSY = UIDS
NOT_SUPPORTED, NO_PERMISSION, TIMEOUT, IN_PROBLEM = 10, 13, 17, 18


def _by_uid(probe: Probe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_card_is_described(probe: CambriconProbe) -> None:
    device = probe.discover().devices[0]
    assert (device.uid, device.name, device.index, device.scope) == (IDLE, "MLU590-M9", 0, "accelerator")
    assert (device.pci, device.driver, device.firmware) == ("0000:39:00.0", "5.10.13", "1.1.6")
    assert (device.memory_total_b, device.power_limit_w) == (98_304 << 20, 250.0)
    assert device.power is not None
    assert device.energy is not None
    assert (device.power.api, device.power.unit) == ("cndevGetDevicePowerInfo[usage]", "W")
    assert (device.energy.api, device.energy.unit) == ("cndevDeviceGetFieldValues[71]", "mJ")
    assert device.reasons == {}


def test_raw_units_become_ours(probe: CambriconProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.power_w, idle.memory_used_b, idle.utilisation, idle.temperature_c, idle.throttle) == (106.0, 0, 0.0, 32.0, ())
    assert (busy.power_w, busy.memory_used_b, busy.utilisation) == (163.0, 65_535 << 20, 0.98)
    assert (busy.temperature_c, busy.clock_mhz, busy.throttle) == (47.0, 1300.0, ("sw_power_cap", "hw_thermal"))


@pytest.mark.parametrize("kind", [0, 2, 3, 5, 6])
def test_the_energy_field_counts_millijoules_in_whatever_type(fake: FakeLibrary, probe: CambriconProbe, kind: int) -> None:
    fake.set("*.energy_type", kind)
    probe.discover()
    fake.set("0.energy_rate_w", 0)
    first = probe.sample(IDLE).energy_j
    fake.set("0.energy", 123_668_789)
    assert first == pytest.approx(123_456.789)
    assert probe.sample(IDLE).energy_j == pytest.approx(123_456.789 + 212)


@pytest.mark.parametrize(("key", "value"), [("energy_type", 7), ("energy", 0), ("energy.ret", NOT_SUPPORTED), ("fields.ret", 5)])
def test_without_a_counter_that_counts_there_is_power(fake: FakeLibrary, probe: CambriconProbe, key: str, value: int) -> None:
    fake.set(f"0.{key}", value)
    device = _by_uid(probe)[IDLE]
    assert device.energy is None
    assert "cndevDeviceGetFieldValues[71]" in device.reasons["energy_j"]
    assert (probe.sample(IDLE).power_w, probe.sample(IDLE).energy_j) == (106.0, None)
    assert probe.sample(BUSY).energy_j is not None


def test_raw_values_are_the_vendors(fake: FakeLibrary, probe: CambriconProbe) -> None:
    probe.discover()
    fake.set("0.energy_rate_w", 0)
    assert [(raw.quantity, raw.value, raw.unit) for raw in probe.raw(IDLE)] == [
        ("power_w", 106.0, "W"),
        ("energy_j", 123_456_789.0, "mJ"),
    ]


def test_a_counter_that_does_not_fit_the_power_is_refused(fake: FakeLibrary, probe: CambriconProbe) -> None:
    fake.set("0.energy_rate_w", 106_000)
    devices = _by_uid(probe)
    assert devices[IDLE].energy is None
    assert "the energy counter rose by" in devices[IDLE].reasons["energy_j"]
    assert devices[BUSY].energy is not None


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("tdp", "board_limit"),
        ("power_setting", "sw_power_cap"),
        ("clock_setting", "application_clocks"),
        ("frequency_locked", "application_clocks"),
        ("power_brake", "hw_power_brake"),
        ("thermal", "hw_thermal"),
    ],
)
def test_limits_in_force(fake: FakeLibrary, probe: CambriconProbe, flag: str, name: str) -> None:
    probe.discover()
    fake.set(f"0.{flag}", 1)
    assert probe.sample(IDLE).throttle == (name,)
    fake.set(f"0.{flag}", 0x5A5A5A5A)
    assert probe.sample(IDLE).throttle is None


@pytest.mark.parametrize(("chip", "board", "celsius"), [(47, 40, 47.0), (0, 40, 40.0), (-1, -1, None), (0, 0, None)])
def test_the_board_where_the_chip_tells_no_temperature(
    fake: FakeLibrary, probe: CambriconProbe, chip: int, board: int, celsius: float | None
) -> None:
    fake.set("0.chip", chip)
    fake.set("0.board", board)
    probe.discover()
    assert probe.sample(IDLE).temperature_c == celsius


@pytest.mark.parametrize("total", [0, -1])
def test_memory_without_a_size_is_none(fake: FakeLibrary, probe: CambriconProbe, total: int) -> None:
    fake.set("0.total", total)
    device = _by_uid(probe)[IDLE]
    assert device.memory_total_b is None
    assert f"memory size of {total}" in device.reasons["memory_used_b"]
    assert probe.sample(IDLE).memory_used_b is None


def test_a_limit_of_0_is_none(fake: FakeLibrary, probe: CambriconProbe) -> None:
    fake.set("0.cap", 0)
    device = _by_uid(probe)[IDLE]
    assert device.power_limit_w is None
    assert "power cap of 0" in device.reasons["power_limit_w"]
    assert probe.sample(IDLE).power_w == 106.0


@pytest.mark.parametrize(
    ("call", "quantity"),
    [
        ("memory", "memory_used_b"),
        ("util", "utilisation"),
        ("temp", "temperature_c"),
        ("clock", "clock_mhz"),
        ("throttle", "throttle"),
    ],
)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, TIMEOUT])
def test_one_failing_call_costs_one_quantity(
    fake: FakeLibrary, probe: CambriconProbe, call: str, quantity: str, code: int
) -> None:
    fake.set(f"0.{call}.ret", code)
    assert f"({code})" in _by_uid(probe)[IDLE].reasons[quantity]
    assert getattr(probe.sample(IDLE), quantity) is None
    assert getattr(probe.sample(BUSY), quantity) is not None


@pytest.mark.parametrize("call", ["name", "uuid", "pci", "version", "sn"])
def test_a_card_without_a_word_of_its_own_is_still_measured(fake: FakeLibrary, probe: CambriconProbe, call: str) -> None:
    fake.set(f"0.{call}.ret", NOT_SUPPORTED)
    first = probe.discover().devices[0]
    assert first.uid == ("cambricon:pci:0000:39:00.0" if call == "uuid" else IDLE)
    assert probe.sample(first.uid).power_w == 106.0


@pytest.mark.parametrize("uuid", ["00000000-0000-0000-0000-000000000000", "N/A"])
def test_an_empty_uuid_names_nobody(fake: FakeLibrary, probe: CambriconProbe, uuid: str) -> None:
    fake.set("*.uuid", uuid)
    fake.set("0.uuid", uuid)
    fake.set("1.uuid", uuid)
    assert [device.uid for device in probe.discover().devices] == ["cambricon:pci:0000:39:00.0", "cambricon:pci:0000:3d:00.0"]


@pytest.mark.parametrize("call", ["handle", "uuid"])
def test_a_card_that_can_not_be_opened_costs_itself(fake: FakeLibrary, probe: CambriconProbe, call: str) -> None:
    fake.set(f"0.{call}.ret", IN_PROBLEM)
    found = probe.discover()
    assert [device.uid for device in found.devices] == [BUSY]
    (problem,) = found.problems
    assert (problem.subject, "the device is in problem (18)" in problem.problem) == ("cambricon:0", True)


def test_engines_count_cards_as_the_library_does(probe: CambriconProbe) -> None:
    assert resolve(probe.discover().devices, [BUSY]).visibility_env == {"MLU_VISIBLE_DEVICES": "1"}


class TestVersions:
    @pytest.mark.parametrize("api", [5, 6])
    def test_the_one_that_the_library_speaks_is_found(self, fake: FakeLibrary, probe: CambriconProbe, api: int) -> None:
        fake.set("api", api)
        fake.set("1.processes", "4242:1024")
        device = _by_uid(probe)[BUSY]
        assert (device.driver, device.reasons) == ("5.10.13", {})
        reading = probe.sample(BUSY)
        assert (reading.power_w, reading.utilisation, reading.temperature_c, reading.clock_mhz) == (163.0, 0.98, 47.0, 1300.0)
        assert reading.throttle == ("sw_power_cap", "hw_thermal")

    def test_none_that_it_speaks_is_told(self, fake: FakeLibrary, probe: CambriconProbe, roots: Roots) -> None:
        fake.set("api", 7)
        replace_text(roots.dev / "cambricon_ctl", "")
        found = probe.discover()
        assert found.devices == ()
        assert "cndevGetDeviceCount: unsupported API version (3)" in found.problems[0].problem

    @pytest.mark.parametrize("api", [5, 6])
    def test_an_older_driver_has_other_calls(self, old: FakeLibrary, roots: Roots, api: int) -> None:
        old.set("api", api)
        probe = CambriconProbe(roots, old.env(), check_s=0.08)
        device = _by_uid(probe)[BUSY]
        assert (device.pci, device.memory_total_b, device.power_limit_w) == ("0000:3d:00.0", 98_304 << 20, 250.0)
        assert device.power is not None
        assert device.power.api == "cndevGetPowerInfo[usage]"
        assert "has no cndevDeviceGetFieldValues" in device.reasons["energy_j"]
        assert (probe.sample(BUSY).power_w, probe.sample(BUSY).memory_used_b) == (163.0, 65_535 << 20)
        probe.close()


class TestTwoChips:
    """An MLU370-X8 is listed twice, with the power of the whole card each time."""

    def test_the_power_of_a_card_is_counted_once(self, fake: FakeLibrary, probe: CambriconProbe) -> None:
        fake.show(2, MLU370_X8)
        first, second = probe.discover().devices
        assert (first.covers, second.board) == ((second.uid,), first.uid)
        assert (probe.sample(first.uid).power_w, probe.sample(second.uid).power_w) == (163.0, None)
        assert (first.power_limit_w, second.power_limit_w) == (250.0, None)
        assert f"measured with {first.uid}" in (second.power_reason or "")
        assert probe.sample(second.uid).memory_used_b == 18_544 << 20

    def test_what_their_counters_count_is_not_known(self, fake: FakeLibrary, probe: CambriconProbe) -> None:
        fake.show(2, MLU370_X8)
        first, second = probe.discover().devices
        assert (first.energy, second.energy) == (None, None)
        assert "not documented" in first.reasons["energy_j"]

    @pytest.mark.parametrize(
        ("serials", "boards"),
        [
            ((0xA, 0xA, 0xB, 0xB), [0, 0, 2, 2]),
            ((0xA, 0xB, 0xA, 0xB), [0, 1, 0, 1]),
            ((0, 0, 0, 0), [0, 0, 2, 2]),
            ((0xA, 0xB, 0xB, 0), [0, 1, 1, 0]),
        ],
    )
    def test_chips_of_one_serial_number_else_neighbours(
        self, fake: FakeLibrary, probe: CambriconProbe, serials: tuple[int, ...], boards: list[int]
    ) -> None:
        fake.show(4, {**MLU370_X8, **{f"{chip}.sn": serial for chip, serial in enumerate(serials)}})
        for chip in range(4):
            fake.set(f"{chip}.uuid", f"00000000-0000-0000-0000-00000000000{chip + 1}")
        devices = probe.discover().devices
        assert [device.board for device in devices] == [devices[board].uid for board in boards]
        assert sum(device.power is not None for device in devices) == 2

    def test_a_chip_by_itself_keeps_its_power(self, fake: FakeLibrary, probe: CambriconProbe) -> None:
        fake.show(1, MLU370_X8)
        (only,) = probe.discover().devices
        assert (only.covers, probe.sample(only.uid).power_w) == ((), 163.0)

    def test_other_cards_of_one_serial_number_stay_by_themselves(self, probe: CambriconProbe) -> None:
        """Modules on a baseboard may share its number."""
        assert [device.covers for device in probe.discover().devices] == [(), ()]


class TestProcesses:
    @pytest.fixture(autouse=True)
    def _on_the_host(self, roots: Roots) -> None:
        replace_text(roots.proc / "2/comm", "kthreadd\n")

    @pytest.mark.parametrize("foreign", [0, 1, 15, 16, 100])
    @pytest.mark.parametrize("api", [5, 6])
    def test_memory_by_process_and_foreign_ones(self, fake: FakeLibrary, probe: CambriconProbe, api: int, foreign: int) -> None:
        """The list may be longer than the room for it."""
        fake.set("api", api)
        fake.set("0.inits", foreign)
        fake.set("0.processes", f"{os.getpid()}:2048,{os.getpid()}:1024")
        probe.discover()
        probe.watch([os.getpid()])
        reading = probe.sample(IDLE)
        assert reading.engine_memory_b == 3072 << 10
        assert reading.foreign_processes == min(foreign, 1)

    def test_refused_is_not_0(self, fake: FakeLibrary, probe: CambriconProbe) -> None:
        fake.set("0.processes.ret", NO_PERMISSION)
        probe.discover()
        probe.watch([os.getpid()])
        assert (probe.sample(IDLE).engine_memory_b, probe.sample(IDLE).foreign_processes) == (None, None)


def test_layouts_are_those_of_the_header(neuware: Path) -> None:
    ours = {
        "cndevCardInfo_t": structs.CardInfo,
        "cndevUUID_t": structs.Uuid,
        "cndevCardSN_t": structs.CardSerial,
        "cndevVersionInfo_t": structs.VersionInfo,
        "cndevMemoryInfoV2_t": structs.MemoryV2,
        "cndevMemoryInfo_t": structs.Memory,
        "cndevDevicePowerInfo_t": structs.DevicePower,
        "cndevPowerInfo_t": structs.Power,
        "cndevTemperatureInfo_t": structs.Temperature,
        "cndevUtilizationInfo_t": structs.Utilisation,
        "cndevFrequencyInfo_t": structs.Frequency,
        "cndevPerformanceThrottleReason_t": structs.ThrottleReason,
        "cndevProcessInfo_t": structs.Process,
        "cndevPCIeInfoV2_t": structs.PcieV2,
        "cndevPCIeInfo_t": structs.Pcie,
        "cndevValue_t": structs.Value,
        "cndevFieldValue_t": structs.FieldValue,
    }
    compiled = layout.of_fake(neuware / "lib64/libcndev.so")
    assert {name.partition(".")[0] for name in compiled} == set(ours)
    assert layout.of_ctypes(ours, compiled) == compiled


class TestSigns:
    @pytest.mark.parametrize("path", ["cambricon_ctl", "cambricon_dev0", None])
    def test_a_card_opens_the_probe(self, roots: Roots, path: str | None) -> None:
        env = {**roots_env(roots), "LD_LIBRARY_PATH": ""}
        assert "cambricon" not in opened_by_signs(env)
        if path is None:
            _add_card(roots)
        else:
            replace_text(roots.dev / path, "")
        assert "cambricon" in opened_by_signs(env)

    def test_a_card_without_its_library_is_told_with_the_fix(self, roots: Roots) -> None:
        _add_card(roots)
        found = CambriconProbe(roots, {"PATH": "", "NEUWARE_HOME": "/nowhere"}).discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert "/nowhere/lib64/libcndev.so" in problem.problem
        assert "modprobe cambricon_drv" in problem.fix

    def test_the_neuware_that_the_environment_names_comes_first(self) -> None:
        assert library.candidates({"NEUWARE_HOME": "/opt/neuware"})[:3] == [
            "/opt/neuware/lib64/libcndev.so",
            "/opt/neuware/lib/libcndev.so",
            "libcndev.so",
        ]
        assert library.candidates({})[0] == "libcndev.so"


def _add_card(roots: Roots) -> None:
    folder = roots.sysfs / "bus/pci/devices/0000:39:00.0"
    replace_text(folder / "vendor", "0xcabc\n")
    replace_text(folder / "class", "0x120000\n")


class TestCambriconLibraryConformance(ProbeConformance):
    name = "cambricon"

    @pytest.fixture
    def working(self, probe: CambriconProbe) -> Probe:
        return probe

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return CambriconProbe(make_roots(tmp_path / "none"), {"PATH": ""})


class TestCambriconTwoChipsConformance(TestCambriconLibraryConformance):
    @pytest.fixture
    def working(self, fake: FakeLibrary, probe: CambriconProbe) -> Probe:
        fake.show(4, MLU370_X8)
        return probe


class TestCambriconFaults(LibraryFaults):
    name = "cambricon"
    codes: ClassVar = {"not_supported": NOT_SUPPORTED, "no_permission": NO_PERMISSION, "lost": IN_PROBLEM, "timeout": TIMEOUT}
    no_readings: ClassVar[tuple[Value, ...]] = (0, -1, 0xFFFF, 0x7FFFFFFF, 501)

    @pytest.fixture
    def without(self, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
        fake = in_this_process(host.library(tmp_path / "less", "FAKE_NO_POWER"), tmp_path, monkeypatch)
        probe = CambriconProbe(roots, fake.env(), check_s=0.08)
        yield probe
        probe.close()

    def test_a_driver_that_goes_away_is_told(self, child: Callable[[], ProbeStream], fake: FakeLibrary) -> None:
        stream = child()
        fake.set("1.power.ret", 1)
        until(lambda: any("no driver (1)" in problem.problem for problem in stream.discovery().problems))

    @pytest.mark.parametrize("code", [1, 4, 6, 12, 18])
    def test_codes_of_a_lost_card(self, fake: FakeLibrary, probe: CambriconProbe, code: int) -> None:
        probe.discover()
        fake.set("0.power.ret", code)
        with pytest.raises(ProbeError, match=rf"\({code}\)"):
            probe.sample(IDLE)
