"""Trials on disk: written under `.partial/`, renamed into place when complete, never changed again."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

from bench import __version__, clock, codec
from bench.errors import StoreError
from bench.records import Case, EventLog, Telemetry, TrialKey, TrialRecord
from bench.store import layout, parquet
from bench.store.layout import write_error
from bench.store.owner import Owner, claim

Recover = Callable[[Path], EventLog]
"""Rebuilds an event log from the raw events that the load generator spilled into a folder.

Raises: anything, where the bytes are bad.
"""


class OpenShard:
    """A trial being written. It stays this process's own until it is saved, or the process ends."""

    def __init__(self, results: Path, folder: Path, lock: int, recover: Recover | None) -> None:
        self._results = results
        self._folder = folder
        self._recover = recover
        self._lock: int | None = lock

    @property
    def folder(self) -> Path:
        """The partial folder: raw events, readings and `engine.log` go here while the trial runs."""
        return self._folder

    def describe(self, draft: TrialRecord) -> None:
        """Keep what is known by now (host, engine, devices), for the case that this process is killed.

        Raises: StoreError.
        """
        try:
            _write_bytes(self._folder / layout.DRAFT_JSON, encode_record(draft))
        except (OSError, TypeError) as error:
            raise _unsaved(self._folder, error) from error

    def save(self, record: TrialRecord, log: EventLog | None, telemetry: Telemetry | None) -> Path:
        """Write Parquet and JSON, hash them, rename into place; returns the shard's folder. `files` of the stored record is
        filled here. Nothing is visible before it is complete; on failure the partial folder is kept.

        Raises: StoreError.
        """
        if self._lock is None:
            raise StoreError(f"trial {record.key.trial_id} was saved already")
        keep_raw = False
        if log is None and self._recover is not None and _spilled(self._folder):
            log, told = recovered_log(self._folder, self._recover)
            record = replace(record, extra={**record.extra, "event_log": told})
            keep_raw = log is None
            log = log or None
        folder = finish(self._results, self._folder, record, log, telemetry, keep_raw=keep_raw)
        os.close(self._lock)
        self._lock = None
        return folder


class ShardStore:
    """A results folder as `ports.TrialStore`. `recover` reads what the load generator spilled, for a trial whose load broke
    off without handing back a log.
    """

    def __init__(self, results: Path, recover: Recover | None = None, now: clock.Clock = clock.SYSTEM) -> None:
        self._results = results
        self._recover = recover
        self._clock = now

    def begin(self, key: TrialKey, case: Case) -> OpenShard:
        """Make the partial folder and mark it as this process's.

        Raises: StoreError (no permission, read-only, a file in the way, no space).
        """
        for name in (key.run_id, key.trial_id):
            if not layout.safe_name(name):
                raise StoreError(f"{name!r} can't be a folder's name", hint="use letters, digits, dot, dash and underscore")
        folder = layout.partial_dir(self._results) / key.trial_id
        process = psutil.Process()
        owner = Owner(
            pid=process.pid,
            pid_started_s=process.create_time(),
            key=key,
            case=case,
            bench_version=__version__,
            started=clock.anchor(self._clock),
        )
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError as error:
            raise _in_the_way(folder, error) from error
        except OSError as error:
            raise write_error(folder, error) from error
        try:
            lock = claim(folder, owner)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise write_error(folder, error) from error
        return OpenShard(self._results, folder, lock, self._recover)


def finish(
    results: Path, folder: Path, record: TrialRecord, log: EventLog | None, telemetry: Telemetry | None, *, keep_raw: bool = False
) -> Path:
    """Turn a partial folder into a shard; what is no part of one is removed, or set aside with `keep_raw`. Raises: StoreError."""
    import duckdb

    try:
        home = results / layout.shard_path(record)
        if home.exists():
            raise StoreError(f"{home} is there already", hint="a trial is written once: begin another run")
        if log is not None:
            parquet.write_log(folder, record.key.trial_id, log)
        if telemetry is not None:
            parquet.write_telemetry(folder, record.key.trial_id, telemetry)
        siblings = [folder / name for name in layout.SIBLINGS if (folder / name).is_file()]
        for path in siblings:
            layout.sync(path)
        record = replace(record, files={path.name: layout.sha256_file(path) for path in siblings})
        _write_bytes(folder / layout.TRIAL_JSON, encode_record(record))
        if keep_raw:
            _set_aside(results, folder)
        publish(folder, home)
    except (OSError, duckdb.Error, ValueError, TypeError, ArithmeticError) as error:
        raise _unsaved(folder, error) from error
    return home


