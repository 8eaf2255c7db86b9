from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from bench.ports import Probe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.ascend.conftest import opened
from tests.probes.faults import LibraryFaults


class TestAscendFaults(LibraryFaults):
    name = "ascend"
    codes: ClassVar = {"not_supported": -8255, "no_permission": -8002, "lost": -8008, "timeout": -8006}
    no_readings = (0xFFFF, 0xFFFFFFFF, -1, 0, 4, 50_001)

    @pytest.fixture
    def fake(self, fake: FakeLibrary) -> FakeLibrary:
        return fake

    @pytest.fixture
    def probe(self, fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        yield from opened(fake, roots)

    @pytest.fixture
    def without(self, old: FakeLibrary, roots: Roots) -> Iterator[Probe]:
        yield from opened(old, roots)
