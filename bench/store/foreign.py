"""Shards from another machine or another folder: checked whole, copied, and only then seen."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.store import layout
from bench.store.ingest import Rejection
from bench.store.layout import write_error
from bench.store.validation import BadShard, Shard, read_shard

_UNENDED = {layout.PARTIAL, layout.UNREADABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """Shards that were copied in, those that were there already, and those refused."""

    copied: tuple[Path, ...] = ()
    present: int = 0
    rejected: tuple[Rejection, ...] = ()


def bring_in(results: Path, sources: Iterable[Path]) -> ImportReport:
    """Copy every shard at or below `sources` into `results`. Each is verified with its siblings first.

    Raises: UsageError (a path that is not there or holds no shard), StoreError (no space, no permission).
    """
    try:
        layout.partial_dir(results).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(results, error) from error
    taken = {folder.name: folder for folder in layout.shard_folders(results)}
    copied: list[Path] = []
    rejected: list[Rejection] = []
    present = 0
    for folder in [found for source in sources for found in _shards_below(source)]:
        try:
            shard = read_shard(folder, verify=True)
            home = results / layout.shard_path(shard.record)
            if _is_present(shard, home, taken.get(home.name)):
                present += 1
                continue
            if not _copy(results, shard, home):
                present += 1
                continue
        except BadShard as error:
            rejected.append(Rejection(shard=str(folder), reason=str(error)))
        except OSError as error:
            raise write_error(results, error) from error
        else:
            taken[home.name] = home
            copied.append(home)
    return ImportReport(copied=tuple(copied), present=present, rejected=tuple(rejected))


def _shards_below(source: Path) -> Iterator[Path]:
    if not source.is_dir():
        raise UsageError(f"{source} is not a folder", hint="give a shard's folder, or one that holds shards")
    found = [Path(top) for top, _, files in os.walk(source) if layout.TRIAL_JSON in files and not _UNENDED & set(Path(top).parts)]
    if not found:
        raise UsageError(f"there is no {layout.TRIAL_JSON} in {source} or below it", hint="give a folder that holds shards")
    yield from sorted(found)


def _is_present(shard: Shard, home: Path, holder: Path | None) -> bool:
    """Whether the same shard is there already. Raises: BadShard where another one has its id."""
    if holder is None:
        return False
    if holder == home and layout.sha256_file(home / layout.TRIAL_JSON) == shard.sha256:
        return True
    raise BadShard(f"trial_id {shard.record.key.trial_id} is already that of {holder}, with other content")


def _copy(results: Path, shard: Shard, home: Path) -> bool:
    """Copy the record and its siblings, check them again where they landed, and rename; False where another process has
    brought in the same shard meanwhile. Raises: OSError, BadShard.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=layout.partial_dir(results), prefix=".import-") as scratch:
        landing = Path(scratch) / home.name
        landing.mkdir()
        for name in (*shard.record.files, layout.TRIAL_JSON):
            shutil.copyfile(shard.folder / name, landing / name, follow_symlinks=False)
            layout.sync(landing / name)
        if read_shard(landing, verify=True).sha256 != shard.sha256:
            raise BadShard("it changed while it was copied")
        layout.sync(landing)
        try:
            landing.rename(home)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return not _is_present(shard, home, home)
    layout.sync(home.parent)
    return True
