"""The cache on disk. A finished set of weights appears by one rename; until then it lives under `partial/`.

<cache>/models/<key>/entry.json, files/...     finished
<cache>/partial/<key>/...                      being fetched; kept between tries so that they resume
<cache>/locks/<key>.lock                       held by the process that fetches
<cache>/paths/<hash>.json                      what is known of weights that live elsewhere (`path:`)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from bench import codec
from bench.errors import ModelError
from bench.models.entry import SCHEMA, Entry, changed, rehashed
from bench.units import format_bytes
from bench.whole_file import write_whole

ENTRY = "entry.json"
FILES = "files"
_SPARE_B = 16 << 20
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
T = TypeVar("T")


def disk_error(error: OSError, what: str, folder: Path) -> ModelError:
    """A failed write in words: disk full, or not allowed."""
    if error.errno in _NO_SPACE:
        return ModelError(
            f"the disk is full while writing {what} under {folder}",
            hint="free some space, or set BENCH_CACHE to a folder on another disk; what is already there is kept",
        )
    return ModelError(
        f"can't write {what} under {folder}: {error.strerror or error}", hint="set BENCH_CACHE to a folder that you can write to"
    )


class Cache:
    """Finished and half-done downloads of one cache folder. `free_b` tells the free bytes of a folder's disk."""

    def __init__(self, root: Path, free_b: Callable[[Path], int] | None = None) -> None:
        self.root = root
        self._free_b = free_b or (lambda folder: shutil.disk_usage(folder).free)

    def files(self, key: str) -> Path:
        """The folder of a finished entry's files."""
        return self.root / "models" / key / FILES

    def load(self, key: str) -> tuple[Entry | None, str | None]:
        """The finished entry called `key`, and if there is something there that can't be used, why. Touched files are
        hashed again; only a difference makes the entry unusable.
        """
        path = self.root / "models" / key / ENTRY
        entry, problem = read_record(path, Entry)
        if entry is None:
            return None, problem if path.parent.exists() else None
        if entry.schema != SCHEMA:
            return None, f"it was written by another version of bench (schema {entry.schema})"
        difference = changed(self.files(key), entry)
        if difference is None:
            return entry, None
        same = rehashed(self.files(key), entry)
        if same is None:
            return None, difference
        with contextlib.suppress(ModelError):  # a read-only cache only costs the next run another hash
            write_record(path, same)
        return same, None

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every finished entry whose files are there, by key; nothing is hashed."""
        for path in sorted((self.root / "models").glob(f"*/{ENTRY}")):
            entry, _ = read_record(path, Entry)
            if entry is not None and all((path.parent / FILES / f.path).is_file() for f in entry.files):
                yield path.parent.name, entry

    def staging(self, key: str) -> Path:
        """The folder to fetch into, made if need be; what an earlier try left is still there."""
        folder = self.root / "partial" / key
        try:
            (folder / FILES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, "a download", self.root) from error
        return folder

    def finish(self, key: str, entry: Entry) -> None:
        """Make what was staged a finished entry: `entry.json` is written first, then one rename shows all of it."""
        staged, final = self.root / "partial" / key, self.root / "models" / key
        try:
            for left in staged.iterdir():
                if left.name != FILES:
                    _remove(left)
            write_record(staged / ENTRY, entry)
            final.parent.mkdir(parents=True, exist_ok=True)
            if final.exists():  # unusable: only then is anything fetched again
                shutil.rmtree(final)
            staged.rename(final)
        except OSError as error:
            raise disk_error(error, "a finished download", self.root) from error

    def need_space(self, needed_b: int, what: str) -> None:
        """Refuse early what can't fit. Raises: ModelError with both sizes."""
        free_b = self._free_b(self.root)
        if needed_b + _SPARE_B > free_b:
            raise ModelError(
                f"{what} needs {format_bytes(needed_b)} and the disk of {self.root} has {format_bytes(free_b)} free",
                hint="free some space, or set BENCH_CACHE to a folder on another disk",
            )

    @contextlib.contextmanager
    def lock(self, key: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Only one process at a time fetches `key`; `on_wait` is called once if another one is at it. The kernel frees the
        lock of a killed process, and the file stays: removing it would let two processes lock two files of one name.
        """
        path = self.root / "locks" / f"{key}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise disk_error(error, "a lock", self.root) from error
        try:
            _lock(handle, on_wait, self.root)
            yield
        finally:
            os.close(handle)


def _lock(handle: int, on_wait: Callable[[], None], root: Path) -> None:
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        raise ModelError(
            f"the disk of {root} can't lock files: {error.strerror}", hint="set BENCH_CACHE to a folder on a local disk"
        ) from error


def read_record(path: Path, kind: type[T]) -> tuple[T | None, str | None]:
    """A record from a JSON file, or why it can't be read."""
    try:
        return codec.decode(path.read_bytes(), kind), None
    except (OSError, ValueError) as error:
        return None, f"{path.name}: {error}"


def write_record(path: Path, record: object) -> None:
    """Write a record as JSON in one step: readers see the old file or the new one. Raises: ModelError."""
    try:
        write_whole(path, codec.encode_pretty(record))
    except OSError as error:
        raise disk_error(error, path.name, path.parent) from error


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
