"""The probe on the compiled `libbiren-ml.so.1`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bench.errors import ProbeError
from bench.ports import Probe
from bench.probes.biren.probe import BirenProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots, opened_by_signs
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary, Value
from tests.probes.biren import host
from tests.probes.biren.host import SAMPLES, UUIDS
from tests.probes.faults import LibraryFaults
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text, roots_env

IDLE, BUSY = UUIDS
ENDED = ",".join(f"{5_000_000 + number}:7" for number in range(12))
"""Processes that no machine has any more."""
NOT_SUPPORTED, NO_PERMISSION, DRIVER_GONE, TIMEOUT = 3, 4, 7, 8


def devices(probe: BirenProbe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_gpu_is_described(probe: BirenProbe) -> None:
    found = probe.discover()
    device = found.devices[0]
    assert (device.uid, device.name, device.index, device.scope) == (IDLE, "Biren166M", 0, "accelerator")
    assert (device.pci, device.driver, device.firmware, device.shared) == ("0000:3b:00.0", "1.11.0", "1.8.2", None)
    assert (device.memory_total_b, device.power_limit_w) == (68_719_476_736, 300.0)
    assert device.power is not None
    assert (device.power.api, device.power.unit) == ("brmlDeviceGetPowerUsage", "mW")
    assert device.energy is None
    assert "not verified on hardware" in device.reasons["energy_j"]
    assert set(device.reasons) == {"energy_j"}
    assert found.problems == ()


def test_raw_units_become_ours(probe: BirenProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.power_w, idle.memory_used_b, idle.utilisation, idle.throttle) == (96.5, 536_870_912, 0.0, ())
    assert (busy.power_w, busy.memory_used_b, busy.utilisation) == (287.4, 64_534_609_920, 0.98)
    assert (busy.temperature_c, busy.clock_mhz, busy.throttle) == (67.0, 1550.0, ("hw_thermal",))
    assert (idle.energy_j, busy.energy_j) == (None, None)
    (raw,) = probe.raw(IDLE)
    assert (raw.value, raw.unit) == (96_500.0, "mW")


def test_the_made_up_values_of_the_sample(fake: FakeLibrary, probe: BirenProbe) -> None:
    """One of its GPUs tells no power."""
    told = json.loads(recorded(SAMPLES / "brml_fake_values.json"))
    shown: dict[str, Value] = {"driver": "1.11.0"}
    for index, one in enumerate(told["devices"]):
        shown[f"{index}.uuid"] = one["brmlDeviceGetUUID"]
        shown |= {f"{index}.{what}": size for what, size in one["brmlDeviceGetMemoryInfo"].items()}
        shown[f"{index}.use"] = one["brmlDeviceGetUtilizationRates"]["gpu"]
        shown[f"{index}.temp"] = one["brmlDeviceGetTemperature"]
        shown[f"{index}.limit"] = one["brmlDeviceGetPowerManagementLimit"]
        shown[f"{index}.throttle"] = one["brmlDeviceGetCurrentClocksThrottleReasons"]
        if one["brmlDeviceGetPowerUsage"] != "BRML_ERROR_NOT_SUPPORTED":
            shown[f"{index}.power"] = one["brmlDeviceGetPowerUsage"]
    fake.show(told["brmlDeviceGetCount"], shown)
    found = devices(probe)
    assert [device.power is None for device in found.values()] == [False, True]
    assert "not supported (3)" in (found[BUSY].power_reason or "")
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.power_w, idle.memory_used_b, idle.utilisation, idle.temperature_c) == (96.5, 536_870_912, 0.0, 41.0)
    assert (busy.power_w, busy.memory_used_b, busy.utilisation, busy.temperature_c) == (None, 64_534_609_920, 0.98, 67.0)
    assert (found[IDLE].power_limit_w, busy.throttle) == (300.0, ("hw_thermal",))


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (1, ("hw_slowdown",)),
        (2, ("hw_thermal",)),
        (4, ("hw_power_brake",)),
        (7, ("hw_slowdown", "hw_thermal", "hw_power_brake")),
    ],
)
def test_limits_in_force(fake: FakeLibrary, probe: BirenProbe, bits: int, names: tuple[str, ...]) -> None:
    probe.discover()
    fake.set("0.throttle", bits)
    assert probe.sample(IDLE).throttle == names


@pytest.mark.parametrize("power", [65_535, 65_536])
def test_all_ones_of_16_bits_are_a_power_like_others(fake: FakeLibrary, probe: BirenProbe, power: int) -> None:
    probe.discover()
    fake.set("0.power", power)
    assert probe.sample(IDLE).power_w == power / 1000


@pytest.mark.parametrize(
    ("call", "quantity"),
    [
        ("memory", "memory_used_b"),
        ("use", "utilisation"),
        ("temp", "temperature_c"),
        ("clock", "clock_mhz"),
        ("throttle", "throttle"),
    ],
)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, TIMEOUT])
def test_one_failing_call_costs_one_quantity(fake: FakeLibrary, probe: BirenProbe, call: str, quantity: str, code: int) -> None:
    fake.set(f"0.{call}.ret", code)
    assert f"({code})" in devices(probe)[IDLE].reasons[quantity]
    assert getattr(probe.sample(IDLE), quantity) is None
    assert getattr(probe.sample(BUSY), quantity) is not None


def test_what_fails_at_the_start_may_heal(fake: FakeLibrary, probe: BirenProbe) -> None:
    fake.set("0.temp.ret", TIMEOUT)
    probe.discover()
    fake.set("0.temp.ret", None)
    assert probe.sample(IDLE).temperature_c == 41.0


@pytest.mark.parametrize(
    ("key", "raw", "quantity"),
    [
        ("use", 101, "utilisation"),
        ("use", 0xFFFFFFFF, "utilisation"),
        ("temp", 0, "temperature_c"),
        ("temp", 0xFFFFFFFF, "temperature_c"),
        ("clock", 0xFFFFFFFF, "clock_mhz"),
        ("used", (1 << 64) - 1, "memory_used_b"),
        ("used", 68_719_476_737, "memory_used_b"),
        ("total", 0, "memory_used_b"),
        ("throttle", (1 << 64) - 1, "throttle"),
    ],
)
def test_what_is_no_reading_is_missing(fake: FakeLibrary, probe: BirenProbe, key: str, raw: int, quantity: str) -> None:
    probe.discover()
    fake.set(f"0.{key}", raw)
    assert getattr(probe.sample(IDLE), quantity) is None
    assert probe.sample(IDLE).power_w == 96.5


@pytest.mark.parametrize("limit", [0, 0xFFFFFFFF, None])
def test_without_a_limit_there_is_none(fake: FakeLibrary, probe: BirenProbe, limit: int | None) -> None:
    fake.set("*.limit", limit)
    device = devices(probe)[IDLE]
    assert device.power_limit_w is None
    assert "brmlDeviceGetPowerManagementLimit" in device.reasons["power_limit_w"]
    assert probe.sample(IDLE).power_w == 96.5


@pytest.mark.parametrize("call", ["name", "uuid", "pci", "firmware", "driver", "limit", "svi", "virtual", "processes"])
def test_a_gpu_without_a_word_of_its_own_is_still_measured(fake: FakeLibrary, probe: BirenProbe, call: str) -> None:
    fake.set(f"0.{call}.ret", NOT_SUPPORTED)
    first = probe.discover().devices[0]
    assert first.uid == ("biren:pci:0000:3b:00.0" if call == "uuid" else IDLE)
    assert (first.name == "Biren166M") == (call != "name")
    assert probe.sample(first.uid).power_w == 96.5


def test_a_gpu_that_can_not_be_opened_costs_itself(fake: FakeLibrary, probe: BirenProbe) -> None:
    fake.set("0.handle.ret", 255)
    found = probe.discover()
    assert [device.uid for device in found.devices] == [BUSY]
    (problem,) = found.problems
    assert (problem.subject, "unknown error (255)" in problem.problem) == ("biren:0", True)


def test_engines_count_as_the_library_does(probe: BirenProbe) -> None:
    found = probe.discover().devices
    assert resolve(found, ["biren:1"]).visibility_env == {"SUPA_VISIBLE_DEVICES": "1"}


class TestShared:
    """Joules of a card that others use too are not one engine's."""

    @pytest.mark.parametrize("instances", [2, 4])
    def test_a_card_in_instances_says_so(self, fake: FakeLibrary, probe: BirenProbe, instances: int) -> None:
        """Its processes are on the instances, not on the card."""
        fake.set("0.svi", instances)
        found = devices(probe)
        assert found[IDLE].shared == f"cut into {instances} SVI instances"
        assert found[BUSY].shared is None
        probe.watch([77])
        reading = probe.sample(IDLE)
        assert (reading.power_w, reading.foreign_processes) == (96.5, None)

    def test_a_virtual_gpu_says_so(self, fake: FakeLibrary, probe: BirenProbe) -> None:
        fake.set("0.virtual", 2)
        fake.set("1.virtual", 1)  # passed through to a virtual machine as a whole
        assert [("virtual" in (device.shared or "")) for device in devices(probe).values()] == [True, False]


