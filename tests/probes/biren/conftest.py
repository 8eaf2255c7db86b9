from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.biren.probe import BirenProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.biren import host


@pytest.fixture(scope="session")
def brml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("brml"))


@pytest.fixture(scope="session")
def newer_brml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It starts by another call, and lacks power."""
    return host.library(tmp_path_factory.mktemp("newer-brml"), "FAKE_NEWER", "FAKE_NO_POWER")


@pytest.fixture
def fake(brml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return host.bound(brml, tmp_path, monkeypatch)


@pytest.fixture
def newer(newer_brml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return host.bound(newer_brml, tmp_path, monkeypatch)


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[BirenProbe]:
    yield from host.opened(fake, roots)
