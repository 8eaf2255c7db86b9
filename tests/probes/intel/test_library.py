"""The probe on the compiled Level Zero."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bench.ports import Probe, ProbeStream
from bench.probes.intel import library, structs
from bench.probes.intel.probe import IntelProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes import layout
from tests.fakes.library import FakeLibrary, Value
from tests.probes.faults import LibraryFaults
from tests.probes.intel import host
from tests.probes.intel.host import BYTES_PER_MIB, UUIDS
from tests.probes.polling import until
from tests.probes.trees import make_roots, replace_text

IDLE, BUSY = UUIDS
LOST, NO_PERMISSION, UNSUPPORTED, ASLEEP = 0x70000001, 0x70010000, 0x78000003, 0x70000007
NOWHERE = {"PATH": "", "BENCH_ZE_LOADER_LIBRARY": "/nowhere/libze_loader.so.1"}


def _by_uid(probe: Probe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_card_is_described(probe: IntelProbe) -> None:
    found = probe.discover()
    device = found.devices[0]
    assert (device.uid, device.name, device.index) == (IDLE, "Intel(R) Arc(TM) Pro B60 Graphics", 0)
    assert (device.scope, device.pci, device.driver) == ("accelerator", "0000:4d:00.0", "Level Zero 1.6.33578")
    assert (device.memory_total_b, device.power_limit_w) == (24_480 * BYTES_PER_MIB, 200.0)
    assert device.power is not None
    assert device.energy is not None
    assert (device.energy.api, device.energy.unit) == ("zesPowerGetEnergyCounter(card)", "uJ")
    assert (device.power.api, device.power.averaging_window_s) == ("difference of zesPowerGetEnergyCounter(card)", host.WINDOW_S)
    assert found.problems == ()


def test_raw_units_become_ours(probe: IntelProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.power_w, idle.memory_used_b, idle.temperature_c, idle.throttle) == (38.0, 25 * BYTES_PER_MIB, 54.0, ())
    assert (busy.power_w, busy.memory_used_b) == (175.0, 20_000 * BYTES_PER_MIB)
    assert (busy.temperature_c, busy.clock_mhz, busy.throttle) == (71.5, 2400.0, ("sw_power_cap",))


def test_the_counter_counts_microjoules(fake: FakeLibrary, probe: IntelProbe) -> None:
    probe.discover()
    fake.set("0.power", 0)
    first = probe.sample(IDLE).energy_j
    fake.set("0.energy", 1_087_810_000)
    second = probe.sample(IDLE).energy_j
    assert (first, second) == (1049.75, 1087.81)


@pytest.mark.parametrize(
    ("domains", "sub", "kind", "watts"),
    [
        ("21", "", "card", 38.0),
        ("2", "", "package", 20.0),
        ("20", "", "package", 20.0),
        ("0", "", "domain of unknown kind", 38.0),
        ("532", "", "package", 20.0),
        ("2112", "1", "package", 20.0),
    ],
)
def test_the_domain_that_holds_most_of_the_card(
    fake: FakeLibrary, probe: IntelProbe, domains: str, sub: str, kind: str, watts: float
) -> None:
    fake.set("*.domains", domains)
    fake.set("*.sub", sub or None)
    power = _by_uid(probe)[IDLE].power
    assert power is not None
    assert power.api.endswith(f"({kind})")
    assert probe.sample(IDLE).power_w == watts


def test_a_card_domain_that_does_not_count_gives_way_to_the_package(fake: FakeLibrary, probe: IntelProbe) -> None:
    """As on B580, whose card counter stays at 0."""
    fake.set("0.energy", 0)
    fake.set("0.power", 0)
    devices = _by_uid(probe)
    counters = [devices[uid].energy for uid in UUIDS]
    assert [counter and counter.api for counter in counters] == [
        "zesPowerGetEnergyCounter(package)",
        "zesPowerGetEnergyCounter(card)",
    ]


@pytest.mark.parametrize("domains", ["345", None])
def test_the_power_of_a_part_is_not_the_cards(fake: FakeLibrary, probe: IntelProbe, domains: str | None) -> None:
    fake.set("*.domains", domains)
    device = _by_uid(probe)[IDLE]
    assert device.power is None
    assert device.energy is None
    assert device.power_reason == "no power domain holds the whole card"


@pytest.mark.parametrize(
    ("state", "limit_w"),
    [
        ({"*.limits": "321", "*.limit": 100_000}, 100.0),
        ({"*.limits": "3", "*.limit": 100_000}, 300.0),
        ({"*.limits": "1", "*.limit": 0}, 200.0),
        ({"*.limits": "1", "*.unit": 1}, 200.0),
        ({"*.limits.ret": UNSUPPORTED}, 200.0),
        ({"*.limits.ret": UNSUPPORTED, "*.max_limit": -1}, None),
    ],
)
def test_limits(fake: FakeLibrary, probe: IntelProbe, state: dict[str, Value], limit_w: float | None) -> None:
    for key, value in state.items():
        fake.set(key, value)
    assert _by_uid(probe)[IDLE].power_limit_w == limit_w


def test_the_busiest_computing_engine_counts(probe: IntelProbe) -> None:
    """Not the media engine, which is wholly busy, and not the average of all."""
    probe.discover()
    assert until(lambda: probe.sample(BUSY).utilisation) == pytest.approx(0.97, abs=0.01)
    assert probe.sample(IDLE).utilisation in (0.0, None)


def test_stacks_are_averaged(fake: FakeLibrary, probe: IntelProbe) -> None:
    state: dict[str, Value] = {"1.stacks": 2, "1.engines": "01 11", "1.busy_0_1": 100, "1.busy_1_1": 50}
    for key, value in state.items():
        fake.set(key, value)
    probe.discover()
    assert until(lambda: probe.sample(BUSY).utilisation) == pytest.approx(0.75, abs=0.01)


def test_memory_of_the_host_is_not_the_cards(fake: FakeLibrary, probe: IntelProbe) -> None:
    fake.set("*.size2", 64 << 30)
    fake.set("*.free2", 1 << 30)
    assert _by_uid(probe)[IDLE].memory_total_b == 24_480 * BYTES_PER_MIB
    assert probe.sample(IDLE).memory_used_b == 25 * BYTES_PER_MIB


@pytest.mark.parametrize("state", [{"0.size": 0}, {"0.free": 1 << 40}, {"0.memory.ret": UNSUPPORTED}])
def test_memory_that_can_not_be_is_missing(fake: FakeLibrary, probe: IntelProbe, state: dict[str, Value]) -> None:
    """As on B580, whose memory state is all 0."""
    for key, value in state.items():
        fake.set(key, value)
    device = _by_uid(probe)[IDLE]
    assert device.memory_total_b is None
    assert probe.sample(IDLE).memory_used_b is None
    assert probe.sample(BUSY).memory_used_b == 20_000 * BYTES_PER_MIB


@pytest.mark.parametrize(
    ("call", "quantity"),
    [("memory_state", "memory_used_b"), ("temp", "temperature_c"), ("clock", "clock_mhz"), ("clock", "throttle")],
)
@pytest.mark.parametrize("code", [UNSUPPORTED, NO_PERMISSION, ASLEEP])
def test_one_failing_call_costs_one_quantity(fake: FakeLibrary, probe: IntelProbe, call: str, quantity: str, code: int) -> None:
    fake.set(f"0.{call}.ret", code)
    assert f"{code:#x}" in _by_uid(probe)[IDLE].reasons[quantity]
    assert getattr(probe.sample(IDLE), quantity) is None
    assert getattr(probe.sample(BUSY), quantity) is not None


def test_activity_that_only_root_may_see_is_told_with_the_reason(fake: FakeLibrary, probe: IntelProbe) -> None:
    fake.set("*.activity.ret", NO_PERMISSION)
    assert "insufficient permissions" in _by_uid(probe)[IDLE].reasons["utilisation"]


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (0x3, ("sw_power_cap",)),
        (0x8, ("hw_thermal",)),
        (0x104, ("current_limit", "hw_thermal")),
        (0x2F0, ("hw_power_brake", "application_clocks", "hw_slowdown", "reliability", "sw_power_cap")),
    ],
)
def test_limits_in_force(fake: FakeLibrary, probe: IntelProbe, bits: int, names: tuple[str, ...]) -> None:
    probe.discover()
    fake.set("0.throttle", bits)
    assert probe.sample(IDLE).throttle == names


def test_memory_by_process_and_foreign_ones(fake: FakeLibrary, roots: Roots) -> None:
    """The engine is this process here; that of number 1 is somebody else's."""
    replace_text(roots.proc / "2/comm", "kthreadd\n")
    fake.set("0.processes", f"{os.getpid()}:1966080 1:4096")
    probe = IntelProbe(roots, fake.env(), check_s=0, harness_pid=0)
    probe.discover()
    probe.watch([os.getpid()])
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.engine_memory_b, idle.foreign_processes) == (1_966_080, 1.0)
    assert (busy.engine_memory_b, busy.foreign_processes) == (0, 0.0)
    probe.close()


