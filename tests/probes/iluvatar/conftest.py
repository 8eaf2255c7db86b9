from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.probes.iluvatar.probe import IluvatarProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.iluvatar import host

Bound = Callable[[Path], FakeLibrary]
Opened = Callable[[FakeLibrary], IluvatarProbe]


@pytest.fixture(scope="session")
def ixml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("ixml"))


@pytest.fixture(scope="session")
def old_ixml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without the vendor's own calls."""
    return host.library(tmp_path_factory.mktemp("old-ixml"), "FAKE_OLD_IXML")


@pytest.fixture(scope="session")
def powerless_ixml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("powerless-ixml"), "FAKE_NO_POWER")


@pytest.fixture
def bind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bound:
    """Shows two MR-V100 to this process through a build of the fake."""

    def bind(compiled: Path) -> FakeLibrary:
        shown = host.fake(compiled, tmp_path)
        monkeypatch.setenv(shown.variable, str(shown.state))
        return shown

    return bind


@pytest.fixture
def fake(ixml: Path, bind: Bound) -> FakeLibrary:
    return bind(ixml)


@pytest.fixture
def opened(roots: Roots) -> Iterator[Opened]:
    """A probe on a build of the fake, closed afterwards."""
    made: list[IluvatarProbe] = []

    def opened(shown: FakeLibrary) -> IluvatarProbe:
        made.append(IluvatarProbe(roots, shown.env(), check_s=0.08))
        return made[-1]

    yield opened
    for probe in made:
        probe.close()


@pytest.fixture
def probe(fake: FakeLibrary, opened: Opened) -> IluvatarProbe:
    return opened(fake)
