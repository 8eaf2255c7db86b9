"""The probe on the compiled `libefml.so`, through each of its interfaces."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bench.errors import ProbeError
from bench.ports import Probe, ProbeStream
from bench.probes.enflame import structs
from bench.probes.enflame.probe import EnflameProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots, opened_by_signs
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes import layout
from tests.fakes.library import FakeLibrary, Value
from tests.probes.enflame import host
from tests.probes.enflame.host import PLACES, UIDS
from tests.probes.faults import LibraryFaults
from tests.probes.polling import until
from tests.probes.trees import make_roots, replace_text, roots_env

NOT_SUPPORTED, LOST = 3, 15


@pytest.fixture(params=["next", "old"])
def shown(request: pytest.FixtureRequest) -> FakeLibrary:
    """The machine through either interface."""
    fake: FakeLibrary = request.getfixturevalue("fake" if request.param == "next" else "old")
    return fake


@pytest.fixture
def either(shown: FakeLibrary, roots: Roots) -> Iterator[EnflameProbe]:
    yield from host.opened(shown, roots)


def first_two(probe: Probe) -> tuple[DeviceInfo, DeviceInfo]:
    first, second = probe.discover().devices
    return first, second


class TestNext:
    def test_a_card_is_described(self, probe: EnflameProbe) -> None:
        device, _ = first_two(probe)
        assert (device.uid, device.name, device.index, device.pci) == (PLACES[0], "S60", 0, "0000:17:00.0")
        assert (device.memory_total_b, device.power_limit_w) == (42_976 << 20, 300.0)
        assert device.power is not None
        assert (device.power.api, device.power.unit) == ("efmlDeviceGetPowerUsage", "mW")
        assert (device.energy, set(device.reasons)) == (None, {"energy_j", "throttle"})
        assert [(raw.value, raw.unit) for raw in probe.raw(device.uid)] == [(96_000.0, "mW")]

    def test_later_libraries_tell_the_uuid(self, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
        later = host.bound(host.library(tmp_path / "later", "FAKE_UUID"), tmp_path, monkeypatch)
        for probe in host.opened(later, roots):
            assert [device.uid for device in probe.discover().devices] == list(UIDS)

    def test_memory_whose_parts_are_no_parts_is_none(self, fake: FakeLibrary, probe: EnflameProbe) -> None:
        """As where a structure had its members in another order."""
        fake.set("0.free", 50_000 << 20)
        device, _ = first_two(probe)
        assert (device.memory_total_b, probe.sample(device.uid).memory_used_b) == (None, None)
        assert "are no sizes" in device.reasons["memory_used_b"]

    @pytest.mark.parametrize("code", [1, 9, 15, 16, 18])
    def test_codes_of_a_lost_card(self, fake: FakeLibrary, probe: EnflameProbe, code: int) -> None:
        device, _ = first_two(probe)
        fake.set("0.power.ret", code)
        with pytest.raises(ProbeError, match=rf"\({code}\)"):
            probe.sample(device.uid)


class TestOld:
    def test_a_card_is_described(self, old_probe: EnflameProbe) -> None:
        device, _ = first_two(old_probe)
        assert (device.uid, device.name, device.index, device.pci) == (UIDS[0], "S60", 0, "0000:17:00.0")
        assert (device.driver, device.firmware) == ("1.4.3.4", "31.1.3")
        assert (device.memory_total_b, device.power_limit_w) == (42_976 << 20, 300.0)
        assert device.power is not None
        assert (device.power.api, device.power.unit) == ("EfmlGetDevPwr[cur_pwr_consumption]", "W")
        assert [(raw.value, raw.unit) for raw in old_probe.raw(device.uid)] == [(96.0, "W")]

    @pytest.mark.parametrize(("state", "value"), [("next_init.ret", 999), ("next_init.ret", 9), ("next_devices", 0)])
    def test_it_speaks_where_the_next_one_does_not(self, fake: FakeLibrary, probe: EnflameProbe, state: str, value: int) -> None:
        """Cards of older generations are not listed there. Both at once would not start here."""
        fake.set(state if state == "next_devices" else f"*.{state}", value)
        device, _ = first_two(probe)
        assert device.power is not None
        assert device.power.api == "EfmlGetDevPwr[cur_pwr_consumption]"
        assert probe.sample(device.uid).temperature_c == 35.0

    def test_without_a_model_the_driver_has_a_name(self, old: FakeLibrary, old_probe: EnflameProbe) -> None:
        old.set("*.name", None)
        assert first_two(old_probe)[0].name == "T20"

    @pytest.mark.parametrize("key", ["power", "temp", "util"])
    def test_minus_1_is_missing(self, old: FakeLibrary, old_probe: EnflameProbe, key: str) -> None:
        device, _ = first_two(old_probe)
        old.set(f"0.{key}", -1000 if key == "power" else -1)
        reading = old_probe.sample(device.uid)
        assert {"power": reading.power_w, "temp": reading.temperature_c, "util": reading.utilisation}[key] is None

    @pytest.mark.parametrize("code", [1, 6, 11, 12])
    def test_codes_of_a_lost_card(self, old: FakeLibrary, old_probe: EnflameProbe, code: int) -> None:
        device, _ = first_two(old_probe)
        old.set("0.power.ret", code)
        with pytest.raises(ProbeError, match=rf"\({code}\)"):
            old_probe.sample(device.uid)


class TestEither:
    def test_raw_units_become_ours(self, either: EnflameProbe) -> None:
        first, second = first_two(either)
        idle, busy = either.sample(first.uid), either.sample(second.uid)
        assert (idle.power_w, idle.memory_used_b, idle.utilisation, idle.temperature_c) == (96.0, 0, 0.0, 35.0)
        assert (busy.power_w, busy.memory_used_b, busy.utilisation) == (232.0, 36_160 << 20, 0.97)
        assert (busy.temperature_c, busy.clock_mhz) == (58.0, 1500.0)

    def test_an_l300(self, shown: FakeLibrary, either: EnflameProbe) -> None:
        shown.set("0.power", 68_000)
        device, _ = first_two(either)
        assert (either.sample(device.uid).power_w, device.power_limit_w) == (68.0, 300.0)

    def test_watts_where_milliwatts_belong_are_missing(self, shown: FakeLibrary, either: EnflameProbe) -> None:
        device, _ = first_two(either)
        for wrong in (68, 68_000_000):
            shown.set("0.power", wrong)
            assert either.sample(device.uid).power_w is None

    def test_a_limit_of_0_is_none(self, shown: FakeLibrary, either: EnflameProbe) -> None:
        shown.set("0.limit", 0)
        device, _ = first_two(either)
        assert (device.power_limit_w, either.sample(device.uid).power_w) == (None, 96.0)
        assert device.reasons["power_limit_w"]

    @pytest.mark.parametrize(("total", "used"), [(0, 0), (1 << 30, 2 << 30), (2**64 - 1, 0)])
    def test_memory_that_is_none(self, shown: FakeLibrary, either: EnflameProbe, total: int, used: int) -> None:
        shown.set("0.total", total)
        shown.set("0.used", used)
        device, second = first_two(either)
        assert (device.memory_total_b, either.sample(device.uid).memory_used_b) == (None, None)
        assert second.memory_total_b == 42_976 << 20

    @pytest.mark.parametrize(
        ("call", "quantity"),
        [("memory", "memory_used_b"), ("util", "utilisation"), ("temp", "temperature_c"), ("clock", "clock_mhz")],
    )
    def test_one_failing_call_costs_one_quantity(
        self, shown: FakeLibrary, either: EnflameProbe, call: str, quantity: str
    ) -> None:
        shown.set(f"0.{call}.ret", NOT_SUPPORTED)
        first, second = first_two(either)
        assert f"({NOT_SUPPORTED})" in first.reasons[quantity]
        assert getattr(either.sample(first.uid), quantity) is None
        assert getattr(either.sample(second.uid), quantity) is not None

    @pytest.mark.parametrize("call", ["name", "uuid", "pci", "firmware"])
    def test_a_card_without_a_word_of_its_own_is_still_measured(
        self, shown: FakeLibrary, either: EnflameProbe, call: str
    ) -> None:
        shown.set(f"*.{call}.ret", NOT_SUPPORTED)
        first, _ = first_two(either)
        assert either.sample(first.uid).power_w == 96.0

    def test_a_virtual_function_has_memory_and_no_power(self, shown: FakeLibrary, either: EnflameProbe) -> None:
        shown.set("*.power.ret", NOT_SUPPORTED)
        first, _ = first_two(either)
        assert first.power is None
        assert "not supported (3)" in (first.power_reason or "")
        assert either.sample(first.uid).utilisation == 0.0

    def test_its_signals_end_nothing(self, shown: FakeLibrary, either: EnflameProbe) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        shown.set("signal", 1)
        assert len(either.discover().devices) == 2

    def test_somebodys_own_handlers_stay(self, shown: FakeLibrary, either: EnflameProbe) -> None:
        heard: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
        shown.set("signal", 1)
        assert either.discover().devices
        assert signal.SIGUSR1 in heard

    def test_engines_count_cards_as_the_library_does(self, either: EnflameProbe) -> None:
        assert resolve(either.discover().devices, ["enflame:1"]).visibility_env == {"TOPS_VISIBLE_DEVICES": "1"}


class TestProcesses:
    @pytest.fixture(autouse=True)
    def _on_the_host(self, roots: Roots) -> None:
        replace_text(roots.proc / "2/comm", "kthreadd\n")

    @pytest.mark.parametrize("foreign", [0, 1, 63, 64, 500])
    def test_the_next_interface_tells_their_memory(self, fake: FakeLibrary, probe: EnflameProbe, foreign: int) -> None:
        fake.set("0.inits", foreign)
        fake.set("0.processes", f"{os.getpid()}:3145728")
        device, _ = first_two(probe)
        probe.watch([os.getpid()])
        reading = probe.sample(device.uid)
        assert (reading.engine_memory_b, reading.foreign_processes) == (3 << 20, min(foreign, 1))

    @pytest.mark.parametrize("foreign", [0, 1, 63, 500])
    def test_of_the_old_interface_nobody_knows_the_unit(self, old: FakeLibrary, old_probe: EnflameProbe, foreign: int) -> None:
        old.set("0.inits", foreign)
        old.set("0.processes", f"{os.getpid()}:3145728")
        device, _ = first_two(old_probe)
        old_probe.watch([os.getpid()])
        reading = old_probe.sample(device.uid)
        assert reading.foreign_processes == min(foreign, 1)
        assert reading.engine_memory_b is None or foreign == 500  # then ours is not among those told

    def test_memory_that_a_driver_does_not_tell(self, fake: FakeLibrary, probe: EnflameProbe) -> None:
        fake.set("0.processes", f"{os.getpid()}:{2**64 - 1}")
        device, _ = first_two(probe)
        probe.watch([os.getpid()])
        assert (probe.sample(device.uid).engine_memory_b, probe.sample(device.uid).foreign_processes) == (None, 0)


def test_layouts_are_those_of_the_header(efml: Path) -> None:
    ours = {
        "efmlDeviceInfo_t": structs.DevInfo,
        "efmlDevPowerInfo_t": structs.DevPower,
        "efmlDevMemInfo_t": structs.DevMemory,
        "efmlDevClkInfo_t": structs.DevClocks,
        "efmlDevThermalInfoV2_t": structs.DevTemperatures,
        "efmlProcessInfo_t": structs.DevProcess,
        "efmlMemory_t": structs.Memory,
        "efmlUtilization_t": structs.Utilisation,
        "efmlProcessInfo_v1_t": structs.Process,
        "efmlPciInfo_t": structs.Pci,
    }
    compiled = layout.of_fake(efml)
    assert {name.partition(".")[0] for name in compiled} == set(ours)
    assert layout.of_ctypes(ours, compiled) == compiled


class TestSigns:
    @pytest.mark.parametrize("path", ["gcu0", None])
    def test_a_card_opens_the_probe(self, roots: Roots, path: str | None) -> None:
        env = {**roots_env(roots), "LD_LIBRARY_PATH": ""}
        assert "enflame" not in opened_by_signs(env)
        if path is None:
            _add_card(roots)
        else:
            replace_text(roots.dev / path, "")
        assert "enflame" in opened_by_signs(env)

    def test_a_card_without_its_library_is_told_with_the_fix(self, roots: Roots) -> None:
        _add_card(roots)
        found = EnflameProbe(roots, {"PATH": "", "BENCH_EFML_LIBRARY": "/nowhere/libefml.so"}).discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert "/nowhere/libefml.so" in problem.problem
        assert "load the driver" in problem.fix

    def test_a_library_that_lists_no_card_is_told(self, fake: FakeLibrary, probe: EnflameProbe, roots: Roots) -> None:
        _add_card(roots)
        fake.set("devices", 0)
        found = probe.discover()
        assert found.devices == ()
        assert "the library lists no card" in found.problems[0].problem


def _add_card(roots: Roots) -> None:
    folder = roots.sysfs / "bus/pci/devices/0000:17:00.0"
    replace_text(folder / "vendor", "0x1e36\n")
    replace_text(folder / "class", "0x120000\n")


class TestEnflameNextConformance(ProbeConformance):
    name = "enflame"

    @pytest.fixture
    def working(self, probe: EnflameProbe) -> Probe:
        return probe

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return EnflameProbe(make_roots(tmp_path / "none"), {"PATH": "", "BENCH_EFML_LIBRARY": "/nowhere"})


class TestEnflameOldConformance(TestEnflameNextConformance):
    @pytest.fixture
    def working(self, old_probe: EnflameProbe) -> Probe:
        return old_probe


class TestEnflameNextFaults(LibraryFaults):
    name = "enflame"
    codes: ClassVar = {"not_supported": NOT_SUPPORTED, "no_permission": 4, "lost": LOST, "timeout": 10}
    no_readings: ClassVar[tuple[Value, ...]] = (0, 0xFFFFFFFF, 400, 600_001, 6_000_000)

    @pytest.fixture
    def without(self, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
        yield from host.opened(host.bound(host.library(tmp_path / "less", "FAKE_NO_POWER"), tmp_path, monkeypatch), roots)

    def test_a_driver_that_goes_away_is_told(self, child: Callable[[], ProbeStream], fake: FakeLibrary) -> None:
        stream = child()
        fake.set("1.power.ret", 9)
        until(lambda: any("driver not loaded (9)" in problem.problem for problem in stream.discovery().problems))

    def test_its_signals_do_not_end_the_child(self, child: Callable[[], ProbeStream], fake: FakeLibrary) -> None:
        fake.set("signal", 1)
        stream = child()
        assert until(lambda: [r for r in stream.drain() if r.power_w is not None])
        assert stream.ended() is None


class TestEnflameOldFaults(LibraryFaults):
    name = "enflame"
    codes: ClassVar = {"not_supported": NOT_SUPPORTED, "lost": 6, "timeout": 253}
    no_readings: ClassVar[tuple[Value, ...]] = (0, -1000, 400, 600_001, 6_000_000)

    @pytest.fixture
    def fake(self, old: FakeLibrary) -> FakeLibrary:
        return old

    @pytest.fixture
    def without(self, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
        less = host.library(tmp_path / "less", "FAKE_OLD", "FAKE_NO_POWER")
        yield from host.opened(host.bound(less, tmp_path, monkeypatch), roots)