class TestWhatIsNoCard:
    def test_a_cpus_own_gpu_without_a_counter_makes_no_noise(self, fake: FakeLibrary, probe: IntelProbe) -> None:
        fake.show(1, {"*.name": "Intel(R) UHD Graphics 770", "*.flags": 1, "*.bus": 0, "*.slot": 2, "*.size": 0})
        found = probe.discover()
        assert (found.devices, found.problems) == ((), ())

    def test_one_that_counts_is_a_module(self, fake: FakeLibrary, probe: IntelProbe) -> None:
        fake.set("0.flags", 1)
        assert probe.discover().devices[0].scope == "module"

    def test_an_npu_is_no_gpu(self, fake: FakeLibrary, probe: IntelProbe) -> None:
        fake.set("0.type", 5)
        assert list(_by_uid(probe)) == [BUSY]


class TestNumbers:
    """What `ZE_AFFINITY_MASK` takes: PCI order, a number for each stack, the CPU's own GPU among them."""

    @staticmethod
    def _masks(probe: IntelProbe) -> list[str]:
        devices = probe.discover().devices
        found = [resolve(devices, [f"intel:{device.index}"]).visibility_env for device in devices]
        assert all(env["ZE_ENABLE_PCI_ID_DEVICE_ORDER"] == "1" for env in found)
        return [env["ZE_AFFINITY_MASK"] for env in found]

    def test_in_order(self, probe: IntelProbe) -> None:
        assert self._masks(probe) == ["0", "1"]

    def test_in_another_order(self, fake: FakeLibrary, probe: IntelProbe) -> None:
        fake.set("0.bus", 0x9A)
        assert self._masks(probe) == ["1", "0"]

    def test_after_the_cpus_own(self, fake: FakeLibrary, probe: IntelProbe) -> None:
        fake.show(3, {**host.B60, "2.flags": 1, "2.domains": "5", "2.bus": 0, "2.slot": 2})
        assert self._masks(probe) == ["1", "2"]

    def test_stacks(self, fake: FakeLibrary, probe: IntelProbe) -> None:
        fake.set("*.stacks", 2)
        assert self._masks(probe) == ["0,1", "2,3"]

    def test_composite_devices(self, fake: FakeLibrary, roots: Roots) -> None:
        fake.set("*.stacks", 2)
        probe = IntelProbe(roots, {**fake.env(), "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, check_s=0)
        assert self._masks(probe) == ["0", "1"]
        probe.close()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("868011e2000000000100000000000000", BUSY),
        ("00000000000000000000000000000000", None),
    ],
)
def test_uuids_are_written_as_the_tool_does(raw: str, text: str | None) -> None:
    assert library.uuid(bytes.fromhex(raw)) == text


