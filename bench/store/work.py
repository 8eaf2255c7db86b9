"""Engines' own files while they run, and shards on their way in: `.work/<name>.<pid>/`, so that the dead's can be cleared."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

from bench.store import layout


def work_root(results: Path, run_id: str) -> Path:
    """Where this process's engines put their files; those of dead processes are cleared away first."""
    clear_work(results)
    return layout.work_dir(results) / f"{run_id}.{os.getpid()}"


def clear_work(results: Path) -> None:
    """Remove what dead processes left. Never raises: what can't be removed stays."""
    try:
        left = list(layout.work_dir(results).iterdir())
    except OSError:
        return
    for folder in left:
        pid = folder.name.rpartition(".")[2]
        if pid.isascii() and pid.isdigit() and len(pid) < 10 and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
