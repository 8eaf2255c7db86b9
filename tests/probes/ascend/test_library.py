"""The probe through ctypes on the compiled DCMI."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes.ascend.probe import AscendProbe
from bench.probes.presence import Roots
from bench.records import DeviceInfo
from tests.fakes.library import FakeLibrary, Value
from tests.probes.ascend import host
from tests.probes.polling import until
from tests.probes.programs import install
from tests.probes.trees import replace_text

NOT_SUPPORTED, NOT_PERMITTED, TIMEOUT, NO_DEVICE, OCCUPIED = -8255, -8002, -8006, -8008, -8020
MIB = 1 << 20


def uid(chip: int) -> str:
    return "NPU-" + "-".join(f"{0xD1E00000 + 16 * chip + word:08x}" for word in range(5))


def devices(probe: AscendProbe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_chip_is_described(probe: AscendProbe) -> None:
    device = devices(probe)[uid(1)]
    assert (device.name, device.index, device.scope, device.pci) == ("Ascend 910B2", 1, "accelerator", "0000:01:00.0")
    assert (device.driver, device.firmware, device.memory_total_b) == ("25.2.0", "7.7.0.6.236", 65536 * MIB)
    assert device.power is not None
    assert (device.power.api, device.power.unit) == ("dcmi_get_device_power_info", "0.1 W")
    assert (device.energy, device.power_limit_w) == (None, None)
    assert set(device.reasons) == {"energy_j", "power_limit_w", "throttle"}


def test_raw_units_become_ours(fake: FakeLibrary, probe: AscendProbe) -> None:
    probe.discover()
    reading = probe.sample(uid(0))
    assert (reading.power_w, reading.memory_used_b) == (101.4, 46456 * MIB)
    assert (reading.utilisation, reading.temperature_c, reading.clock_mhz) == (0.0, 38.0, 1800.0)
    assert (reading.energy_j, reading.throttle) == (None, None)
    (raw,) = probe.raw(uid(0))
    assert (raw.value, raw.unit) == (1014.0, "0.1 W")
    fake.set("0.use", 97)
    assert probe.sample(uid(0)).utilisation == 0.97


@pytest.mark.parametrize(
    ("nodes", "shared"),
    [
        (("davinci0", "davinci1", "davinci_manager"), [False, False]),
        (("davinci0", "davinci1", "vdavinci117"), [False, True]),
        (("vdavinci100", "vdavinci131"), [True, True]),
        (("davinci100",), [True, False]),
        (("vdavinci300",), [True, True]),  # of a chip that is not listed: whose slice it is nobody knows
    ],
)
def test_a_chip_cut_into_vnpus_is_shared(probe: AscendProbe, roots: Roots, nodes: tuple[str, ...], shared: list[bool]) -> None:
    for node in nodes:
        replace_text(roots.dev / node, "")
    found = devices(probe)
    assert [found[uid(chip)].shared is not None for chip in (0, 1)] == shared
    assert all("vNPU" in (device.shared or "vNPU") for device in found.values())


class TestOneSensorForACard:
    """Read once and never added twice."""

    @pytest.mark.parametrize("second", [None, 1788, 1786])
    def test_of_two_dies_the_first_tells_the_card(self, fake: FakeLibrary, probe: AscendProbe, second: int | None) -> None:
        """Drivers answer for the second die, too; the vendor's tool hides that."""
        fake.show(4, host.A3)
        fake.set("1.power", second)
        found = devices(probe)
        assert found[uid(0)].covers == (uid(1),)
        assert found[uid(2)].covers == (uid(3),)
        assert [found[uid(die)].power is None for die in range(4)] == [False, True, False, True]
        assert uid(0) in (found[uid(1)].power_reason or "")
        assert [probe.sample(uid(die)).power_w for die in range(4)] == [178.8, None, 185.4, None]
        assert [probe.sample(uid(die)).memory_used_b for die in range(4)] == [n * MIB for n in (3397, 3186, 3397, 3185)]

    def test_a_310p_duo_has_one_in_its_microcontroller(self, fake: FakeLibrary, probe: AscendProbe) -> None:
        fake.show(2, host.DUO)
        first, second = probe.discover().devices
        assert first.covers == (second.uid,)
        assert first.power is not None
        assert first.power.api == "dcmi_mcu_get_power_info"
        assert [probe.sample(device.uid).power_w for device in (first, second)] == [45.2, None]
        assert [probe.sample(device.uid).memory_used_b for device in (first, second)] == [1529 * MIB, 1412 * MIB]
        assert (first.memory_total_b, second.memory_total_b) == (44280 * MIB, 43693 * MIB)

    @pytest.mark.parametrize("name", ["310P3", "310P", "310"])
    def test_what_such_a_chip_says_of_itself_is_not_taken(self, fake: FakeLibrary, probe: AscendProbe, name: str) -> None:
        """A 310 tells its rated power, and the tool asks no 310P for any."""
        fake.show(2, {**host.DUO, "*.name": name, "*.power": 128})
        first = probe.discover().devices[0]
        assert probe.sample(first.uid).power_w == 45.2
        fake.set("*.mcu", None)
        first = probe.discover().devices[0]
        assert first.power is None
        assert "-8255" in (first.power_reason or "")

    @pytest.mark.parametrize("mark", [0x7FFD, 0x7FFF, 0xFFFF])
    def test_the_microcontrollers_marks_are_missing(self, fake: FakeLibrary, probe: AscendProbe, mark: int) -> None:
        fake.show(2, host.DUO)
        first = probe.discover().devices[0]
        fake.set("*.mcu", mark)
        assert probe.sample(first.uid).power_w is None

    @pytest.mark.parametrize("name", ["910B3", "Ascend910", "310B1"])
    def test_others_measure_the_chip_and_the_cards_sensor_is_not_added(
        self, fake: FakeLibrary, probe: AscendProbe, name: str
    ) -> None:
        fake.show(1, {**host.A2, "*.name": name, "*.mcu": 3400, "0.power": 2145})
        (device,) = probe.discover().devices
        assert probe.sample(device.uid).power_w == 214.5
        assert device.covers == ()


