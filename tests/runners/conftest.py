"""Every test of runners runs in a process tree of its own name, and must leave nothing of it behind."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import psutil
import pytest

from tests.runners import orphans


@pytest.fixture
def tree_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = uuid.uuid4().hex
    monkeypatch.setenv(orphans.TREE, name)
    yield name
    for process in orphans.tree(name):  # a failed test must not leave its engines on the machine
        with contextlib.suppress(psutil.Error):
            process.kill()
