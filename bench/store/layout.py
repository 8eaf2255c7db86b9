"""Where things lie in a results folder, and which names may lie there.

results/
  shards/date=YYYY-MM-DD/<run_id>/<trial_id>/   one ended trial, never changed again
  shards/.partial/<trial_id>/                   one trial being written
  runs/<run_id>.json                            what a run set out to do
  lab.duckdb                                    the cache
  .lab.lock                                     held by whoever writes the cache
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from bench.errors import StoreError
from bench.records import TrialRecord
from bench.units import format_bytes

TRIAL_JSON = "trial.json"
REQUESTS = "requests.parquet"
CHUNKS = "chunks.parquet"
TELEMETRY = "telemetry.parquet"
ENGINE_LOG = "engine.log"
SIBLINGS = (REQUESTS, CHUNKS, TELEMETRY, ENGINE_LOG)
"""What may lie beside `trial.json` in a shard, with its hash in `TrialRecord.files`."""

PARTIAL = ".partial"
OWNER_JSON = "owner.json"
DRAFT_JSON = "draft.json"
TELEMETRY_SPILL = "telemetry.jsonl"
"""Readings as they come, one JSON object a line: what a killed trial keeps of its telemetry."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_HASH_BLOCK_B = 1 << 20


def safe_name(name: str) -> bool:
    """Whether `name` can be a folder's: letters, digits, dot, dash, underscore, at most 128, not beginning with a dot."""
    return _SAFE_NAME.fullmatch(name) is not None


def shards_dir(results: Path) -> Path:
    """Where ended trials lie."""
    return results / "shards"


def partial_dir(results: Path) -> Path:
    """Where trials are written: on the same file system as the shards, so that a rename is enough."""
    return shards_dir(results) / PARTIAL


def shard_path(record: TrialRecord) -> str:
    """A shard's folder relative to the results folder, by the UTC date of the trial's start.

    Raises: ValueError for a start time that is no date.
    """
    try:
        day = datetime.fromtimestamp(record.started.wall_ns / 1e9, tz=UTC).date().isoformat()
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError(f"started.wall_ns {record.started.wall_ns} is not a date") from error
    return f"shards/date={day}/{record.key.run_id}/{record.key.trial_id}"


def shard_folders(results: Path) -> list[Path]:
    """Every folder where a shard should be, in a stable order. Links are not followed, `.partial` is not looked into."""
    return [
        trial
        for day in _folders(shards_dir(results))
        if day.name.startswith("date=")
        for run in _folders(day)
        for trial in _folders(run)
    ]


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Have a file's bytes, or a folder's names, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_error(path: Path, error: BaseException) -> StoreError:
    """What a failed write means: the path, the system's reason, the space left, and what to do."""
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    free = _free_text(path)
    return StoreError(
        f"can't write {path}: {reason} ({free})",
        hint="free some space or give another folder with --results DIR (or BENCH_RESULTS)",
    )


def _free_text(path: Path) -> str:
    for folder in (path, *path.parents):
        try:
            return f"{format_bytes(shutil.disk_usage(folder).free)} free"
        except OSError:
            continue
    return "free space unknown"