class TestA950:
    def test_is_read_by_the_flat_calls(self, fake: FakeLibrary, probe: AscendProbe) -> None:
        fake.show(2, host.A5)
        first, second = probe.discover().devices
        assert (second.name, second.pci, second.driver, second.visible_as) == ("Ascend950PR", "0000:3b:00.0", "26.1.rc1", "1")
        assert second.power is not None
        assert second.power.api == "dcmiv2_get_device_power_info"
        assert (first.uid, second.uid) == (uid(0), uid(1))
        reading = probe.sample(second.uid)
        assert (reading.power_w, reading.memory_used_b, reading.utilisation) == (421.0, 100_000 * MIB, 0.93)
        assert (reading.temperature_c, reading.clock_mhz) == (71.0, 1650.0)
        assert (first.covers, second.covers) == ((), ())

    def test_without_power_says_so(self, fake: FakeLibrary, probe: AscendProbe) -> None:
        fake.show(2, host.A5)
        fake.set("0.power.ret", NOT_SUPPORTED)
        first, second = probe.discover().devices
        assert "-8255" in (first.power_reason or "")
        assert second.power is not None

    def test_a_driver_that_serves_neither_generation_says_both(self, fake: FakeLibrary, probe: AscendProbe, roots: Roots) -> None:
        replace_text(roots.dev / "davinci_manager", "")
        fake.set("generation", 3)
        (problem,) = probe.discover().problems
        assert "dcmi_init: NOT_SUPPORT (-8255)" in problem.problem
        assert "dcmiv2_init: NOT_SUPPORT (-8255)" in problem.problem


class TestMemory:
    def test_without_hbm_it_is_the_ddr(self, fake: FakeLibrary, probe: AscendProbe) -> None:
        fake.show(1, {**host.A2, "*.hbm": 0, "*.ddr": 15137, "*.ddr_free": 10820})
        (device,) = probe.discover().devices
        assert (device.memory_total_b, probe.sample(device.uid).memory_used_b) == (15137 * MIB, 4317 * MIB)

    @pytest.mark.parametrize(("total", "used"), [(65536 * 1024, 46456 * 1024), (65536 << 20, 1), (65536, 65537), (0, 0)])
    def test_sizes_in_another_unit_are_missing(self, fake: FakeLibrary, probe: AscendProbe, total: int, used: int) -> None:
        fake.set("0.hbm", total)
        fake.set("0.hbm_used", used)
        device = devices(probe)[uid(0)]
        assert device.memory_total_b is None
        assert f"{used} of {total} MB" in device.reasons["memory_used_b"]
        assert probe.sample(uid(0)).memory_used_b is None
        assert probe.sample(uid(1)).memory_used_b == 3395 * MIB


