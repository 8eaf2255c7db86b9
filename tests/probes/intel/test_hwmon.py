"""The files of `xe` and `i915` in a made-up tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bench.clock import FakeClock
from bench.errors import ProbeError
from bench.ports import Probe
from bench.probes.intel.probe import IntelProbe
from bench.probes.placement import resolve
from bench.probes.presence import Roots, opened_by_signs
from bench.records import DeviceInfo
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.intel.test_library import NOWHERE
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text, roots_env

SAMPLE = Path(__file__).parent / "samples/hwmon_xe_files.tree"
ADDRESS = "0000:03:00.0"
UID = f"intel:pci:{ADDRESS}"
B570 = "hwmon/hwmon4"
A770: dict[str, str] = {
    "device": "0x56a0",
    "hwmon/hwmon2/name": "i915",
    "hwmon/hwmon2/energy1_input": "5000000",
    "hwmon/hwmon2/power1_max": "190000000",
    "hwmon/hwmon2/power1_rated_max": "225000000",
    "hwmon/hwmon2/temp1_input": "48000",
    "hwmon/hwmon3/name": "i915_gt0",
    "hwmon/hwmon3/energy1_input": "3000000",
    "drm/card1/gt_act_freq_mhz": "2100",
    "drm/card1/gt/gt0/throttle_reason_status": "1",
    "drm/card1/gt/gt0/throttle_reason_pl1": "1",
    "drm/card1/gt/gt0/throttle_reason_thermal": "0",
}
"""A card under the older driver, which has one more hwmon for its only stack."""


def sample() -> dict[str, str]:
    """The recorded tree, from the folder of the device on."""
    lines = (line.partition(" = ") for line in recorded(SAMPLE).splitlines())
    return {path.partition("/device/")[2]: text for path, equals, text in lines if equals}


def add_card(roots: Roots, files: Mapping[str, str], address: str = ADDRESS, driver: str = "xe", **more: str) -> Path:
    folder = roots.sysfs / "bus/pci/devices" / address
    for name, text in {"vendor": "0x8086", "class": "0x030000", **files, **more}.items():
        replace_text(folder / name, text + "\n")
    (roots.sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(roots.sysfs / "bus/pci/drivers" / driver)
    return folder


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def probe(roots: Roots, clock: FakeClock) -> Iterator[IntelProbe]:
    probe = IntelProbe(roots, NOWHERE, clock, check_s=0)
    yield probe
    probe.close()


def _only(probe: Probe) -> DeviceInfo:
    (device,) = probe.discover().devices
    return device


def test_a_card_is_described(probe: IntelProbe, roots: Roots) -> None:
    add_card(roots, sample())
    device = _only(probe)
    assert (device.uid, device.pci, device.name, device.driver) == (UID, ADDRESS, "Intel GPU 0xe20b", "xe")
    assert device.energy is not None
    assert (device.energy.api, device.energy.unit) == ("hwmon energy1_input (card)", "uJ")
    assert device.power_limit_w == 328.0  # the card's sustained limit is switched off, and the package's is another domain's
    reading = probe.sample(UID)
    assert (reading.energy_j, reading.temperature_c, reading.clock_mhz) == (710_520_000.0, 54.0, 2400.0)


class Drawing(FakeClock):
    """A card's counter rises as this clock goes on."""

    def __init__(self, counter: Path, watts: float) -> None:
        super().__init__()
        self.counter, self.watts = counter, watts
        self.start_uj, self.start_ns = int(counter.read_text()), self.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        rise_uj = round(self.watts * (self.monotonic_ns() - self.start_ns) / 1000)
        replace_text(self.counter, str(self.start_uj + rise_uj))


@pytest.mark.parametrize("name", ["energy1_input", "energy2_input"])
def test_power_is_the_rise_of_the_counter(roots: Roots, name: str) -> None:
    """As on B570, where the driver has no power of the card but its energy; and where only the package is counted."""
    folder = add_card(roots, sample() if name == "energy1_input" else {**sample(), f"{B570}/energy1_input": "0"})
    clock = Drawing(folder / B570 / name, 38.06)
    probe = IntelProbe(roots, NOWHERE, clock, check_s=0)
    device = _only(probe)
    assert device.power is not None
    assert device.power.api == f"difference of hwmon {name} ({'card' if name == 'energy1_input' else 'pkg'})"
    for seconds in (1.0, 0.1, 3.0):
        clock.sleep(seconds)
        assert probe.sample(UID).power_w == pytest.approx(38.06)
    probe.close()


def test_a_sleeping_card_has_its_counter_only(probe: IntelProbe, roots: Roots) -> None:
    """Nothing was drawn in the look at the start: no power is told, and joules still are."""
    add_card(roots, sample())
    device = _only(probe)
    assert (device.power, device.energy is not None) == (None, True)
    assert "0 W" in (device.power_reason or "")
    assert probe.sample(UID).energy_j == 710_520_000.0


def test_a_counter_beyond_32_bits_is_whole(probe: IntelProbe, roots: Roots) -> None:
    """Cut to 32 bits, 0xFFFFFFFF uJ later would look like a fall."""
    folder = add_card(roots, sample())
    probe.discover()
    replace_text(folder / B570 / "energy1_input", str(0xFFFFFFFF + 710_520_000_000_000))
    assert probe.sample(UID).energy_j == pytest.approx(710_524_294.967295, abs=1e-6)


