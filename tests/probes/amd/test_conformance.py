from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.amd.probe import AmdProbe
from bench.testing.probes import ProbeConformance
from tests.probes.amd.cards import RX_7900, add_card
from tests.probes.amd.fake_amdsmi import MI250, FakeAmdsmi
from tests.probes.trees import make_roots


class _Amd(ProbeConformance):
    name = "amd"
    vendor_modules = ("amdsmi", "pyrsmi")

    @pytest.fixture
    def absent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
        monkeypatch.setitem(sys.modules, "amdsmi", None)
        monkeypatch.setitem(sys.modules, "pyrsmi.rocml", None)
        return AmdProbe(make_roots(tmp_path / "none"), {"PATH": ""})


class TestAmdLibraryConformance(_Amd):
    @pytest.fixture
    def working(self, bound: FakeAmdsmi, tmp_path: Path) -> Iterator[Probe]:
        probe = AmdProbe(make_roots(tmp_path), os.environ, check_s=0.08)
        yield probe
        probe.close()


class TestAmdTwoDiesConformance(_Amd):
    @pytest.fixture
    def working(self, bound: FakeAmdsmi, tmp_path: Path) -> Iterator[Probe]:
        bound.show(4, MI250)
        probe = AmdProbe(make_roots(tmp_path), os.environ, check_s=0.08)
        yield probe
        probe.close()


class TestAmdFilesConformance(_Amd):
    @pytest.fixture
    def working(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Probe:
        monkeypatch.setitem(sys.modules, "amdsmi", None)
        monkeypatch.setitem(sys.modules, "pyrsmi.rocml", None)
        roots = make_roots(tmp_path)
        add_card(roots, "0000:03:00.0", RX_7900)
        return AmdProbe(roots, {"PATH": ""})