@pytest.mark.parametrize(
    ("call", "quantity"),
    [("power", "power_w"), ("hbm", "memory_used_b"), ("temp", "temperature_c"), ("clock", "clock_mhz")],
)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NOT_PERMITTED, TIMEOUT])
def test_one_failing_call_costs_one_quantity(fake: FakeLibrary, probe: AscendProbe, call: str, quantity: str, code: int) -> None:
    fake.set(f"0.{call}.ret", code)
    device = devices(probe)[uid(0)]
    reason = device.power_reason if quantity == "power_w" else device.reasons[quantity]
    assert str(code) in (reason or "")
    assert getattr(probe.sample(uid(0)), quantity) is None
    assert getattr(probe.sample(uid(1)), quantity) is not None


@pytest.mark.parametrize("call", ["chip", "pcie", "die", "component", "type", "logic"])
def test_what_only_describes_may_be_missing(fake: FakeLibrary, probe: AscendProbe, call: str) -> None:
    fake.set(f"0.{call}.ret", NOT_SUPPORTED)
    first, second = probe.discover().devices
    assert (probe.sample(first.uid).power_w, probe.sample(second.uid).power_w) == (101.4, 96.9)
    assert (first.index, second.index) == (0, 1)


@pytest.mark.parametrize("call", ["chip", "pcie", "die", "component", "type", "hbm", "use", "temp", "power"])
def test_a_lost_chip_costs_itself_at_the_start(fake: FakeLibrary, probe: AscendProbe, call: str) -> None:
    fake.set(f"0.{call}.ret", NO_DEVICE)
    found = probe.discover()
    assert probe.sample(uid(1)).power_w == 96.9
    assert any("-8008" in problem.problem for problem in found.problems) or call == "type"


def test_a_card_whose_chips_cannot_be_counted_costs_itself(fake: FakeLibrary, probe: AscendProbe) -> None:
    fake.set("0.count.ret", TIMEOUT)
    found = probe.discover()
    assert [device.uid for device in found.devices] == [uid(1)]
    assert [(problem.subject, "-8006" in problem.problem) for problem in found.problems] == [("card 0", True)]


@pytest.mark.parametrize("mark", [0, 0xFFFFFFFF])
def test_a_die_without_a_number_goes_by_its_address(fake: FakeLibrary, probe: AscendProbe, mark: int) -> None:
    fake.set("*.die", mark)
    fake.set("devices", 1)
    assert list(devices(probe)) == ["ascend:pci:0000:c1:00.0"]
    fake.set("devices", 2)
    assert list(devices(probe)) == ["ascend:pci:0000:c1:00.0", "ascend:pci:0000:01:00.0"]


def test_two_chips_behind_one_address_without_numbers_are_two(fake: FakeLibrary, probe: AscendProbe) -> None:
    fake.show(2, {**host.DUO, "*.die": 0})
    assert list(devices(probe)) == ["ascend:0", "ascend:1"]


def test_the_runtimes_numbers_are_the_logic_ids(fake: FakeLibrary, probe: AscendProbe) -> None:
    fake.set("0.logic", 6)
    fake.set("1.logic", 2)
    assert [device.visible_as for device in probe.discover().devices] == ["6", "2"]


def test_a_microcontroller_is_no_device(fake: FakeLibrary, probe: AscendProbe) -> None:
    fake.set("counts_mcu", 1)
    found = probe.discover()
    assert (len(found.devices), found.problems) == (2, ())


@pytest.mark.parametrize(("machine", "chip"), [(host.A2, 0), (host.A5, 1)])
def test_memory_of_the_engine_is_that_of_its_processes(
    fake: FakeLibrary, roots: Roots, machine: dict[str, Value], chip: int
) -> None:
    fake.show(2, machine)
    replace_text(roots.proc / "2/comm", "kthreadd\n")
    probe = AscendProbe(roots, fake.env(), harness_pid=1)
    probe.discover()
    probe.watch([41077, 77])
    fake.set(f"{chip}.pids", "41077:1000,77:2500,1:7")
    assert probe.sample(uid(chip)).engine_memory_b == 3507
    assert probe.sample(uid(chip)).foreign_processes == 0.0
    probe.close()


class TestOldDriver:
    def test_lacks_calls_and_is_read_by_older_ones(self, old: FakeLibrary, roots: Roots) -> None:
        old.show(1, {**host.A2, "0.use": 41})
        probe = AscendProbe(roots, old.env())
        (device,) = probe.discover().devices
        assert device.name == "Ascend 910B2"
        assert "libdcmi.so has no dcmi_get_device_power_info" in (device.power_reason or "")
        reading = probe.sample(device.uid)
        assert (reading.utilisation, reading.memory_used_b) == (0.41, 46456 * MIB)
        probe.close()


class TestSlowUse:
    """Some drivers need 36 ms to tell how busy a chip is: power must not wait for that at each poll."""

    def test_is_asked_for_in_a_thread(self, fake: FakeLibrary, probe: AscendProbe) -> None:
        fake.set("0.use", 64)
        fake.set("0.use.hang_s", 1)
        probe.discover()
        assert _pollers() == ["poll-card 0 chip 0 use"]
        assert (probe.sample(uid(0)).utilisation, probe.sample(uid(1)).utilisation) == (0.64, 0.0)
        probe.close()
        until(lambda: not _pollers())

    def test_a_chip_that_is_lost_there_is_told_by_its_power(self, fake: FakeLibrary, probe: AscendProbe) -> None:
        fake.set("0.use.hang_s", 1)
        probe.discover()
        fake.set("*.use.ret", NO_DEVICE)
        assert probe.sample(uid(0)).power_w == 101.4
        with pytest.raises(ProbeError, match="-8008"):
            probe.sample(uid(1))


def _pollers() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("poll-"))


class TestProblems:
    def test_an_occupied_npu_says_who_and_what_to_do(self, fake: FakeLibrary, probe: AscendProbe, roots: Roots) -> None:
        replace_text(roots.dev / "davinci0", "")
        fake.set("*.init.ret", OCCUPIED)
        (problem,) = probe.discover().problems
        assert "device node" in problem.subject
        assert "another container has it (-8020)" in problem.problem
        assert "one container at a time" in problem.fix

    def test_nodes_without_a_driver_are_a_problem_with_a_fix(self, roots: Roots, tmp_path: Path) -> None:
        replace_text(roots.dev / "davinci_manager", "")
        probe = AscendProbe(roots, {"PATH": "", "ASCEND_DRIVER_PATH": str(tmp_path / "nothing")})
        (problem,) = probe.discover().problems
        assert "no Ascend NPU can be seen" in problem.problem
        assert "/dev/davinci_manager" in problem.fix

    def test_without_permission_power_is_a_problem_with_a_fix(
        self, fake: FakeLibrary, probe: AscendProbe, tmp_path: Path
    ) -> None:
        fake.env_of = {**fake.env_of, "PATH": str(install(tmp_path / "bin", "npu-smi", {}, {"info": "no permission"}).parent)}
        probe = AscendProbe(probe.roots, fake.env())
        fake.set("*.power.ret", NOT_PERMITTED)
        found = probe.discover()
        assert [device.power for device in found.devices] == [None, None]
        (problem,) = found.problems
        assert "HwHiAiUser" in problem.fix

    def test_a_server_of_the_same_maker_without_npu_is_silent(self, roots: Roots) -> None:
        """Its management controller shows a graphics adapter, its mainboard network cards."""
        for address, kind in (("0000:02:00.0", "0x030000"), ("0000:7d:00.0", "0x020000")):
            replace_text(roots.sysfs / f"bus/pci/devices/{address}/vendor", "0x19e5\n")
            replace_text(roots.sysfs / f"bus/pci/devices/{address}/class", f"{kind}\n")
        probe = AscendProbe(roots, {"PATH": ""})
        assert probe.sign() is None
        assert probe.discover() == Discovery()
        replace_text(roots.sysfs / "bus/pci/devices/0000:c1:00.0/vendor", "0x19e5\n")
        replace_text(roots.sysfs / "bus/pci/devices/0000:c1:00.0/class", "0x120000\n")
        assert probe.sign() == "PCI device 0000:c1:00.0"
