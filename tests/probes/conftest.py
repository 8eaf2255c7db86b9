from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.nvidia.probe import NvidiaProbe
from bench.probes.presence import Roots
from tests.fakes.build import shared_library
from tests.probes.fake_nvml import H100, FakeNvml
from tests.probes.trees import make_roots


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return make_roots(tmp_path)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("NVML exists on Linux only")
    return shared_library("nvml.c", tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1")


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("NVML exists on Linux only")
    return shared_library("nvml.c", tmp_path_factory.mktemp("old-nvml") / "libnvidia-ml.so.1", ["FAKE_OLD_DRIVER"])


@pytest.fixture
def fake_nvml(nvml_library: Path, tmp_path: Path) -> FakeNvml:
    fake = FakeNvml(library=nvml_library, state=tmp_path / "nvml-state")
    fake.show(2, H100)
    return fake


def put_under_binding(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the real nvidia-ml-py of this process talk to the fake."""
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(fake.library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setenv("FAKE_NVML_STATE", str(fake.state))


@pytest.fixture
def bound(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    put_under_binding(fake_nvml, monkeypatch)
    return fake_nvml


@pytest.fixture
def probe(bound: FakeNvml, roots: Roots) -> Iterator[NvidiaProbe]:
    probe = NvidiaProbe(roots)
    yield probe
    probe.close()
