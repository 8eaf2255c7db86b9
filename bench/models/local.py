"""Weights that are already on this disk (`path:`): hashed once, remembered in the cache by size and time of the files."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from bench.errors import ModelError
from bench.models.cache import Cache, read_record, write_record
from bench.models.entry import SCHEMA, Entry, changed, describe
from bench.models.layout import Layout, choose
from bench.models.source import Source
from bench.units import format_bytes

HASH_LIMIT_B = 8 << 30
"""Above this many bytes of weights [bytes], hashing would cost more than it is worth before a first run."""


def inspect(source: Source, cache: Cache, hash_limit_b: int = HASH_LIMIT_B) -> tuple[Path, Entry]:
    """The folder of the files and what they are.

    Raises: ModelError if there is nothing there, no weights, several models, or a file that can't be read.
    """
    path = Path(source.what)
    if not path.exists():
        raise ModelError(f"there is nothing at {path}", hint="check the path")
    root = path if path.is_dir() else path.parent
    try:
        chosen = _layout(path, source)
        memo = cache.root / "paths" / f"{hashlib.sha256(source.what.encode()).hexdigest()[:24]}.json"
        known, _ = read_record(memo, Entry)
        if known is not None and _still(known, chosen, root):
            return root, known
        size_b = sum((root / name).stat().st_size for name in chosen.weights)
        reason = None
        if size_b > hash_limit_b:
            reason = f"{format_bytes(size_b)} of local weights were not hashed (limit {format_bytes(hash_limit_b)})"
        entry = describe(root, chosen, {}, source=source.text, commit=None, licence=None, unhashed=reason)
    except OSError as error:
        raise ModelError(f"can't read {path}: {error.strerror or error}", hint="check its permissions") from error
    with contextlib.suppress(ModelError, OSError):  # a cache that can't be written only costs the next run another hash
        memo.parent.mkdir(parents=True, exist_ok=True)
        write_record(memo, entry)
    return root, entry


def _layout(path: Path, source: Source) -> Layout:
    if path.is_dir():
        return choose([p.name for p in path.iterdir() if p.is_file()], None, source.text)
    if path.suffix == ".gguf":
        return choose([p.name for p in path.parent.glob("*.gguf")], path.name, source.text)
    return choose([path.name], path.name, source.text)


def _still(known: Entry, chosen: Layout, root: Path) -> bool:
    same_files = tuple(f.path for f in known.files) == chosen.keep and known.schema == SCHEMA
    return same_files and known.weights_reason is None and changed(root, known) is None
