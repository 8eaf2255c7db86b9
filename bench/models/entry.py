"""What the cache knows of one set of weights: hashed and read once, checked by size and modification time afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from bench import gguf
from bench.models import safetensors
from bench.models.layout import Format, Layout
from bench.records import ModelShape

SCHEMA = 1
_BLOCK_B = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFile:
    """One file: its size [bytes], modification time [ns] and SHA-256 (None where not hashed)."""

    path: str
    size_b: int
    mtime_ns: int
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`entry.json`. `main` is what an engine is given, relative to the folder of files (empty: that folder); `made_of` is the
    `weights_sha256` of what converted weights were made of.
    """

    schema: int = SCHEMA
    source: str
    commit: str | None = None
    format: Format
    main: str
    size_b: int
    weights_sha256: str | None
    weights_reason: str | None = None
    made_of: str | None = None
    licence: str | None = None
    shape: ModelShape = field(default_factory=ModelShape)
    files: tuple[EntryFile, ...] = ()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_B):
            total.update(block)
    return total.hexdigest()


def weights_sha256(kind: Format, hashes: Sequence[str]) -> str:
    """SHA-256 that stands for all weights: the file's own where the model is one file; for safetensors and split models
    that of the sorted hashes of the parts, one a line.
    """
    if len(hashes) == 1 and kind != "safetensors":
        return hashes[0]
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest()


def describe(
    root: Path,
    layout: Layout,
    hashes: Mapping[str, str],
    *,
    source: str,
    commit: str | None,
    licence: str | None,
    unhashed: str | None = None,
) -> Entry:
    """The entry of the files under `root`. `hashes` by path are those already known; without `unhashed` (a reason for not
    hashing the weights) the missing ones are computed.

    Raises: ModelError if a GGUF header can't be read. OSError if a file can't be.
    """
    files = tuple(_file(root, name, hashes.get(name), hash_it=unhashed is None) for name in layout.keep)
    by_path = {f.path: f for f in files}
    weights = [by_path[name] for name in layout.weights]
    known = [f.sha256 for f in weights if f.sha256 is not None]
    shape, named = _read(root, layout)
    return Entry(
        source=source,
        commit=commit,
        format=layout.format,
        main=layout.main,
        size_b=sum(f.size_b for f in weights),
        weights_sha256=weights_sha256(layout.format, known) if len(known) == len(weights) else None,
        weights_reason=None if len(known) == len(weights) else unhashed,
        licence=licence or named,
        shape=shape,
        files=files,
    )


def _file(root: Path, name: str, known: str | None, *, hash_it: bool) -> EntryFile:
    path = root / name
    stat = path.stat()
    sha256 = known or (file_sha256(path) if hash_it else None)
    return EntryFile(path=name, size_b=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256)


def _read(root: Path, layout: Layout) -> tuple[ModelShape, str | None]:
    """Shape and licence as the files tell them."""
    if layout.format == "gguf":
        headers = [gguf.read_header(root / name) for name in layout.weights]
        parameters = sum(h.parameters for h in headers) or None
        return structs.replace(gguf.shape(headers[0]), parameters=parameters), gguf.licence(headers[0])
    if layout.format == "safetensors":
        return safetensors.shape(root, [root / name for name in layout.weights]), None
    if layout.format == "openvino":
        return safetensors.shape(root, ()), None
    return ModelShape(), None


def changed(root: Path, entry: Entry) -> str | None:
    """In words, the first file that is not as recorded (gone, other size, other time); None if all are."""
    for file in entry.files:
        try:
            stat = (root / file.path).stat()
        except OSError:
            return f"{file.path} is gone"
        if stat.st_size != file.size_b:
            return f"{file.path} has {stat.st_size} bytes, not {file.size_b}"
        if stat.st_mtime_ns != file.mtime_ns:
            return f"{file.path} was touched"
    return None


def rehashed(root: Path, entry: Entry) -> Entry | None:
    """The entry with new times if every file still has its recorded content; None if any differs or has no known hash."""
    files = []
    for file in entry.files:
        try:
            now = _file(root, file.path, None, hash_it=True)
        except OSError:
            return None
        if now.size_b != file.size_b or now.sha256 != file.sha256:
            return None
        files.append(now)
    return replace(entry, files=tuple(files))
