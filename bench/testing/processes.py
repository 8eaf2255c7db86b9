"""Counting what an engine leaves behind on the whole machine: all that a test starts carries a variable of its own."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator

import psutil
import pytest

TREE = "RUNNER_TEST_TREE"
"""A variable of the tests' own, inherited by the warden, the engine, and all that it starts."""
LIMIT_S = 30.0


def named_tree(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name that the processes of one test carry; what is left of them is ended after it. For a fixture."""
    name = uuid.uuid4().hex
    monkeypatch.setenv(TREE, name)
    yield name
    for process in tree(name):  # a failed test must not leave its engines on the machine
        with contextlib.suppress(psutil.Error):
            process.kill()


def eventually(condition: Callable[[], bool], what: str | Callable[[], str], limit_s: float = LIMIT_S) -> None:
    """Poll until `condition` holds, or fail saying `what` did not happen; a function says it as things are then."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"after {limit_s:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)


def tree(name: str) -> list[psutil.Process]:
    """Every living process of this machine that carries the test's variable."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(TREE) == name and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def all_gone(name: str) -> None:
    """Fail if anything of the test's tree stays alive."""
    eventually(lambda: not tree(name), lambda: f"still running: {tree(name)}")
