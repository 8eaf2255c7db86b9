"""Cards through the files of Hygon's kernel driver, which is made from amdgpu."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.amd.probe import AmdProbe
from bench.probes.hygon.probe import HygonProbe
from bench.probes.presence import Roots
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.hygon import host
from tests.probes.hygon.host import PLACES, UIDS
from tests.probes.trees import make_roots, replace_text

FILES = {
    "mem_info_vram_total": "68702699520",
    "mem_info_vram_used": "2097152",
    "gpu_busy_percent": "37",
    "hwmon/hwmon3/power1_average": "80000000",
    "hwmon/hwmon3/power1_cap": "1000000000",
    "hwmon/hwmon3/temp1_input": "47000",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/temp2_input": "50000",
    "hwmon/hwmon3/temp2_label": "junction",
    "hwmon/hwmon3/freq1_input": "600000000",
}


@pytest.fixture
def served(roots: Roots) -> Roots:
    """Both cards, with the driver's files."""
    host.add_cards(roots, FILES)
    for place, uid in zip(PLACES, UIDS, strict=True):
        replace_text(roots.sysfs / f"bus/pci/devices/{place}/unique_id", uid.removeprefix("GPU-") + "\n")
    return roots


@pytest.fixture
def files(served: Roots) -> Iterator[HygonProbe]:
    probe = HygonProbe(served, {"PATH": ""}, check_s=0.05)
    yield probe
    probe.close()


def test_a_card_is_described_and_read(files: HygonProbe) -> None:
    found = files.discover()
    first, second = found.devices
    assert [(d.uid, d.pci, d.name) for d in (first, second)] == [
        (uid, place, "Hygon DCU 0x6320") for uid, place in zip(UIDS, PLACES, strict=True)
    ]
    assert (first.memory_total_b, first.power_limit_w, first.energy) == (68_702_699_520, 1000.0, None)
    reading = files.sample(first.uid)
    assert (reading.power_w, reading.memory_used_b, reading.utilisation) == (80.0, 2_097_152, 0.37)
    assert (reading.temperature_c, reading.clock_mhz) == (50.0, 600.0)
    assert found.problems == ()  # a library that is not here is nobody's problem


@pytest.mark.parametrize("module", ["hycu", "hydcu"])
def test_the_driver_is_told_by_either_of_its_names(files: HygonProbe, served: Roots, module: str) -> None:
    replace_text(served.sysfs / f"module/{module}/version", "6.3.31\n")
    assert files.discover().devices[0].driver == f"{module} 6.3.31"


def test_what_the_library_lacks_comes_from_the_files(fake: FakeLibrary, served: Roots) -> None:
    for call in ("power", "used"):
        fake.set(f"0.{call}.ret", 2)
    probe = HygonProbe(served, fake.env(), check_s=0.05)
    first, second = probe.discover().devices
    readings = probe.sample(first.uid), probe.sample(second.uid)
    probe.close()
    assert (first.power.api if first.power else None) == "hwmon power1_average"
    assert (second.power.api if second.power else None) == "rsmi_dev_power_ave_get"
    assert [(r.power_w, r.memory_used_b) for r in readings] == [(80.0, 2_097_152), (512.0, 59_622 << 20)]
    assert first.name == "BW1000"


def test_amds_probe_leaves_the_cards_alone(served: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setitem(sys.modules, "pyrsmi.rocml", None)
    replace_text(served.dev / "kfd", "")
    found = AmdProbe(served, {"PATH": "", "ROCM_PATH": "/nowhere"}).discover()
    assert (found.devices, found.problems) == ((), ())


class TestHygonFilesConformance(ProbeConformance):
    name = "hygon"

    @pytest.fixture
    def working(self, files: HygonProbe) -> Probe:
        return files

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return HygonProbe(make_roots(tmp_path / "none"), {"PATH": ""})
