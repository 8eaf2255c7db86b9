from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.probes.hygon.probe import HygonProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.hygon import host
from tests.probes.trees import make_roots

Bound = Callable[[Path], FakeLibrary]
Opened = Callable[[FakeLibrary], HygonProbe]


@pytest.fixture(scope="session")
def rocmsmi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("rocmsmi"))


@pytest.fixture(scope="session")
def old_rocmsmi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("old-rocmsmi"), "FAKE_DTK_24")


@pytest.fixture(scope="session")
def powerless_rocmsmi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("powerless-rocmsmi"), "FAKE_NO_POWER")


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Two Hygon cards on the PCI bus, without the kernel driver's files."""
    roots = make_roots(tmp_path)
    host.add_cards(roots)
    return roots


@pytest.fixture
def bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bound:
    """Shows the machine to this process through a build of the fake."""

    def bind(compiled: Path) -> FakeLibrary:
        shown = host.fake(compiled, tmp_path)
        monkeypatch.setenv(shown.variable, str(shown.state))
        return shown

    return bind


@pytest.fixture
def fake(rocmsmi: Path, bind: Bound) -> FakeLibrary:
    return bind(rocmsmi)


@pytest.fixture
def old(old_rocmsmi: Path, bind: Bound) -> FakeLibrary:
    return bind(old_rocmsmi)


@pytest.fixture
def opened(roots: Roots) -> Iterator[Opened]:
    """A probe on a build of the fake, closed afterwards."""
    made: list[HygonProbe] = []

    def opened(shown: FakeLibrary) -> HygonProbe:
        made.append(HygonProbe(roots, shown.env(), check_s=0.08))
        return made[-1]

    yield opened
    for probe in made:
        probe.close()


@pytest.fixture
def probe(fake: FakeLibrary, opened: Opened) -> HygonProbe:
    return opened(fake)
