"""A host with a fake Docker, first on PATH: one daemon for a module, of which each test must leave no container behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.runners.containers.site import FakeDocker, fake_docker

collect_ignore_glob = [] if sys.platform.startswith("linux") else ["test_*.py"]
"""Elsewhere containers are refused."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeDocker]:
    with fake_docker(tmp_path_factory.mktemp("host") / "docker") as found:
        yield found


@pytest.fixture
def docker(daemon: FakeDocker, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDocker]:
    daemon.host()
    monkeypatch.setenv("PATH", f"{daemon.folder / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", daemon.address)
    yield daemon
    left = [container["Name"] for container in daemon.containers()]
    daemon.clear()
    assert left == []
