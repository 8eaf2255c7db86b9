"""What the last ingest saw, so that a command which only reads need not look at a hundred thousand shards that are never changed.

Shards come and go as a whole, by a rename, which changes the time of their run's folder. Beside the database lies the time of
each of those folders; while all of them, and the database itself, are as they were, there is nothing to ingest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from bench import clock, codec
from bench.store import layout, schema

SEEN_JSON = ".lab.seen.json"
_COARSEST_NS = 2 * 10**9
"""Times of files may be this coarse: a folder that was changed so shortly before it was seen may have changed after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`folders`: the run folders of a results folder with their modification times [ns], as they were at `at_ns`. `database`:
    size and modification time [ns] of the database that was made of them.
    """

    schema_tag: str
    at_ns: int
    database: tuple[int, int] = (0, 0)
    folders: dict[str, int] = field(default_factory=dict)


def look(results: Path) -> Seen:
    """The run folders as they are now, to be taken before the shards are read. Raises: StoreError."""
    folders = {run.relative_to(results).as_posix(): run.stat().st_mtime_ns for run in layout.run_folders(results)}
    return Seen(schema_tag=schema.SCHEMA_TAG, at_ns=clock.SYSTEM.wall_ns(), folders=folders)


def keep(cache: Path, database: Path, seen: Seen) -> None:
    """Write down what was seen, complete or not at all. A folder that can't be written keeps nothing, which only costs time."""
    path = cache / SEEN_JSON
    part = path.with_name(f"{SEEN_JSON}.{os.getpid()}")
    stat = database.stat()
    noted = codec.to_builtins(seen) | {"database": (stat.st_size, stat.st_mtime_ns)}
    try:
        part.write_bytes(codec.encode(noted))
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)


def forget(cache: Path) -> None:
    """The next command looks at every shard."""
    (cache / SEEN_JSON).unlink(missing_ok=True)


def is_current(cache: Path, database: Path, results: Path) -> bool:
    """Whether nothing can have changed since. Raises: StoreError."""
    try:
        noted = codec.decode((cache / SEEN_JSON).read_bytes(), Seen)
        stat = database.stat()
        now = look(results)
    except (OSError, ValueError, RecursionError):
        return False
    return (
        (noted.schema_tag, noted.database, noted.folders) == (now.schema_tag, (stat.st_size, stat.st_mtime_ns), now.folders)
        and max(noted.folders.values(), default=0) < noted.at_ns - _COARSEST_NS
    )  # fmt: skip