class TestProcesses:
    @pytest.fixture
    def watched(self, fake: FakeLibrary, roots: Roots) -> Iterator[BirenProbe]:
        replace_text(roots.proc / "2/comm", "kthreadd\n")
        probe = BirenProbe(roots, fake.env(), harness_pid=1)
        probe.discover()
        probe.watch([41077, 77])
        yield probe
        probe.close()

    @pytest.mark.parametrize(
        ("pids", "engine_b"),
        [(None, 0), ("77:2500", 2500), ("41077:1000,77:2500,1:7", 3507), (ENDED, 84)],
    )
    def test_memory_of_the_engine_is_that_of_its_processes(
        self, fake: FakeLibrary, watched: BirenProbe, pids: str | None, engine_b: int
    ) -> None:
        fake.set("0.pids", pids)
        assert watched.sample(IDLE).engine_memory_b == engine_b

    def test_some_may_start_while_they_are_listed(self, fake: FakeLibrary, watched: BirenProbe) -> None:
        fake.set("0.pids", "41077:1000,77:2500,1:7")
        fake.set("0.hidden_pids", 2)
        assert watched.sample(IDLE).engine_memory_b == 3507

    @pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
    def test_a_list_that_is_refused_is_not_an_empty_one(self, fake: FakeLibrary, watched: BirenProbe, code: int) -> None:
        fake.set("0.processes.ret", code)
        reading = watched.sample(IDLE)
        assert (reading.engine_memory_b, reading.foreign_processes, reading.power_w) == (None, None, 96.5)


