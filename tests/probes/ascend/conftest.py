from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.ascend.probe import AscendProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.ascend import host


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("ascend"))


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("old-ascend"), "FAKE_OLD", "FAKE_NO_POWER")


@pytest.fixture
def fake(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return in_this_process(driver, tmp_path, monkeypatch)


@pytest.fixture
def old(old_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return in_this_process(old_driver, tmp_path, monkeypatch)


def in_this_process(compiled: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """The fake reads the environment of the process that it is in."""
    fake = host.fake(compiled, folder)
    monkeypatch.setenv(fake.variable, str(fake.state))
    return fake


def opened(fake: FakeLibrary, roots: Roots) -> Iterator[AscendProbe]:
    """A probe on it, closed afterwards."""
    probe = AscendProbe(roots, fake.env())
    yield probe
    probe.close()


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[AscendProbe]:
    yield from opened(fake, roots)
