"""Fetches the files of a hub's repository into a staging folder, one after the other, so that any break can be resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.errors import ModelError
from bench.models import http, layout
from bench.models.cache import FILES, Cache, disk_error, read_record, write_record
from bench.models.entry import Entry, EntryFile, describe, file_sha256
from bench.models.hub import Listing, RemoteFile, Site
from bench.models.source import Source
from bench.ports import BytesProgress

_STATE = "fetched.json"
_BLOCK_B = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    """Files of the staging folder that are complete and checked, with the token of what they are."""

    files: dict[str, EntryFile] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be had, and where it goes."""

    site: Site
    source: Source
    listing: Listing
    chosen: layout.Layout
    staging: Path

    def remote(self, name: str) -> RemoteFile:
        return next(f for f in self.listing.files if f.path == name)

    def target(self, name: str) -> Path:
        return self.staging / FILES / name

    def part(self, name: str) -> Path:
        return self.target(name).with_name(self.target(name).name + ".part")

    def token(self, name: str) -> str:
        """Names the content of a file: its digest, else where it was listed."""
        file = self.remote(name)
        return file.digest or f"at:{self.listing.commit or self.source.revision}:{name}:{file.size_b}"


def fetch(site: Site, source: Source, cache: Cache, progress: BytesProgress, expected_sha256: str | None = None) -> Entry:
    """Fetch what `source` names into the staging folder and describe it.

    Raises: ModelError. What has been fetched stays for the next try, but for files whose content is wrong.
    """
    try:
        listing = site.listing(source)
        chosen = layout.choose([f.path for f in listing.files], source.file, source.text)
        plan = _Plan(site=site, source=source, listing=listing, chosen=chosen, staging=cache.staging(source.key))
        hashes = _fetch_all(plan, cache, progress)
    except http.StatusError as error:
        raise site.refusal(source, error) from error
    if expected_sha256 is not None and hashes[chosen.main] != expected_sha256:
        plan.target(chosen.main).unlink()
        raise wrong_hash(chosen.main, expected_sha256, hashes[chosen.main])
    try:
        return describe(plan.staging / FILES, chosen, hashes, source=source.text, commit=listing.commit, licence=listing.licence)
    except OSError as error:
        raise disk_error(error, "a download", plan.staging) from error


def wrong_hash(what: str, expected: str, got: str) -> ModelError:
    """A file whose bytes are not the promised ones."""
    return ModelError(
        f"{what} has the wrong content: expected {expected}, got {got}; it was removed",
        hint="run the command again; if it happens twice, the source has changed or something on the way alters it",
    )


def _fetch_all(plan: _Plan, cache: Cache, progress: BytesProgress) -> dict[str, str]:
    """Fetch every file of the plan; returns their SHA-256."""
    files, tokens = _already(plan)
    missing = [name for name in plan.chosen.keep if name not in files]
    _check_space(plan, missing, cache)
    total_b = _total([plan.remote(name).size_b for name in plan.chosen.keep])
    for name in missing:
        before_b = sum(f.size_b for f in files.values())
        files[name] = _fetch_one(plan, name, _Steps(progress, plan.source.short_name, before_b, total_b))
        tokens[name] = plan.token(name)
        write_record(plan.staging / _STATE, _Fetched(files=files, tokens=tokens))
    return {name: file.sha256 for name, file in files.items() if file.sha256 is not None}


def _already(plan: _Plan) -> tuple[dict[str, EntryFile], dict[str, str]]:
    """Files that an earlier try completed and that are still what is wanted, with their tokens."""
    state = read_record(plan.staging / _STATE, _Fetched)[0] or _Fetched()
    files = {
        name: state.files[name]
        for name in plan.chosen.keep
        if name in state.files and state.tokens.get(name) == plan.token(name) and _unchanged(plan.target(name), state.files[name])
    }
    return files, {name: plan.token(name) for name in files}


@dataclass(frozen=True, slots=True)
class _Steps:
    """Turns bytes of one file into bytes of the whole snapshot."""

    progress: BytesProgress
    what: str
    before_b: int
    total_b: int | None

    def __call__(self, done_b: int) -> None:
        self.progress(self.what, self.before_b + done_b, self.total_b)


def _fetch_one(plan: _Plan, name: str, on_bytes: Callable[[int], None]) -> EntryFile:
    file, target, part = plan.remote(name), plan.target(name), plan.part(name)
    job = http.Job(
        what=name,
        url=plan.site.url(plan.source, plan.listing.commit, name),
        size_b=file.size_b,
        token=plan.token(name),
        pinned=file.digest is not None,
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        plan.site.client.download(job, part, on_bytes)
        sha256 = _checked(part, file)
        part.replace(target)
        http.forget(part)
        stat = target.stat()
    except OSError as error:
        raise disk_error(error, name, target.parent) from error
    return EntryFile(path=name, size_b=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256)


def _checked(part: Path, file: RemoteFile) -> str:
    """SHA-256 of a complete part whose digest is right. Raises: ModelError, with the part removed, if it is not."""
    sha256 = file_sha256(part)
    if file.digest is None:
        return sha256
    kind, _, expected = file.digest.partition(":")
    got = sha256 if kind == "sha256" else _git_blob_id(part)
    if got != expected:
        http.discard(part)
        raise wrong_hash(file.path, expected, got)
    return sha256


def _git_blob_id(path: Path) -> str:
    total = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK_B):
            total.update(block)
    return total.hexdigest()


def _unchanged(path: Path, file: EntryFile) -> bool:
    try:
        stat = path.stat()
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns) == (file.size_b, file.mtime_ns)


def _check_space(plan: _Plan, missing: list[str], cache: Cache) -> None:
    needed_b = 0
    for name in missing:
        part = plan.part(name)
        have_b = part.stat().st_size if part.is_file() else 0
        needed_b += max((plan.remote(name).size_b or 0) - have_b, 0)
    cache.need_space(needed_b, plan.source.text)


def _total(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