def test_a_library_that_starts_by_the_newer_call(newer: FakeLibrary, roots: Roots) -> None:
    for probe in host.opened(newer, roots):
        found = probe.discover().devices
        assert [device.uid for device in found] == list(UUIDS)
        assert probe.sample(BUSY).memory_used_b == 64_534_609_920
        assert "libbiren-ml.so.1 has no brmlDeviceGetPowerUsage" in (found[0].power_reason or "")


class TestSigns:
    @pytest.mark.parametrize("path", ["biren/card_0", None])
    def test_a_card_opens_the_probe(self, roots: Roots, path: str | None) -> None:
        env = {**roots_env(roots), "LD_LIBRARY_PATH": ""}
        assert "biren" not in opened_by_signs(env)
        if path is None:
            replace_text(roots.sysfs / "bus/pci/devices/0000:3b:00.0/vendor", "0x1ee0\n")
            replace_text(roots.sysfs / "bus/pci/devices/0000:3b:00.0/class", "0x120000\n")
        else:
            replace_text(roots.dev / path, "")
        assert "biren" in opened_by_signs(env)

    def test_a_card_without_its_library_is_told_with_the_fix(self, roots: Roots) -> None:
        replace_text(roots.dev / "biren/card_0", "")
        found = BirenProbe(roots, {"PATH": "", "BENCH_BRML_LIBRARY": "/nowhere/libbiren-ml.so"}).discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert "/nowhere/libbiren-ml.so" in problem.problem
        assert "/dev/biren/card_0" in problem.fix


class TestBirenLibraryConformance(ProbeConformance):
    name = "biren"

    @pytest.fixture
    def working(self, probe: BirenProbe) -> Probe:
        return probe

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return BirenProbe(make_roots(tmp_path / "none"), {"PATH": ""})


class TestBirenFaults(LibraryFaults):
    name = "biren"
    codes: ClassVar = {"not_supported": NOT_SUPPORTED, "no_permission": NO_PERMISSION, "lost": DRIVER_GONE, "timeout": TIMEOUT}
    no_readings: ClassVar[tuple[Value, ...]] = (0, 0xFFFFFFFF, 400, 6_000_000, 610_000)

    @pytest.fixture
    def fake(self, fake: FakeLibrary) -> FakeLibrary:
        return fake

    @pytest.fixture
    def probe(self, fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        yield from host.opened(fake, roots)

    @pytest.fixture
    def without(self, newer: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        yield from host.opened(newer, roots)

    @pytest.mark.parametrize("code", [1, 7])
    def test_what_means_that_the_driver_is_gone(self, fake: FakeLibrary, probe: Probe, code: int) -> None:
        probe.discover()
        fake.set("0.temp.ret", code)
        with pytest.raises(ProbeError, match=rf"\({code}\)"):
            probe.sample(IDLE)