def test_a_card_counter_that_stays_at_0_gives_way_to_the_package(probe: IntelProbe, roots: Roots) -> None:
    add_card(roots, {**sample(), f"{B570}/energy1_input": "0"})
    device = _only(probe)
    assert device.energy is not None
    assert device.energy.api == "hwmon energy2_input (pkg)"
    assert device.power_limit_w == 190.0


def test_the_energy_of_a_part_is_not_the_cards(probe: IntelProbe, roots: Roots) -> None:
    add_card(roots, {**sample(), f"{B570}/energy1_label": "stack0", f"{B570}/energy2_label": "vram"})
    device = _only(probe)
    assert (device.power, device.energy) == (None, None)
    assert device.power_reason == "hwmon counts the energy of stack0, vram only"


def test_the_older_driver(probe: IntelProbe, roots: Roots) -> None:
    add_card(roots, A770, driver="i915")
    device = _only(probe)
    assert device.energy is not None
    assert (device.energy.api, device.power_limit_w, device.driver) == ("hwmon energy1_input (unlabelled)", 190.0, "i915")
    reading = probe.sample(device.uid)
    assert (reading.energy_j, reading.temperature_c, reading.clock_mhz) == (5.0, 48.0, 2100.0)
    assert reading.throttle == ("sw_power_cap",)


@pytest.mark.parametrize("file", ["reason_thermal", "reason_prochot", "reason_ratl"])
def test_limits_in_force(probe: IntelProbe, roots: Roots, file: str) -> None:
    throttle = "tile0/gt0/freq0/throttle"
    add_card(roots, {**sample(), f"{throttle}/reason_pl1": "0", f"{throttle}/{file}": "1"})
    assert probe.discover().devices
    assert probe.sample(UID).throttle == ("hw_thermal",)


@pytest.mark.parametrize("text", ["", "N/A", "18446744073709551615", "-5"])
def test_what_is_no_count_is_missing(probe: IntelProbe, roots: Roots, text: str) -> None:
    folder = add_card(roots, sample())
    probe.discover()
    replace_text(folder / B570 / "energy1_input", text + "\n")
    reading = probe.sample(UID)
    assert (reading.energy_j, reading.power_w, reading.temperature_c) == (None, None, 54.0)


def test_a_card_that_falls_off_the_bus(probe: IntelProbe, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    add_card(roots, sample())
    probe.discover()
    real = Path.read_text

    def gone(path: Path, *args: str, **more: str) -> str:
        if path.name == "energy1_input":
            raise OSError(19, "No such device")
        return real(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", gone)
    with pytest.raises(ProbeError, match="No such device"):
        probe.sample(UID)


def test_memory_needs_the_library_and_that_is_told(probe: IntelProbe, roots: Roots) -> None:
    add_card(roots, sample())
    (problem,) = probe.discover().problems
    assert problem.subject == UID
    assert "/nowhere/libze_loader.so.1" in problem.problem
    assert "Level Zero" in problem.fix


def test_the_files_fill_what_the_library_lacks(fake: FakeLibrary, roots: Roots) -> None:
    """Each quantity by itself, joined by PCI address."""
    fake.set("0.domains", "5")
    fake.set("0.sensors", None)
    add_card(roots, {**sample(), f"{B570}/energy1_input": "710520000000000"}, "0000:4d:00.0")
    probe = IntelProbe(roots, fake.env(), check_s=0)
    first, second = probe.discover().devices
    assert first.energy is not None
    assert second.energy is not None
    assert (first.energy.api, second.energy.api) == ("hwmon energy1_input (card)", "zesPowerGetEnergyCounter(card)")
    reading = probe.sample(first.uid)
    assert (reading.temperature_c, reading.memory_used_b) == (54.0, 25 << 20)
    assert reading.energy_j == 710_520_000.0
    probe.close()


class TestACpusOwn:
    """Graphics in the CPU: always at 00:02.0, and without an hwmon."""

    OWN = "0000:00:02.0"

    def test_it_opens_no_probe(self, roots: Roots) -> None:
        add_card(roots, {}, self.OWN, "i915")
        assert "intel" not in opened_by_signs(roots_env(roots))
        add_card(roots, sample())
        assert "intel" in opened_by_signs(roots_env(roots))

    def test_it_makes_no_noise(self, probe: IntelProbe, roots: Roots) -> None:
        add_card(roots, {}, self.OWN, "i915")
        found = probe.discover()
        assert (found.devices, found.problems) == ((), ())

    def test_an_affinity_mask_counts_it(self, probe: IntelProbe, roots: Roots) -> None:
        add_card(roots, {}, self.OWN, "i915")
        add_card(roots, sample())
        devices = probe.discover().devices
        assert resolve(devices, ["intel:0"]).visibility_env["ZE_AFFINITY_MASK"] == "1"


def test_a_card_without_its_driver_is_told_with_the_fix(probe: IntelProbe, roots: Roots) -> None:
    add_card(roots, {"device": "0xe211"}, driver="vfio-pci")
    (problem,) = probe.discover().problems
    assert (problem.subject, "no Intel GPU can be seen" in problem.problem) == (f"PCI device {ADDRESS}", True)
    assert "driver xe or i915" in problem.fix


class TestIntelFilesConformance(ProbeConformance):
    name = "intel"

    @pytest.fixture
    def working(self, roots: Roots) -> Probe:
        folder = add_card(roots, sample())
        return IntelProbe(roots, NOWHERE, Drawing(folder / B570 / "energy1_input", 40.0), check_s=0)

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return IntelProbe(make_roots(tmp_path / "none"), NOWHERE)
