"""What each run set out to do: `runs/<run_id>.json`, written whole before anything starts and never changed again.

Whoever measures the run holds the lock of that file, so that two can't go on with one run, and a killed one lets go at once.
"""

from __future__ import annotations

import fcntl
import os
import stat
from difflib import get_close_matches
from pathlib import Path

from bench.errors import StoreError, UsageError
from bench.store import layout
from bench.store.locks import try_lock

LATEST = "latest"
"""In place of a run's id: the run that started last."""
_SHOWN = 3


def plan_path(results: Path, run_id: str) -> Path:
    """Where the plan of a run lies."""
    return results / "runs" / f"{run_id}.json"


def write_plan(results: Path, run_id: str, data: bytes) -> int:
    """Put a plan in place, complete or not at all. Returns the descriptor that holds its lock; close it to let go.

    Raises: StoreError.
    """
    path = plan_path(results, run_id)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            layout.write_all(handle, data)
            part.rename(path)
            layout.sync(path.parent)
        except BaseException:
            os.close(handle)
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise layout.write_error(path, error) from error
    return handle


def hold_plan(results: Path, run_id: str) -> int:
    """The lock of a run that has ended. Raises: UsageError while another process measures it, StoreError."""
    path = plan_path(results, run_id)
    try:
        handle = try_lock(path, create=False)
    except OSError as error:
        raise layout.write_error(path, error) from error
    if handle is None:
        raise UsageError(f"run {run_id} is still being measured", hint="wait for it, or stop it with Ctrl-C")
    return handle


def read_plan(results: Path, run_id: str) -> bytes:
    """The plan of a run. Raises: StoreError."""
    path = plan_path(results, run_id)
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}") from error


def find_run(results: Path, wanted: str) -> str:
    """The run that is meant: by its id or the beginning of it, or `latest`. Raises: UsageError that names the nearest or last."""
    known = planned_runs(results)
    if wanted in known:
        return wanted
    if not known:
        raise UsageError(f"no run {wanted!r}: {results} holds no plan of any run", hint="bench run SUITE begins one")
    if wanted == LATEST:
        return known[-1]
    begun = [run_id for run_id in known if wanted and run_id.startswith(wanted)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        last = ", ".join(reversed(begun[-_SHOWN:]))
        raise UsageError(f"{wanted!r} is the beginning of {len(begun)} runs in {results}", hint=f"the last ones: {last}")
    near = get_close_matches(wanted, known, n=1)
    mend = f"did you mean {near[0]!r}?" if near else f"the last ones: {', '.join(reversed(known[-_SHOWN:]))}"
    raise UsageError(f"no run {wanted!r} in {results}: {mend}", hint="bench run --resume latest")


def planned_runs(results: Path) -> list[str]:
    """Runs with a plan, oldest first: ids begin with their second, and within one the file's own time decides."""
    try:
        files = [path for path in (results / "runs").iterdir() if path.suffix == ".json" and layout.safe_name(path.stem)]
    except OSError:  # whatever is there, it is no run that can be gone on with
        return []
    ages = {path.stem: age for path in files if (age := _age(path))}
    return sorted(ages, key=ages.__getitem__)


def _age(path: Path) -> tuple[str, int] | None:
    """None for what is no plain file: a pipe would be waited for, and a link that leads nowhere must not hide the others."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (path.stem.partition("-")[0], found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
