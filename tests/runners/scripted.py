"""Starting the scripted engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.runners.process import EngineProcess
from bench.runners.readiness import Ready, wait_ready
from bench.testing.processes import LIMIT_S

ENGINE = Path(__file__).with_name("scripted_engine.py")


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
