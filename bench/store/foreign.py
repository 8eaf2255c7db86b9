"""Shards from another machine or another folder: copied aside, checked whole, and only then seen."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench import clock
from bench.store import layout
from bench.store.ingest import Rejection
from bench.store.layout import write_error
from bench.store.sources import Found, shards_at
from bench.store.validation import BadShard, Shard, check_clock, check_record, read_record, read_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Shards that were copied in, those that were there already, and those refused."""

    copied: tuple[Path, ...] = ()
    present: int = 0
    rejected: tuple[Rejection, ...] = ()


def bring_in(results: Path, sources: Iterable[str | Path]) -> ImportReport:
    """Copy every shard at or below `sources` (folders, zip files, URLs) into `results`. Each is verified with its siblings first.

    Raises: UsageError (a path that is not there or holds no shard), StoreError (no space, no permission), MissingError (a package
    that a URL needs).
    """
    try:
        work = layout.work_dir(results)
        work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work, prefix="import-", suffix=f".{os.getpid()}") as scratch:  # see `clear_work`
            return _bring_in(results, sources, Path(scratch))
    except OSError as error:
        raise write_error(results, error) from error


def _bring_in(results: Path, sources: Iterable[str | Path], scratch: Path) -> ImportReport:
    taken = {folder.name: folder for folder in layout.shard_folders(results)}
    copied: list[Path] = []
    rejected: list[Rejection] = []
    present = 0
    for found in (one for source in sources for one in shards_at(str(source), scratch)):
        try:
            home = _take(results, found, taken, scratch)
        except BadShard as error:
            rejected.append(Rejection(shard=found.label, reason=str(error)))
        else:
            present += home is None
            copied += [] if home is None else [home]
    return ImportReport(copied=tuple(copied), present=present, rejected=tuple(rejected))


def _take(results: Path, found: Found, taken: dict[str, Path], scratch: Path) -> Path | None:
    """Where it lies now; None where the same shard was there already. The record is fetched first, the rest only for a good one.

    Raises: BadShard, OSError, StoreError.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        landing = Path(folder)
        found.fetch(layout.TRIAL_JSON, landing / layout.TRIAL_JSON)
        record = read_record(landing)
        check_record(record)
        check_clock(record, clock.SYSTEM.wall_ns())
        home = results / layout.shard_path(record)
        if _is_present(landing, home, taken.get(home.name)):
            return None
        for name in record.files:
            found.fetch(name, landing / name)
            layout.sync(landing / name)
        layout.sync(landing / layout.TRIAL_JSON)
        shard = read_shard(landing, verify=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        if not _place(shard, home):
            return None
    taken[home.name] = home
    return home


def _is_present(landing: Path, home: Path, holder: Path | None) -> bool:
    """Whether the same shard is there already. Raises: BadShard where another one has its id."""
    if holder is None:
        return False
    ours, theirs = (layout.sha256_file(folder / layout.TRIAL_JSON) for folder in (holder, landing))
    if holder == home and ours == theirs:
        return True
    raise BadShard(f"trial_id {home.name} is already that of {holder}, with other content")


def _place(shard: Shard, home: Path) -> bool:
    """Rename it into place; False where another process has brought in the same shard meanwhile. Raises: OSError, BadShard."""
    layout.sync(shard.folder)
    try:
        shard.folder.rename(home)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return not _is_present(shard.folder, home, home)
    shard.folder.mkdir()  # what made the landing removes it
    layout.sync(home.parent)
    return True
