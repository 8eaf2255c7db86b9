from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.mthreads.probe import MthreadsProbe
from bench.probes.presence import Roots
from tests.fakes.library import FakeLibrary
from tests.probes.mthreads import host


@pytest.fixture(scope="session")
def mtml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("mtml"))


@pytest.fixture(scope="session")
def powerless_mtml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host.library(tmp_path_factory.mktemp("powerless-mtml"), "FAKE_NO_POWER")


@pytest.fixture
def fake(mtml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    return in_this_process(mtml, tmp_path, monkeypatch)


def in_this_process(compiled: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """Let the real binding of this process talk to the fake."""
    import pymtml

    fake = host.fake(compiled, folder)
    monkeypatch.setattr(pymtml, "mtmlLib", ctypes.CDLL(str(compiled)))
    monkeypatch.setattr(pymtml, "_mtmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pymtml, "_mtmlLib_handles", [])
    monkeypatch.setenv(fake.variable, str(fake.state))
    return fake


@pytest.fixture
def probe(fake: FakeLibrary, roots: Roots) -> Iterator[MthreadsProbe]:
    probe = MthreadsProbe(roots, fake.env())
    yield probe
    probe.close()
