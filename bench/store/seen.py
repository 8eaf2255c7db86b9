"""What the last ingest saw, so that a command which only reads need not look at a hundred thousand shards that are never changed.

Shards come and go as a whole, by a rename, which changes the time of their run's folder. Beside the database lies the time of
each of those folders; where one, and the database itself, is as it was, there is nothing to ingest in it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import clock, codec
from bench.store import layout, schema
from bench.whole_file import write_whole

SEEN_JSON = ".lab.seen.json"
_COARSEST_NS = 2 * 10**9
"""Times of files may be this coarse: a folder that was changed so shortly before it was seen may have changed after."""
_UNSETTLED_NS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`runs`: the folder of each run with its modification time [ns], as they were at `at_ns`. `database`: size and modification
    time [ns] of the database that was made of them.
    """

    schema_tag: str
    at_ns: int
    database: tuple[int, int] = (0, 0)
    runs: dict[str, int] = field(default_factory=dict)


def look(results: Path) -> Seen:
    """The folders of runs as they are now, to be taken before the shards are read. Raises: StoreError."""
    seen = Seen(schema_tag=schema.SCHEMA_TAG, at_ns=clock.SYSTEM.wall_ns())
    for run in layout.runs_in(results):
        with suppress(FileNotFoundError):  # gone meanwhile
            seen.runs[run] = (results / run).stat().st_mtime_ns
    return seen


def keep(cache: Path, database: Path, seen: Seen, open_runs: Collection[str]) -> None:
    """Write down what was seen, complete or not at all. `open_runs` are to be looked at again whatever happens: what is refused
    today may be taken tomorrow. A folder that can't be written keeps nothing, which only costs time.
    """
    settled_ns = seen.at_ns - _COARSEST_NS
    runs = {run: _UNSETTLED_NS if at_ns >= settled_ns or run in open_runs else at_ns for run, at_ns in seen.runs.items()}
    with suppress(OSError):
        write_whole(cache / SEEN_JSON, codec.encode(replace(seen, database=_size_and_time(database), runs=runs)))


def changed_runs(cache: Path, database: Path, now: Seen) -> list[str] | None:
    """The folders of runs in which something may have come or gone since, with those that are gone as a whole; None where the
    database is not the one that was seen.
    """
    try:
        before = codec.decode((cache / SEEN_JSON).read_bytes(), Seen)
        found = now.schema_tag, _size_and_time(database)
    except (OSError, ValueError, RecursionError):
        return None
    if found != (before.schema_tag, before.database):
        return None
    every = [*now.runs, *(run for run in before.runs if run not in now.runs)]
    return [run for run in every if before.runs.get(run, _UNSETTLED_NS) != now.runs.get(run)]


def _size_and_time(file: Path) -> tuple[int, int]:
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns
