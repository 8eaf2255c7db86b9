"""The probe on the compiled `librocm_smi64.so`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.hygon import rsmi
from bench.probes.hygon.probe import HygonProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots
from bench.records import DeviceInfo
from tests.fakes import layout
from tests.fakes.library import FakeLibrary
from tests.probes.hygon.conftest import Bound, Opened
from tests.probes.hygon.host import BUSY, IDLE
from tests.probes.trees import replace_text


def _by_uid(probe: Probe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_card_is_described(probe: HygonProbe) -> None:
    found = probe.discover()
    device = found.devices[0]
    assert (device.uid, device.name, device.index, device.pci) == (IDLE, "BW1000", 0, "0000:09:00.0")
    assert (device.driver, device.firmware, device.scope) == ("6.3.31", "5.013.000.000000", "accelerator")
    assert (device.memory_total_b, device.power_limit_w) == (68_702_699_520, 1000.0)
    assert device.power is not None
    assert (device.power.api, device.power.unit) == ("rsmi_dev_power_ave_get", "uW")
    assert found.problems == ()


def test_raw_units_become_ours(probe: HygonProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.power_w, idle.memory_used_b, idle.utilisation) == (80.0, 2_097_152, 0.0)
    assert (idle.temperature_c, idle.clock_mhz) == (50.0, 600.0)
    assert (busy.power_w, busy.utilisation, busy.temperature_c, busy.clock_mhz) == (512.0, 0.99, 52.0, 1500.0)
    assert [(raw.api, raw.unit, raw.value) for raw in probe.raw(BUSY)] == [("rsmi_dev_power_ave_get", "uW", 512e6)]


def test_what_is_never_told_has_its_reason(probe: HygonProbe) -> None:
    reasons = _by_uid(probe)[IDLE].reasons
    assert "bits its header does not name" in reasons["throttle"]
    assert "rsmi_dev_energy_count_get: not supported (2)" in reasons["energy_j"]


def test_the_power_of_now_where_there_is_no_average(fake: FakeLibrary, probe: HygonProbe) -> None:
    fake.set("0.power", None)
    fake.set("0.current", 91_500_000)
    power = _by_uid(probe)[IDLE].power
    assert power is not None
    assert power.api == "rsmi_dev_power_get"
    assert probe.sample(IDLE).power_w == 91.5
    assert probe.sample(BUSY).power_w == 512.0


class TestEnergyCounter:
    @pytest.mark.parametrize(("resolution", "counts_per_j"), [("15.3", 65536), ("15.259", 65536), ("1000", 1000)])
    def test_it_is_kept_where_it_fits_the_power(
        self, fake: FakeLibrary, probe: HygonProbe, resolution: str, counts_per_j: int
    ) -> None:
        fake.set("0.energy", 1000 * counts_per_j)
        fake.set("0.resolution", resolution)
        fake.set("0.energy_rate_w", 80)
        energy = _by_uid(probe)[IDLE].energy
        assert energy is not None
        assert energy.api == "rsmi_dev_energy_count_get"
        fake.set("0.energy_rate_w", 0)
        assert probe.sample(IDLE).energy_j == 1000.0

    @pytest.mark.parametrize("rate_w", [1600, 4, 0])
    def test_it_is_refused_where_it_does_not(self, fake: FakeLibrary, probe: HygonProbe, rate_w: int) -> None:
        fake.set("0.energy", 65_536_000)
        fake.set("0.energy_rate_w", rate_w)
        device = _by_uid(probe)[IDLE]
        assert device.energy is None
        assert "the energy counter" in device.reasons["energy_j"]
        assert probe.sample(IDLE).power_w == 80.0

    @pytest.mark.parametrize("counts", [0, (1 << 64) - 1])
    def test_no_count_is_no_counter(self, fake: FakeLibrary, probe: HygonProbe, counts: int) -> None:
        fake.set("0.energy", counts)
        assert _by_uid(probe)[IDLE].energy is None

    def test_without_power_to_hold_it_against_it_is_not_taken(self, powerless_rocmsmi: Path, bind: Bound, opened: Opened) -> None:
        shown = bind(powerless_rocmsmi)
        shown.set("*.energy", 65_536_000)
        shown.set("*.energy_rate_w", 80)
        assert all(device.energy is None for device in opened(shown).discover().devices)


class TestClock:
    @pytest.mark.parametrize("lowest", [0, 1, 300_000_000, (1 << 64) - 1])
    def test_both_forms_of_the_list(self, fake: FakeLibrary, old_rocmsmi: Path, bind: Bound, opened: Opened, lowest: int) -> None:
        for compiled in (fake.path, old_rocmsmi):
            shown = bind(compiled)
            shown.set("*.lowest", lowest)
            probe = opened(shown)
            probe.discover()
            assert [probe.sample(uid).clock_mhz for uid in (IDLE, BUSY)] == [600.0, 1500.0]

    def test_with_deep_sleep(self, fake: FakeLibrary, probe: HygonProbe) -> None:
        fake.set("*.deep", 1)
        probe.discover()
        assert probe.sample(BUSY).clock_mhz == 1500.0

    @pytest.mark.parametrize("hz", [0, 1, 0xFFFFFFFF, (1 << 64) - 1])
    def test_no_frequency_is_missing(self, fake: FakeLibrary, probe: HygonProbe, hz: int) -> None:
        probe.discover()
        fake.set("0.clock", hz)
        assert probe.sample(IDLE).clock_mhz is None


@pytest.mark.parametrize(("left", "celsius"), [("junction", 50.0), ("edge", 47.0), ("core", 49.0)])
def test_the_hottest_part_that_is_told(fake: FakeLibrary, probe: HygonProbe, left: str, celsius: float) -> None:
    for sensor in ("junction", "edge", "core")[: ("junction", "edge", "core").index(left)]:
        fake.set(f"0.{sensor}", None)
    probe.discover()
    assert probe.sample(IDLE).temperature_c == celsius


@pytest.mark.parametrize(
    ("key", "quantity"),
    [
        ("used", "memory_used_b"),
        ("busy", "utilisation"),
        ("temp", "temperature_c"),
        ("clock", "clock_mhz"),
        ("energy", "energy_j"),
    ],
)
@pytest.mark.parametrize("code", [2, 4, 0xFFFFFFFF])
def test_one_failing_call_costs_one_quantity(fake: FakeLibrary, probe: HygonProbe, key: str, quantity: str, code: int) -> None:
    fake.set("*.energy", 65_536_000)
    fake.set("*.energy_rate_w", 80)
    fake.set("1.energy_rate_w", 512)
    fake.set(f"0.{key}.ret", code)
    assert f"({code if code < 100 else -1})" in _by_uid(probe)[IDLE].reasons[quantity]
    assert getattr(probe.sample(IDLE), quantity) is None
    assert getattr(probe.sample(BUSY), quantity) is not None


@pytest.mark.parametrize(
    ("key", "value", "attribute"),
    [("total", 0, "memory_total_b"), ("total", (1 << 64) - 1, "memory_total_b"), ("cap", 0, "power_limit_w")],
)
def test_no_size_and_no_cap_are_none(fake: FakeLibrary, probe: HygonProbe, key: str, value: int, attribute: str) -> None:
    fake.set(f"0.{key}", value)
    devices = _by_uid(probe)
    assert getattr(devices[IDLE], attribute) is None
    assert devices[IDLE].reasons[attribute]
    assert getattr(devices[BUSY], attribute) is not None


@pytest.mark.parametrize("percent", [101, 0xFFFF, 0xFFFFFFFF])
def test_more_than_wholly_busy_is_missing(fake: FakeLibrary, probe: HygonProbe, percent: int) -> None:
    probe.discover()
    fake.set("0.busy", percent)
    assert probe.sample(IDLE).utilisation is None


class TestIdentity:
    @pytest.mark.parametrize("call", ["vendor", "device_id", "name", "unique_id", "bdf", "vbios", "driver"])
    @pytest.mark.parametrize("code", [2, 8])
    def test_a_card_without_a_word_of_its_own_is_still_measured(
        self, fake: FakeLibrary, probe: HygonProbe, call: str, code: int
    ) -> None:
        fake.set(f"*.{call}.ret", code)
        first = probe.discover().devices[0]
        assert first.uid == ("hygon:pci:0000:09:00.0" if call == "unique_id" else IDLE)
        assert first.name == ("Hygon DCU 0x6320" if call == "name" else "BW1000")
        assert probe.sample(first.uid).power_w == 80.0

    @pytest.mark.parametrize("name", ["0x6320", "N/A"])
    def test_a_number_is_no_name(self, fake: FakeLibrary, probe: HygonProbe, name: str) -> None:
        fake.set("*.name", name)
        assert probe.discover().devices[0].name == "Hygon DCU 0x6320"

    @pytest.mark.parametrize("unique_id", [0, (1 << 64) - 1, 0xA000000000000002])
    def test_an_id_that_tells_no_card_from_another_is_not_used(
        self, fake: FakeLibrary, probe: HygonProbe, unique_id: int
    ) -> None:
        fake.set("0.unique_id", unique_id)
        assert probe.discover().devices[0].uid == "hygon:pci:0000:09:00.0"

    def test_an_address_with_domain_and_function(self, fake: FakeLibrary, probe: HygonProbe) -> None:
        fake.set("0.bdf", 0x1_0000_C9FA)
        assert _by_uid(probe)[IDLE].pci == "0001:c9:1f.2"

    def test_engines_see_cards_by_number(self, probe: HygonProbe) -> None:
        assert resolve(probe.discover().devices, ["hygon:1"]).visibility_env == {"HIP_VISIBLE_DEVICES": "1"}


class TestProcesses:
    def test_ours_and_others(self, fake: FakeLibrary, probe: HygonProbe, roots: Roots) -> None:
        replace_text(roots.proc / "2/comm", "kthreadd\n")
        fake.set("0.pids", f"{os.getpid()},1")
        fake.set(f"0.process_{os.getpid()}", 4096)
        fake.set("0.process_1", 7)
        fake.set("1.pids", "1")
        seeing = HygonProbe(roots, fake.env(), check_s=0.08)
        seeing.discover()
        seeing.watch([os.getpid()])
        idle, busy = seeing.sample(IDLE), seeing.sample(BUSY)
        seeing.close()
        assert (idle.engine_memory_b, idle.foreign_processes) == (4096, 1.0)
        assert (busy.engine_memory_b, busy.foreign_processes) == (0, 1.0)

    def test_memory_that_is_not_told_is_missing(self, fake: FakeLibrary, probe: HygonProbe, roots: Roots) -> None:
        replace_text(roots.proc / "2/comm", "kthreadd\n")
        fake.set("0.pids", str(os.getpid()))
        seeing = HygonProbe(roots, fake.env(), check_s=0.08)
        seeing.discover()
        seeing.watch([os.getpid()])
        reading = seeing.sample(IDLE)
        seeing.close()
        assert (reading.engine_memory_b, reading.foreign_processes) == (None, 0.0)

    @pytest.mark.parametrize("call", ["processes", "gpus"])
    def test_a_list_that_is_refused_costs_itself(self, fake: FakeLibrary, probe: HygonProbe, call: str) -> None:
        fake.set("0.pids", "1")
        fake.set(f"*.{call}.ret", 4)
        probe.discover()
        probe.watch([os.getpid()])
        assert probe.sample(IDLE).power_w == 80.0
        assert probe.sample(IDLE).foreign_processes in (None, 0.0)


@pytest.mark.parametrize("defines", [(), ("FAKE_DTK_24",)])
def test_layouts_are_those_of_the_header(rocmsmi: Path, old_rocmsmi: Path, defines: tuple[str, ...]) -> None:
    structs = {
        "rsmi_frequencies_t": rsmi.OldFrequencies if defines else rsmi.Frequencies,
        "rsmi_process_info_t": rsmi.ProcessInfo,
    }
    compiled = layout.of_fake(old_rocmsmi if defines else rocmsmi)
    assert {name.partition(".")[0] for name in compiled} == set(structs)
    assert layout.of_ctypes(structs, compiled) == compiled


def test_the_library_of_dtk_24_is_read_too(old: FakeLibrary, opened: Opened) -> None:
    probe = opened(old)
    device = _by_uid(probe)[BUSY]
    assert (device.pci, device.power_limit_w) == ("0000:c9:00.0", 1000.0)
    assert (probe.sample(BUSY).power_w, probe.sample(BUSY).clock_mhz) == (512.0, 1500.0)
