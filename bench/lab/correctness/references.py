"""Where references lie: a file for each set of weights, in the cache of this machine or shipped for a model of the catalogue."""

from __future__ import annotations

import os
from pathlib import Path

from bench import catalog, codec
from bench.analysis.agreement import Reference
from bench.cache_dir import default_dir
from bench.errors import StoreError
from bench.records import EngineHandle, LocalModel
from bench.whole_file import write_whole

_SHIPPED = Path(catalog.__file__).with_name("references")


def weights_of(handle: EngineHandle, model: LocalModel | None) -> str | None:
    """What tells weights apart: the hash of what they were first, before any conversion; None where nobody knows."""
    if model is None:
        return handle.own_weights
    return model.made_of or model.weights_sha256


def folder() -> Path:
    """That of this machine's own references."""
    return default_dir(os.environ) / "references"


def find(weights: str) -> Reference | None:
    """The reference of `weights`: this machine's own, else the shipped one. Raises: StoreError (a file that can't be read)."""
    for path in (_path(folder(), weights), _path(_SHIPPED, weights)):
        if path.exists():
            try:
                found = codec.decode(path.read_bytes(), Reference)
            except (OSError, ValueError) as error:
                hint = "delete it, and make it again with bench reference"
                raise StoreError(f"the reference {path} can't be read: {error}", hint=hint) from error
            if found.weights == weights:
                return found
    return None


def keep(reference: Reference) -> Path:
    """Write it to this machine's own, in the place of an older one. Raises: StoreError."""
    path = _path(folder(), reference.weights)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, codec.encode_pretty(reference))
    except OSError as error:
        raise StoreError(f"can't write {path}: {error.strerror}", hint="set BENCH_CACHE to another folder") from error
    return path


def _path(where: Path, weights: str) -> Path:
    return where / f"{weights[:16]}.json"
