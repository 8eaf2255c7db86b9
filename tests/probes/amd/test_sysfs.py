"""Cards through the kernel's files alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.errors import ProbeError
from bench.probes.amd import sysfs
from bench.probes.amd.probe import AmdProbe
from bench.probes.presence import Roots, card, opened_by_signs
from bench.records import DeviceInfo
from tests.probes.amd.cards import RX_7900, STRIX_HALO, add_card
from tests.probes.amd.fake_amdsmi import FakeAmdsmi
from tests.probes.trees import replace_text, roots_env

ADDRESS = "0000:03:00.0"
UID = "GPU-1a2b3c4d5e6f7081"


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setitem(sys.modules, "pyrsmi.rocml", None)


@pytest.fixture
def probe(roots: Roots) -> Iterator[AmdProbe]:
    probe = AmdProbe(roots, {"PATH": ""}, check_s=0.05)
    yield probe
    probe.close()


def _only(probe: AmdProbe) -> DeviceInfo:
    (device,) = probe.discover().devices
    return device


def test_a_card_is_described(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, ADDRESS, RX_7900)
    replace_text(roots.sysfs / "module/amdgpu/version", "6.12.12\n")
    device = _only(probe)
    assert (device.uid, device.pci, device.name, device.scope) == (UID, ADDRESS, "AMD GPU 0x744c", "accelerator")
    assert (device.driver, device.memory_total_b, device.power_limit_w) == ("amdgpu 6.12.12", 25_753_026_560, 327.0)
    assert device.energy is None


def test_raw_units_become_ours(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, ADDRESS, RX_7900)
    probe.discover()
    reading = probe.sample(UID)
    assert (reading.power_w, reading.memory_used_b, reading.utilisation) == (53.0, 1_288_490_188, 0.37)
    assert (reading.temperature_c, reading.clock_mhz) == (51.0, 2304.0)  # the junction, not the edge


def test_instant_power_comes_before_the_average(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, ADDRESS, {**RX_7900, "hwmon/hwmon3/power1_input": "61500000"})
    power = _only(probe).power
    assert power is not None
    assert power.api == "hwmon power1_input"
    assert probe.sample(UID).power_w == 61.5


def test_the_edge_where_there_is_no_junction(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, ADDRESS, {name: text for name, text in RX_7900.items() if "temp2" not in name})
    probe.discover()
    assert probe.sample(UID).temperature_c == 45.0


@pytest.mark.parametrize("text", ["", "N/A", "4294967295", "0", "9000000000", "-5"])
def test_what_is_no_reading_is_missing(probe: AmdProbe, roots: Roots, text: str) -> None:
    folder = add_card(roots, ADDRESS, RX_7900)
    probe.discover()
    replace_text(folder / "hwmon/hwmon3/power1_average", text + "\n")
    assert probe.sample(UID).power_w is None
    assert probe.sample(UID).memory_used_b == 1_288_490_188


def test_an_apu_has_the_hosts_memory_and_the_modules_power(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, "0000:c4:00.0", STRIX_HALO, metrics_format=3)
    device = _only(probe)
    assert (device.scope, device.uid) == ("module", "amd:pci:0000:c4:00.0")
    assert device.memory_total_b == 536_870_912 + 128_849_018_880
    assert "unified" in device.reasons["memory"]
    reading = probe.sample(device.uid)
    assert (reading.power_w, reading.memory_used_b) == (96.5, 394_500_000 + 64_000_000_000)


def test_a_broken_metrics_table_is_no_apu(roots: Roots) -> None:
    folder = add_card(roots, ADDRESS, RX_7900, metrics_format=None)
    assert not sysfs.is_apu(folder)
    (folder / "gpu_metrics").write_bytes(b"\x02")
    assert not sysfs.is_apu(folder)


def test_a_card_that_nobody_may_read(probe: AmdProbe, roots: Roots) -> None:
    folder = add_card(roots, ADDRESS, RX_7900)
    (folder / "hwmon/hwmon3/power1_average").unlink()
    (folder / "hwmon/hwmon3/power1_average").mkdir()  # stands for a file that fails to open, for root too
    found = probe.discover()
    assert found.devices[0].power is None
    assert "power1_average" in (found.devices[0].power_reason or "")
    assert found.problems[0].subject == UID


def test_a_card_that_falls_off_the_bus(probe: AmdProbe, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    add_card(roots, ADDRESS, RX_7900)
    probe.discover()
    real = Path.read_text

    def gone(path: Path, *args: str, **more: str) -> str:
        if path.name == "power1_average":
            raise OSError(19, "No such device")
        return real(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", gone)
    with pytest.raises(ProbeError, match="No such device"):
        probe.sample(UID)


def test_two_cards_of_one_model_are_told_apart(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, "0000:03:00.0", RX_7900)
    add_card(roots, "0000:83:00.0", RX_7900)  # a unique id that is none
    assert [d.uid for d in probe.discover().devices] == ["amd:pci:0000:03:00.0", "amd:pci:0000:83:00.0"]


def test_another_vendors_card_and_audio_are_left_alone(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, "0000:03:00.1", {**RX_7900, "class": "0x040300"})
    add_card(roots, "0000:18:00.0", {**RX_7900, "vendor": "0x10de"})
    assert probe.discover().devices == ()
    assert card(roots, "amd") is None


def test_a_card_without_its_driver_is_told_with_the_fix(probe: AmdProbe, roots: Roots) -> None:
    add_card(roots, ADDRESS, {name: RX_7900[name] for name in ("vendor", "class", "device")}, metrics_format=None)
    found = probe.discover()
    assert found.devices == ()
    assert (found.problems[0].subject, found.problems[0].problem) == (ADDRESS, "the card is held by no driver")
    assert "modprobe amdgpu" in found.problems[0].fix


def test_a_compute_node_without_cards_is_told_with_the_fix(probe: AmdProbe, roots: Roots) -> None:
    replace_text(roots.dev / "kfd", "")
    (problem,) = probe.discover().problems
    assert "no AMD GPU can be seen" in problem.problem
    assert "--device=/dev/kfd" in problem.fix


def test_a_host_of_hygons_cards_is_not_amds(roots: Roots, fake_amdsmi: FakeAmdsmi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hygon's stack brings the same node and a library of AMD's making; only the PCI vendor differs."""
    replace_text(roots.dev / "kfd", "")
    add_card(roots, ADDRESS, {**RX_7900, "vendor": "0x1d94"})
    monkeypatch.setenv("FAKE_AMDSMI_STATE", str(fake_amdsmi.state))
    found = AmdProbe(roots, fake_amdsmi.env()).discover()
    assert (found.devices, found.problems) == ((), ())


class TestSigns:
    def test_a_card_opens_the_probe(self, roots: Roots) -> None:
        env = {**roots_env(roots), "ROCM_PATH": "/nowhere", "LD_LIBRARY_PATH": ""}
        assert "amd" not in opened_by_signs(env)
        add_card(roots, ADDRESS, RX_7900)
        assert "amd" in opened_by_signs(env)

    def test_so_does_a_library(self, roots: Roots, tmp_path: Path) -> None:
        replace_text(tmp_path / "rocm/lib/libamd_smi.so", "")
        assert "amd" in opened_by_signs({**roots_env(roots), "ROCM_PATH": str(tmp_path / "rocm")})

    @pytest.mark.parametrize(
        ("variable", "name"),
        [
            ("BENCH_EXTERNAL_CONFIG", "external"),
            ("BENCH_NODE_POWER", "node"),
            ("BENCH_REPLAY_FILE", "replay"),
            ("BENCH_SIM_EMISSION", "sim"),
        ],
    )
    def test_meters_are_opened_when_set_up(self, roots: Roots, variable: str, name: str) -> None:
        env = {**roots_env(roots), "ROCM_PATH": "/nowhere"}
        assert name not in opened_by_signs(env)
        assert name in opened_by_signs({**env, variable: "x"})
