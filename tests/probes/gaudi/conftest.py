from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.gaudi.probe import GaudiProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.gaudi import host


@pytest.fixture(scope="session")
def hlml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("hlml"))


@pytest.fixture(scope="session")
def old_hlml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("old-hlml"), "FAKE_OLD_HLML")


@pytest.fixture
def fake(hlml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return host.bound(hlml, tmp_path, monkeypatch)


@pytest.fixture
def old(old_hlml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return host.bound(old_hlml, tmp_path, monkeypatch)


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[GaudiProbe]:
    yield from host.opened(fake, roots)
