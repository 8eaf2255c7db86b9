from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.amd.probe import AmdProbe
from bench.probes.presence import Roots
from tests.fakes.build import shared_library
from tests.probes.amd.fake_amdsmi import MI300X, FakeAmdsmi


@pytest.fixture(scope="session")
def amd_rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ROCm folder with the fake library."""
    if not sys.platform.startswith("linux"):
        pytest.skip("AMD SMI exists on Linux only")
    rocm = tmp_path_factory.mktemp("rocm")
    shared_library("amdsmi.c", rocm / "lib/libamd_smi.so")
    return rocm


@pytest.fixture
def fake_amdsmi(amd_rocm: Path, tmp_path: Path) -> FakeAmdsmi:
    fake = FakeAmdsmi(rocm=amd_rocm, state=tmp_path / "amdsmi-state")
    fake.show(2, MI300X)
    return fake


@pytest.fixture
def bound(fake_amdsmi: FakeAmdsmi, monkeypatch: pytest.MonkeyPatch) -> FakeAmdsmi:
    """The real `amdsmi` of this process talks to the fake: its library is found when it is first imported."""
    monkeypatch.delenv("ROCM_HOME", raising=False)
    for name, value in fake_amdsmi.env().items():
        monkeypatch.setenv(name, value)
    importlib.import_module("amdsmi")
    return fake_amdsmi


@pytest.fixture
def probe(bound: FakeAmdsmi, roots: Roots) -> Iterator[AmdProbe]:
    probe = AmdProbe(roots, os.environ, check_s=0.08)
    yield probe
    probe.close()