def recovered_log(folder: Path, recover: Recover) -> tuple[EventLog | None, str]:
    """The event log out of a folder's raw events, None where they can't be read, with a sentence on how that went.

    Raises: StoreError where the disk is full: with space they can be read.
    """
    try:
        log = recover(folder)
    except Exception as error:
        if layout.no_space(folder, error):
            raise _unsaved(folder, error) from error
        return None, f"not recovered: {layout.reason(error)}; {_kept_text(folder)}"
    if len(log) == 0:
        return log, "not recovered: no request had been sent"
    return log, f"recovered: {len(log)} requests"


def _kept_text(folder: Path) -> str:
    return f"the raw events are kept in shards/{layout.UNREADABLE}/{folder.name}"


def _set_aside(results: Path, folder: Path) -> None:
    """Keep what could not be read back, out of the way of every later command. Raises: OSError."""
    raw = _raw(folder)
    if raw:
        aside = layout.unreadable_dir(results) / folder.name
        aside.mkdir(parents=True, exist_ok=True)
        for entry in raw:
            entry.rename(aside / entry.name)
        layout.sync(aside)


def _unsaved(folder: Path, error: BaseException) -> StoreError:
    problem = write_error(folder, error)
    if layout.no_space(folder, error):
        problem.hint = f"free some space: {folder} is kept, and the next bench run or bench table with space makes a trial of it"
    return problem


def publish(folder: Path, home: Path) -> None:
    """Move a complete partial folder to its place. Raises: OSError."""
    home.parent.mkdir(parents=True, exist_ok=True)  # before anything is removed: it may need space
    keep = {*layout.SIBLINGS, layout.TRIAL_JSON, layout.OWNER_JSON}
    for entry in folder.iterdir():
        if entry.name not in keep:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    layout.sync(folder)
    folder.rename(home)
    (home / layout.OWNER_JSON).unlink(missing_ok=True)
    layout.sync(home.parent)


def encode_record(record: TrialRecord) -> bytes:
    """`trial.json`'s bytes. What JSON can't hold is left out (a NaN gauge of an engine) or replaced (a lone surrogate)."""
    plain = codec.to_builtins(record)
    for name in ("engine_metrics_before", "engine_metrics_after"):
        plain[name] = {k: v for k, v in plain[name].items() if math.isfinite(v)}
    return codec.encode_pretty(_storable(plain))


def _spilled(folder: Path) -> bool:
    return any(entry.name != layout.TELEMETRY_SPILL for entry in _raw(folder))


def _raw(folder: Path) -> list[Path]:
    """What was written while the trial ran, and is no part of a shard."""
    known = {*layout.SIBLINGS, layout.TRIAL_JSON, layout.OWNER_JSON, layout.DRAFT_JSON}
    return [entry for entry in folder.iterdir() if entry.name not in known and entry.suffix != ".part"]


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(k): _storable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(v) for v in value]
    return value


def _write_bytes(path: Path, data: bytes) -> None:
    """Write all of `data` or leave what was there. Raises: OSError."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _in_the_way(folder: Path, error: OSError) -> StoreError:
    if folder.is_dir():
        return StoreError(
            f"trial {folder.name} is being written by another bench",
            hint=f"wait for it; if nothing is running, see that the disk has room: the next run first keeps what {folder} holds",
        )
    return StoreError(
        f"can't make {folder}: a file is in the way ({error.strerror})", hint="give another folder with --results DIR"
    )
