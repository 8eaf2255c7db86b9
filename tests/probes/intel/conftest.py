from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.intel.probe import IntelProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.intel import host


@pytest.fixture(scope="session")
def zes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("zes"))


@pytest.fixture
def fake(zes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return host.bound(zes, tmp_path, monkeypatch)


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[IntelProbe]:
    yield from host.opened(fake, roots)
