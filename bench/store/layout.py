"""Where things lie in a results folder, and which names may lie there.

results/
  shards/date=YYYY-MM-DD/<run_id>/<trial_id>/   one ended trial, never changed again
  shards/.partial/<trial_id>/                   one trial being written
  shards/.partial-unreadable/<trial_id>/        raw events that could not be read back, as they were
  runs/<run_id>.json                            what a run set out to do
  imported/<import_id>.json                     what another tool measured
  findings.jsonl, accepted.jsonl                what the gate told of, and what was accepted
  lab.duckdb                                    the cache
  .lab.seen.json                                what it was made of
  .lab.lock                                     held by whoever writes the cache
  .work/<run_id>.<pid>/                         engines' own files while that process runs them
  .work/import-<chance>.<pid>/                  shards that it is bringing in
"""

from __future__ import annotations

import errno
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
UNREADABLE = ".partial-unreadable"
OWNER_JSON = "owner.json"
DRAFT_JSON = "draft.json"
TELEMETRY_SPILL = "telemetry.jsonl"
"""Readings as they come, one JSON object a line: what a killed trial keeps of its telemetry."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHOWN_LETTERS = 120
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_SPACE_SAID = re.compile("|".join([*(re.escape(os.strerror(code)) for code in _NO_SPACE), r"\d+ requested and \d+ written"]))
"""How it reads where it has no number: DuckDB's words, and NumPy's."""
_FULL_B = 256 << 10
"""Free space below which a disk counts as full [bytes]."""
_UNUSABLE = "?*[\\"
"""What DuckDB takes for a pattern, a query or a separator in a path, with no way to say that it isn't one."""


def safe_name(name: str) -> bool:
    """Whether `name` can be a folder's: letters, digits, dot, dash, underscore, at most 128, not beginning with a dot."""
    return _SAFE_NAME.fullmatch(name) is not None


def check_results(results: Path) -> Path:
    """`results` itself, where results can lie there at all. Raises: StoreError."""
    hint = "give another folder with --results DIR (or BENCH_RESULTS)"
    if not str(results).isprintable():  # a byte that is no UTF-8 is not printable either
        raise StoreError(f"results can't lie in {str(results)!r}: the name is not printable text", hint=hint)
    try:
        results.stat()
        whole = results.absolute()
    except FileNotFoundError:
        whole = results.absolute()
    except OSError as error:
        raise StoreError(f"results can't lie in {_short(results)}: {error.strerror}", hint=hint) from error
    bad = next((letter for letter in str(whole) if letter in _UNUSABLE), None)
    if bad is not None:
        raise StoreError(f"results can't lie in {whole}: the database can't be in a path with {bad!r}", hint=hint)
    return results


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


def shards_dir(results: Path) -> Path:
    """Where ended trials lie."""
    return results / "shards"


def partial_dir(results: Path) -> Path:
    """Where trials are written: on the same file system as the shards, so that a rename is enough."""
    return shards_dir(results) / PARTIAL


def unreadable_dir(results: Path) -> Path:
    """Where raw events go that could not be read back: never deleted, never looked into again."""
    return shards_dir(results) / UNREADABLE


def work_dir(results: Path) -> Path:
    """Where engines' own files lie while they run, a folder a process."""
    return results / ".work"


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
    return [results / shard for run in runs_in(results) for shard in shards_in(results, run)]


def runs_in(results: Path) -> list[str]:
    """The folder of each run on each day relative to the results folder, in a stable order."""
    days = [f"shards/{day}" for day in _names(shards_dir(results)) if day.startswith("date=")]
    return [f"{day}/{run}" for day in days for run in _names(results / day)]


def shards_in(results: Path, run: str) -> list[str]:
    """The same of each trial of a run, by the folder of the run. As text: there may be a hundred thousand."""
    return [f"{run}/{trial}" for trial in _names(results / run)]


def _names(parent: Path) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:  # no answer is not the answer that nothing is there
        raise StoreError(f"can't read {_short(parent)}: {error.strerror}", hint="is it your folder?") from error


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


def read_plain(path: Path) -> bytes:
    """A file's bytes; what is no plain file is refused, as a pipe would be waited for. Raises: OSError."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return path.read_bytes()


def write_all(handle: int, data: bytes) -> None:
    """All of `data`, on the disk before going on: a disk that gets full takes a part of it first. Raises: OSError."""
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)


def write_error(path: Path, error: BaseException) -> StoreError:
    """What a failed write means: the path, the system's reason, the space left, and what to do."""
    free = _free_text(path)
    return StoreError(
        f"can't write {_short(path)}: {reason(error)} ({free})",
        hint="free some space or give another folder with --results DIR (or BENCH_RESULTS)",
    )


def reason(error: BaseException) -> str:
    """An error in one line, whatever it is."""
    said = getattr(error, "strerror", None) or str(error)
    return next(iter(said.splitlines()), "") or type(error).__name__


def no_space(folder: Path, error: BaseException | None) -> bool:
    """Whether a full disk (or quota) is what an error in `folder` comes from, or may be: not all that write say why they
    could not. It is worth another try once there is space.
    """
    try:
        if shutil.disk_usage(folder).free < _FULL_B:
            return True
    except OSError:
        return False
    while error is not None:
        if getattr(error, "errno", None) in _NO_SPACE or _NO_SPACE_SAID.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _free_text(path: Path) -> str:
    for folder in (path, *path.parents):
        try:
            return f"{format_bytes(shutil.disk_usage(folder).free)} free"
        except OSError:
            continue
    return "free space unknown"
