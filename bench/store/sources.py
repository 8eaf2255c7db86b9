"""Shards that lie elsewhere: in folders, in zip files (CI artifacts), and at URLs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.store import archives, layout, remote
from bench.store.validation import BadShard

_UNENDED = {layout.PARTIAL, layout.UNREADABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A folder somewhere that holds a `trial.json`. `label` names it to people; `fetch` puts one of its files at a path, or says
    why not.

    Raises (fetch): BadShard (what is there can't be taken), OSError (it can't be written here).
    """

    label: str
    fetch: Callable[[str, Path], None]


def shards_at(source: str, scratch: Path) -> Iterator[Found]:
    """Every shard at or below a folder, in a zip file or at a URL. What is downloaded whole goes to `scratch`.

    Raises: UsageError (nothing there, or no shard in it).
    """
    if remote.is_url(source):
        found = _at_url(source, scratch)
    elif source and Path(source).is_dir():
        found = _below(Path(source))
    elif archives.is_archive(source) and Path(source).is_file():
        found = _in_archive(Path(source), source)
    else:
        raise UsageError(
            f"{source!r} is not a folder, a zip file or a URL", hint="give a shard's folder, or what holds shards at any depth"
        )
    empty = True
    for one in found:
        empty = False
        yield one
    if empty:
        raise UsageError(f"there is no {layout.TRIAL_JSON} in {source} or below it", hint="give a folder that holds shards")


def _below(source: Path) -> Iterator[Found]:
    for top, folders, files in os.walk(source):
        folders.sort()
        if _UNENDED & set(Path(top).parts):
            continue
        if layout.TRIAL_JSON in files:
            yield Found(label=top, fetch=_copier(Path(top)))
        for name in sorted(filter(archives.is_archive, files)):
            yield from _in_archive(Path(top) / name, str(Path(top) / name))


def _copier(folder: Path) -> Callable[[str, Path], None]:
    def fetch(name: str, to: Path) -> None:
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise BadShard(f"{name} is {'no plain file' if path.is_symlink() or path.exists() else 'missing'}")
        try:
            source = path.open("rb")
        except OSError as error:
            raise BadShard(f"{name} can't be read: {error.strerror}") from error
        with source, to.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)

    return fetch


def _in_archive(path: Path, label: str) -> Iterator[Found]:
    for folder, fetch in archives.shards_in(path):
        yield Found(label=f"{label}!{folder}", fetch=fetch)


def _at_url(url: str, scratch: Path) -> Iterator[Found]:
    store = remote.open_url(url)
    for top, names in store.folders():
        if _UNENDED & set(top.split("/")):
            continue
        if layout.TRIAL_JSON in names:
            yield Found(label=store.url(top), fetch=store.fetcher(top))
        for name in sorted(filter(archives.is_archive, names)):
            local = scratch / "archive.zip"
            store.fetcher(top)(name, local)
            yield from _in_archive(local, store.url(f"{top}/{name}"))
