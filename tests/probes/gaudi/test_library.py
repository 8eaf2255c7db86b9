"""The probe on the compiled `libhlml.so`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bench.clock import FakeClock
from bench.errors import ProbeError
from bench.ports import Probe, ProbeStream
from bench.probes.gaudi import library
from bench.probes.gaudi.probe import GaudiProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots, opened_by_signs
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes import layout
from tests.fakes.library import FakeLibrary, Value
from tests.probes.faults import LibraryFaults
from tests.probes.gaudi import host
from tests.probes.gaudi.host import UUIDS
from tests.probes.polling import until
from tests.probes.trees import make_roots, replace_text, roots_env

IDLE, BUSY = UUIDS


def _by_uid(probe: Probe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_card_is_described(probe: GaudiProbe) -> None:
    found = probe.discover()
    device = found.devices[0]
    assert (device.uid, device.name, device.index, device.scope, device.pci) == (
        IDLE,
        "HL-325L",
        0,
        "accelerator",
        "0000:21:00.0",
    )
    assert (device.driver, device.firmware) == ("habanalabs 1.22.1-97ec1a4", "hl-gaudi3-1.22.1-fw-61.3.2-sec-9")
    assert (device.memory_total_b, device.power_limit_w) == (137_438_953_472, 850.0)
    assert device.power is not None
    assert device.energy is not None
    assert (device.power.api, device.power.unit) == ("hlml_device_get_power_usage", "mW")
    assert (device.energy.api, device.energy.unit) == ("hlml_device_get_total_energy_consumption", "mJ")
    assert device.reasons == {}
    assert found.problems == ()


def test_raw_units_become_ours(probe: GaudiProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(IDLE), probe.sample(BUSY)
    assert (idle.power_w, idle.memory_used_b, idle.utilisation, idle.throttle) == (226.0, 672 << 20, 0.0, ())
    assert (busy.power_w, busy.memory_used_b, busy.utilisation) == (640.0, 98_304 << 20, 0.87)
    assert (busy.temperature_c, busy.clock_mhz, busy.throttle) == (61.0, 1600.0, ("sw_power_cap",))
    assert busy.energy_j == pytest.approx(1_310_000, rel=0.01)


def test_the_energy_counter_counts_millijoules(fake: FakeLibrary, probe: GaudiProbe) -> None:
    probe.discover()
    fake.set("0.energy_rate_w", 0)
    first = probe.sample(IDLE).energy_j
    fake.set("0.energy", 982_134_567 + 452_000)
    second = probe.sample(IDLE).energy_j
    assert first == 982_134.567
    assert second == pytest.approx(982_134.567 + 452)


def test_a_counter_that_does_not_fit_the_power_is_refused(fake: FakeLibrary, probe: GaudiProbe) -> None:
    fake.set("0.energy_rate_w", 226_000)
    devices = _by_uid(probe)
    assert devices[IDLE].energy is None
    assert "the energy counter rose by" in devices[IDLE].reasons["energy_j"]
    assert devices[BUSY].energy is not None


@pytest.mark.parametrize(
    ("bits", "names"), [(0, ()), (1, ("sw_power_cap",)), (2, ("sw_thermal",)), (3, ("sw_power_cap", "sw_thermal"))]
)
def test_limits_in_force(fake: FakeLibrary, probe: GaudiProbe, bits: int, names: tuple[str, ...]) -> None:
    probe.discover()
    fake.set("0.throttle", bits)
    assert probe.sample(IDLE).throttle == names


@pytest.mark.parametrize(("percent", "share"), [(100, 1.0), (103, 1.0), (1000, None), (0xFFFFFFFF, None)])
def test_somewhat_more_than_all_is_all(fake: FakeLibrary, probe: GaudiProbe, percent: int, share: float | None) -> None:
    probe.discover()
    fake.set("0.aip", percent)
    assert probe.sample(IDLE).utilisation == share


@pytest.mark.parametrize(
    ("call", "quantity"),
    [
        ("energy", "energy_j"),
        ("memory", "memory_used_b"),
        ("utilisation", "utilisation"),
        ("temp", "temperature_c"),
        ("clock", "clock_mhz"),
        ("throttle", "throttle"),
    ],
)
@pytest.mark.parametrize("code", [3, 10])
def test_one_failing_call_costs_one_quantity(fake: FakeLibrary, probe: GaudiProbe, call: str, quantity: str, code: int) -> None:
    fake.set(f"0.{call}.ret", code)
    assert f"({code})" in _by_uid(probe)[IDLE].reasons[quantity]
    assert getattr(probe.sample(IDLE), quantity) is None
    assert getattr(probe.sample(BUSY), quantity) is not None


@pytest.mark.parametrize("call", ["name", "uuid", "pci", "module", "firmware", "limit"])
def test_a_card_without_a_word_of_its_own_is_still_measured(fake: FakeLibrary, probe: GaudiProbe, call: str) -> None:
    fake.set(f"0.{call}.ret", 3)
    first = probe.discover().devices[0]
    assert first.uid == ("gaudi:pci:0000:21:00.0" if call == "uuid" else IDLE)
    assert probe.sample(first.uid).power_w == 226.0


def test_a_card_that_can_not_be_opened_costs_itself(fake: FakeLibrary, probe: GaudiProbe) -> None:
    fake.set("0.handle.ret", 15)
    found = probe.discover()
    assert [device.uid for device in found.devices] == [BUSY]
    (problem,) = found.problems
    assert (problem.subject, "the card is lost (15)" in problem.problem) == ("gaudi:0", True)


def test_engines_count_modules_not_cards(probe: GaudiProbe) -> None:
    devices = probe.discover().devices
    assert resolve(devices, ["gaudi:0"]).visibility_env == {"HABANA_VISIBLE_MODULES": "5"}
    assert resolve(devices, ["gaudi:1", IDLE]).visibility_env == {"HABANA_VISIBLE_MODULES": "2,5"}


def test_an_older_library_is_read_too(old: FakeLibrary, roots: Roots) -> None:
    """Shorter structures, and the default limit for the one in force."""
    for probe in host.opened(old, roots):
        device = probe.discover().devices[1]
        assert (device.pci, device.power_limit_w) == ("0000:6a:00.0", 850.0)
        assert (probe.sample(BUSY).power_w, probe.sample(BUSY).utilisation) == (640.0, 0.87)


def test_the_call_that_leaks_is_made_seldom(fake: FakeLibrary, roots: Roots) -> None:
    clock = FakeClock()
    probe = GaudiProbe(roots, fake.env(), clock, check_s=0)
    probe.discover()
    assert probe.sample(IDLE).temperature_c == 36.0
    fake.set("0.temp", 70)
    clock.advance(1.0)
    assert probe.sample(IDLE).temperature_c == 36.0
    clock.advance(10.0)
    assert probe.sample(IDLE).temperature_c == 70.0
    probe.close()


def test_memory_of_0_is_none(fake: FakeLibrary, probe: GaudiProbe) -> None:
    fake.set("*.total", 0)
    device = probe.discover().devices[0]
    assert device.memory_total_b is None
    assert "memory size of 0 is no reading" in device.reasons["memory_total_b"]
    assert probe.sample(IDLE).memory_used_b is None


def test_layouts_are_those_of_the_header(hlml: Path) -> None:
    structs = {
        "hlml_pci_cap_t": library.PciCap,
        "hlml_pci_info_t": library.PciInfo,
        "hlml_utilization_t": library.Utilization,
        "hlml_memory_t": library.Memory,
    }
    compiled = layout.of_fake(hlml)
    assert {name.partition(".")[0] for name in compiled} == set(structs)
    assert layout.of_ctypes(structs, compiled) == compiled


class TestSigns:
    @pytest.mark.parametrize("path", ["accel/accel_controlD0", None])
    def test_a_card_opens_the_probe(self, roots: Roots, path: str | None) -> None:
        env = {**roots_env(roots), "LD_LIBRARY_PATH": ""}
        assert "gaudi" not in opened_by_signs(env)
        if path is None:
            _add_card(roots)
        else:
            replace_text(roots.dev / path, "")
        assert "gaudi" in opened_by_signs(env)

    def test_a_card_without_its_library_is_told_with_the_fix(self, roots: Roots) -> None:
        _add_card(roots)
        found = GaudiProbe(roots, {"PATH": "", "BENCH_HLML_LIBRARY": "/nowhere/libhlml.so"}).discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert "/nowhere/libhlml.so" in problem.problem
        assert "modprobe habanalabs" in problem.fix


def _add_card(roots: Roots) -> None:
    folder = roots.sysfs / "bus/pci/devices/0000:21:00.0"
    replace_text(folder / "vendor", "0x1da3\n")
    replace_text(folder / "class", "0x120000\n")


class TestGaudiLibraryConformance(ProbeConformance):
    name = "gaudi"
    vendor_modules = ("pyhlml",)

    @pytest.fixture
    def working(self, probe: GaudiProbe) -> Probe:
        return probe

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return GaudiProbe(make_roots(tmp_path / "none"), {"PATH": "", "BENCH_HLML_LIBRARY": "/nowhere/libhlml.so"})


class TestGaudiFaults(LibraryFaults):
    name = "gaudi"
    codes: ClassVar = {"not_supported": 3, "lost": 15, "timeout": 10}
    no_readings: ClassVar[tuple[Value, ...]] = (0, 0xFFFFFFFF, 400, 6_000_000, 1_800_000)

    @pytest.fixture
    def fake(self, hlml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
        return host.bound(hlml, tmp_path, monkeypatch)

    @pytest.fixture
    def probe(self, fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        yield from host.opened(fake, roots)

    @pytest.fixture
    def without(self, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
        less = host.library(tmp_path / "less", "FAKE_NO_POWER")
        yield from host.opened(host.bound(less, tmp_path, monkeypatch), roots)

    def test_a_driver_that_goes_away_is_told(self, child: Callable[[], ProbeStream], fake: FakeLibrary) -> None:
        stream = child()
        fake.set("1.power.ret", 9)
        until(lambda: any("driver not loaded (9)" in problem.problem for problem in stream.discovery().problems))

    @pytest.mark.parametrize("code", [1, 9, 15])
    def test_what_means_that_the_card_is_gone(self, fake: FakeLibrary, probe: Probe, code: int) -> None:
        probe.discover()
        fake.set("0.energy.ret", code)
        with pytest.raises(ProbeError, match=rf"\({code}\)"):
            probe.sample(IDLE)
