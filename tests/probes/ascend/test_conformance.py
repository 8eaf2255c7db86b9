from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.ascend.probe import AscendProbe
from bench.probes.presence import Roots
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.ascend import host
from tests.probes.ascend.conftest import opened
from tests.probes.ascend.test_npu_smi import installed
from tests.probes.trees import make_roots


class _Ascend(ProbeConformance):
    name = "ascend"

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return AscendProbe(make_roots(tmp_path / "none"), {"PATH": ""})


class TestAscendLibraryConformance(_Ascend):
    @pytest.fixture
    def working(self, fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        yield from opened(fake, roots)


class TestAscendTwoDiesConformance(_Ascend):
    @pytest.fixture
    def working(self, fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        fake.show(4, host.A3)
        yield from opened(fake, roots)


class TestAscend950Conformance(_Ascend):
    @pytest.fixture
    def working(self, fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        fake.show(2, host.A5)
        yield from opened(fake, roots)


class TestAscendToolConformance(_Ascend):
    @pytest.fixture
    def working(self, roots: Roots, tmp_path: Path) -> Iterator[Probe]:
        probe = AscendProbe(roots, installed(roots, tmp_path, "310p3_duo_na"))
        yield probe
        probe.close()
