from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.metax.probe import MetaxProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.metax import host


@pytest.fixture(scope="session")
def mxsml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("maca"))


@pytest.fixture(scope="session")
def old_mxsml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("old-maca"), "FAKE_OLD")


@pytest.fixture(scope="session")
def powerless_mxsml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("powerless-maca"), "FAKE_NO_POWER")


@pytest.fixture
def fake(mxsml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return in_this_process(mxsml, tmp_path, monkeypatch)


def in_this_process(compiled: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = host.fake(compiled, folder)
    monkeypatch.setenv(fake.variable, str(fake.state))
    return fake


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[MetaxProbe]:
    probe = MetaxProbe(roots, fake.env())
    yield probe
    probe.close()
