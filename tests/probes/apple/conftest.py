from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.apple.probe import AppleProbe
from bench.probes.presence import Roots
from tests.probes.apple.host import BINDING, Mac, mac


@pytest.fixture
def shown(tmp_path: Path) -> Mac:
    return mac(tmp_path / "mac")


@pytest.fixture
def binding(shown: Mac, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mac]:
    """The stand-in can be imported, and is forgotten afterwards."""
    monkeypatch.setenv("FAKE_APPLE_STATE", str(shown.state))
    monkeypatch.syspath_prepend(BINDING)
    sys.modules.pop("zeus_apple_silicon", None)
    yield shown
    sys.modules.pop("zeus_apple_silicon", None)


@pytest.fixture
def no_binding(shown: Mac, monkeypatch: pytest.MonkeyPatch) -> Mac:
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", None)
    return shown


@pytest.fixture
def probe(shown: Mac, roots: Roots) -> Iterator[AppleProbe]:
    probe = AppleProbe(roots, shown.env())
    yield probe
    probe.close()