def test_layouts_are_those_of_the_header(zes: Path) -> None:
    ours = {
        "ze_device_properties_t": structs.CoreProperties,
        "zes_device_properties_t": structs.DeviceProperties,
        "zes_pci_properties_t": structs.PciProperties,
        "zes_power_properties_t": structs.PowerProperties,
        "zes_power_ext_properties_t": structs.PowerExtension,
        "zes_power_energy_counter_t": structs.EnergyCounter,
        "zes_power_limit_ext_desc_t": structs.LimitDescription,
        "zes_mem_properties_t": structs.MemoryProperties,
        "zes_mem_state_t": structs.MemoryState,
        "zes_engine_properties_t": structs.EngineProperties,
        "zes_engine_stats_t": structs.EngineStats,
        "zes_temp_properties_t": structs.TemperatureProperties,
        "zes_freq_properties_t": structs.FrequencyProperties,
        "zes_freq_state_t": structs.FrequencyState,
        "zes_process_state_t": structs.ProcessState,
    }
    compiled = layout.of_fake(zes)
    assert {name.partition(".")[0] for name in compiled} == set(ours)
    assert layout.of_ctypes(ours, compiled) == compiled


class TestIntelLibraryConformance(ProbeConformance):
    name = "intel"
    vendor_modules = ("pyzes",)

    @pytest.fixture
    def working(self, probe: IntelProbe) -> Probe:
        return probe

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return IntelProbe(make_roots(tmp_path / "none"), NOWHERE)


class TestIntelFaults(LibraryFaults):
    name = "intel"
    codes: ClassVar = {"not_supported": UNSUPPORTED, "no_permission": NO_PERMISSION, "lost": LOST, "timeout": ASLEEP}
    no_readings: ClassVar[tuple[Value, ...]] = (0, 0xFFFFFFFF, 400, 600_000_000)

    @pytest.fixture
    def fake(self, zes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
        return host.bound(zes, tmp_path, monkeypatch)

    @pytest.fixture
    def probe(self, fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        yield from host.opened(fake, roots)

    @pytest.fixture
    def without(self, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
        less = host.library(tmp_path / "less", "FAKE_NO_POWER")
        yield from host.opened(host.bound(less, tmp_path, monkeypatch), roots)

    def test_a_reset_counter_is_handed_on_and_no_power(self, fake: FakeLibrary, probe: Probe) -> None:
        probe.discover()
        before = probe.sample(IDLE)
        fake.set("0.energy", 200_000_000)
        after = probe.sample(IDLE)
        assert before.energy_j is not None
        assert after.energy_j is not None
        assert after.energy_j < before.energy_j
        assert after.power_w is None

    def test_readings_arrive(self, child: Callable[[], ProbeStream]) -> None:
        stream = child()
        got: list[float] = []

        def some() -> bool:
            got.extend(r.power_w for r in stream.drain() if r.uid == BUSY and r.power_w is not None)
            return len(got) >= 3

        until(some)
        assert set(got) == {175.0}
