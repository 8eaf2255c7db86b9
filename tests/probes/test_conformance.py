from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.cpu import CpuProbe
from bench.probes.nvidia.probe import NvidiaProbe
from bench.testing.probes import ProbeConformance
from tests.probes.fake_nvml import FakeNvml
from tests.probes.trees import TWO_SOCKETS, make_roots, write_powercap


class TestCpuConformance(ProbeConformance):
    name = "cpu"

    @pytest.fixture
    def working(self, tmp_path: Path) -> Probe:
        roots = make_roots(tmp_path)
        write_powercap(roots, TWO_SOCKETS)
        return CpuProbe(roots)

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return CpuProbe(make_roots(tmp_path / "none"))


class TestNvidiaConformance(ProbeConformance):
    name = "nvidia"
    vendor_modules = ("pynvml",)

    @pytest.fixture
    def working(self, bound: FakeNvml, tmp_path: Path) -> Iterator[Probe]:
        probe = NvidiaProbe(make_roots(tmp_path))
        yield probe
        probe.close()

    @pytest.fixture
    def absent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
        import pynvml

        monkeypatch.setattr(pynvml, "nvmlLib", None)
        monkeypatch.setattr(pynvml, "CDLL", _no_library)
        return NvidiaProbe(make_roots(tmp_path))


def _no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")
