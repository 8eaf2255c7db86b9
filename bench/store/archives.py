"""Shards in a zip file that anyone may have made: only what belongs to a shard is unpacked, never to a place of its choice."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from bench.store import layout
from bench.store.validation import TRIAL_JSON_LIMIT_B, BadShard
from bench.units import format_bytes

Fetch = Callable[[str, Path], None]

FILE_LIMIT_B = 8 << 30
"""The largest file of a shard that is taken out of a zip file, or from a URL."""
_SMALL_B = 16 << 20
_UNPACKED_PER_B = 200
"""Logs of engines reach 50; Parquet is packed already."""
_PIECE_B = 1 << 20


def is_archive(name: str) -> bool:
    """Whether a file is to be looked into, by its name."""
    return name.lower().endswith(".zip")


def shards_in(path: Path) -> Iterator[tuple[str, Fetch]]:
    """(folder in the archive, how to take a file out of it) of each shard, and of whatever would climb out of the archive, which
    then says so. Zip files within it are left alone.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _shards(archive)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, ValueError, NotImplementedError) as error:
        yield "", _refusing(f"it can't be read as a zip file: {layout.reason(error)}")


def _shards(archive: zipfile.ZipFile) -> Iterator[tuple[str, Fetch]]:
    entries = archive.infolist()
    times = Counter(entry.filename for entry in entries)
    files = {entry.filename: entry for entry in entries}
    for name, entry in files.items():
        where, _, last = name.rpartition("/")
        if _climbs(name):
            yield name, _refusing("its name leads out of the archive")
        elif last == layout.TRIAL_JSON and not entry.is_dir() and layout.PARTIAL not in where.split("/"):
            yield where, _unpacker(archive, where, files, times)


def _climbs(name: str) -> bool:
    return name.startswith("/") or ".." in PurePosixPath(name).parts or "\\" in name or ":" in name.partition("/")[0]


def _refusing(reason: str) -> Fetch:
    def fetch(_: str, __: Path) -> None:
        raise BadShard(reason)

    return fetch


def _unpacker(archive: zipfile.ZipFile, where: str, files: dict[str, zipfile.ZipInfo], times: Counter[str]) -> Fetch:
    def fetch(name: str, to: Path) -> None:
        whole = f"{where}/{name}" if where else name
        entry = files.get(whole)
        if entry is None:
            raise BadShard(f"{name} is missing")
        if times[whole] > 1:
            raise BadShard(f"{name} is in the archive {times[whole]} times")
        _check(entry, name)
        try:
            source = archive.open(entry)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, ValueError) as error:
            raise BadShard(f"{name} can't be taken out: {layout.reason(error)}") from error
        with source, to.open("wb") as target:
            while piece := _piece(source, name):
                target.write(piece)

    return fetch


def _check(entry: zipfile.ZipInfo, name: str) -> None:
    """Refuse what is no plain file, and what is far larger than it looks. Raises: BadShard."""
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if entry.is_dir() or kind not in (0, stat.S_IFREG):
        raise BadShard(f"{name} is no plain file")
    check_size(name, entry.file_size)
    if entry.file_size > _SMALL_B and entry.file_size > _UNPACKED_PER_B * max(entry.compress_size, 1):
        raise BadShard(f"{name} unpacks {format_bytes(entry.compress_size)} to {format_bytes(entry.file_size)}")


def check_size(name: str, size_b: int) -> None:
    """Refuse a file of a shard that is larger than any is. Raises: BadShard."""
    limit_b = TRIAL_JSON_LIMIT_B if name == layout.TRIAL_JSON else FILE_LIMIT_B
    if size_b > limit_b:
        raise BadShard(f"{name} is {format_bytes(size_b)}, more than {format_bytes(limit_b)}")


def _piece(source: IO[bytes], name: str) -> bytes:
    """The next bytes; never more in all than the directory of the archive says. Raises: BadShard."""
    try:
        return source.read(_PIECE_B)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise BadShard(f"{name} can't be unpacked: {layout.reason(error)}") from error
