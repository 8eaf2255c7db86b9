"""Starting the scripted engine, and counting what is left of it on the whole machine."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.runners.process import EngineProcess
from bench.runners.readiness import Ready, wait_ready

ENGINE = Path(__file__).with_name("scripted_engine.py")
TREE = "RUNNER_TEST_TREE"
"""A variable of the tests' own, inherited by the warden, the engine, and all that it starts."""
LIMIT_S = 30.0


def script(patch: pytest.MonkeyPatch, **behaviour: Any) -> None:
    """What the scripted engine will do."""
    patch.setenv("SCRIPTED_ENGINE", json.dumps(behaviour))


def program(tmp_path: Path) -> str:
    """The scripted engine as one executable file."""
    path = tmp_path / "scripted"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ENGINE}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def start_scripted(folder: Path, grace_s: float = 5.0) -> EngineProcess:
    """The scripted engine, as itself, with its log in `folder`."""
    argv = [sys.executable, str(ENGINE), "--status-file", str(folder / "status.json")]
    return EngineProcess.start(argv, name="scripted", log_path=folder / "engine.log", grace_s=grace_s)


def listening(process: EngineProcess, folder: Path, timeout_s: float = LIMIT_S) -> Ready:
    """Wait until it answers."""
    return wait_ready(process, lambda: address_in(folder / "status.json"), path="/health", timeout_s=timeout_s)


def address_in(status_file: Path) -> str | None:
    """Where it says that it listens."""
    return str(json.loads(status_file.read_text())["address"]) if status_file.exists() else None


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Poll until `condition` holds, or fail saying `what` did not happen."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"after {LIMIT_S:.0f} s: {what}")
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
    eventually(lambda: not tree(name), f"still running: {[(p.pid, p.cmdline()) for p in tree(name)]}")
