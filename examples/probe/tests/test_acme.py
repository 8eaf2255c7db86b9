from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_acme.probe import AcmeProbe

from bench.ports import Probe
from bench.probes.presence import Roots
from bench.testing.probes import ProbeConformance

FILES = {"serial": "A1-0001", "power_mw": "301000", "energy_uj": "12000000", "memory": "1073741824 34359738368"}


def roots(folder: Path, boards: int) -> Roots:
    for index in range(boards):
        board = folder / f"sys/class/acme/board{index}"
        board.mkdir(parents=True)
        for name, text in FILES.items():
            (board / name).write_text(text.replace("0001", f"000{index}") + "\n")
    return Roots(sysfs=folder / "sys", proc=folder / "proc", dev=folder / "dev")


class TestAcmeConformance(ProbeConformance):
    name = "acme"

    @pytest.fixture
    def working(self, tmp_path: Path) -> Iterator[Probe]:
        probe = AcmeProbe(roots(tmp_path, 2), {}, check_s=0.0)
        yield probe
        probe.close()

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return AcmeProbe(roots(tmp_path / "none", 0), {})


def test_units(tmp_path: Path) -> None:
    probe = AcmeProbe(roots(tmp_path, 1), {}, check_s=0.0)
    (device,) = probe.discover().devices
    reading = probe.sample(device.uid)
    assert (device.uid, reading.power_w, device.memory_total_b) == ("A1-0000", 301.0, 32 << 30)
    assert {value.quantity: value.value for value in probe.raw(device.uid)}["power_w"] == 301_000
