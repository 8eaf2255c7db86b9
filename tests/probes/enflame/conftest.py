from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.enflame import host


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Loading the library changes what this process does on two signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def efml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("efml"))


@pytest.fixture(scope="session")
def old_efml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("old-efml"), "FAKE_OLD")


@pytest.fixture
def fake(efml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return host.bound(efml, tmp_path, monkeypatch)


@pytest.fixture
def old(old_efml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return host.bound(old_efml, tmp_path, monkeypatch)


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[Probe]:
    yield from host.opened(fake, roots)


@pytest.fixture
def old_probe(old: FakeLibrary, roots: Roots) -> Iterator[Probe]:
    yield from host.opened(old, roots)
