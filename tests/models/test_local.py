"""Weights that are already on the disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from bench.errors import ModelError
from bench.models import entry
from tests.models.conftest import MakeStore, no_progress
from tests.models.samples import CONFIG, combined_sha256, gguf_bytes, repository, safetensors_bytes


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    for name, data in repository().items():
        if "/" not in name:
            (folder / name).write_bytes(data)
    return folder


def test_a_gguf_file(tmp_path: Path, make_store: MakeStore) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes())
    model = make_store().fetch(str(path), None, no_progress)
    assert (model.name, model.path, model.format, model.size_b) == ("m", str(path), "gguf", path.stat().st_size)
    assert model.weights_sha256 == hashlib.sha256(gguf_bytes()).hexdigest()
    assert (model.licence, model.shape.layers) == ("mit", 2)


def test_a_folder(tmp_path: Path, make_store: MakeStore) -> None:
    folder = _folder(tmp_path)
    model = make_store().fetch("mine", f"path:{folder}", no_progress)
    files = repository()
    assert (model.name, Path(model.path), model.format) == ("mine", folder, "safetensors")
    assert model.weights_sha256 == combined_sha256(*(files[f"model-0000{i}-of-00002.safetensors"] for i in (1, 2)))
    assert model.shape.layers == CONFIG["num_hidden_layers"]


def test_hashed_once_and_again_only_when_a_file_changes(
    tmp_path: Path, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    real = entry.file_sha256

    def count(path: Path) -> str:
        hashed.append(path.name)
        return real(path)

    monkeypatch.setattr(entry, "file_sha256", count)
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes())
    first = make_store().fetch("m", str(path), no_progress)
    assert make_store().fetch("m", str(path), no_progress) == first
    assert hashed == ["m.gguf"]
    path.write_bytes(gguf_bytes(payload_b=300))
    assert make_store().fetch("m", str(path), no_progress).weights_sha256 == hashlib.sha256(gguf_bytes(payload_b=300)).hexdigest()
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    time_ns = path.stat().st_mtime_ns
    path.write_bytes(changed)
    os.utime(path, ns=(time_ns + 1, time_ns + 1))  # same size, one nanosecond later
    assert make_store().fetch("m", str(path), no_progress).weights_sha256 == hashlib.sha256(changed).hexdigest()


def test_above_the_limit_the_hash_is_missing_with_a_reason(tmp_path: Path, make_store: MakeStore) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(payload_b=5000))
    model = make_store(hash_limit_b=4096).fetch("m", str(path), no_progress)
    assert model.weights_sha256 is None
    assert model.weights_reason is not None
    assert "limit 4.0 KiB" in model.weights_reason
    assert model.shape.layers == 2
    assert make_store().fetch("m", str(path), no_progress).weights_sha256 is not None, (
        "a higher limit is not held back by the memo"
    )


def test_nothing_there(tmp_path: Path, make_store: MakeStore) -> None:
    with pytest.raises(ModelError, match="there is nothing at"):
        make_store().fetch("m", f"path:{tmp_path}/none", no_progress)


def test_an_empty_folder(tmp_path: Path, make_store: MakeStore) -> None:
    with pytest.raises(ModelError, match="no weights"):
        make_store().fetch("m", f"path:{tmp_path}", no_progress)


def test_a_gguf_that_is_none(tmp_path: Path, make_store: MakeStore) -> None:
    (tmp_path / "m.gguf").write_bytes(b"<html>")
    with pytest.raises(ModelError, match="not a usable GGUF file"):
        make_store().fetch("m", f"path:{tmp_path}/m.gguf", no_progress)


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path, make_store: MakeStore) -> None:
    (tmp_path / "cache").write_text("in the way")
    (tmp_path / "m.safetensors").write_bytes(safetensors_bytes({"w": (3,)}))
    assert make_store().fetch("m", f"path:{tmp_path}/m.safetensors", no_progress).weights_sha256 is not None
