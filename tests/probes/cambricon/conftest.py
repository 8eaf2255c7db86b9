from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.cambricon.probe import CambriconProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.cambricon import host


@pytest.fixture(scope="session")
def neuware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("neuware"))


@pytest.fixture(scope="session")
def old_neuware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("old-neuware"), "FAKE_OLD")


@pytest.fixture
def fake(neuware: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return in_this_process(neuware, tmp_path, monkeypatch)


@pytest.fixture
def old(old_neuware: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return in_this_process(old_neuware, tmp_path, monkeypatch)


def in_this_process(neuware: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """The fake reads the environment of the process that it is in."""
    fake = host.fake(neuware, folder)
    monkeypatch.setenv(fake.variable, str(fake.state))
    return fake


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[CambriconProbe]:
    probe = CambriconProbe(roots, fake.env(), check_s=0.08)
    yield probe
    probe.close()
