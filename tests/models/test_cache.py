"""The cache on disk: where it is, what makes an entry usable, and that it appears whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bench.cache_dir import default_dir
from bench.errors import ModelError
from bench.models.cache import Cache, disk_error, read_record, write_record
from bench.models.entry import Entry, describe
from bench.models.layout import choose
from tests.models.samples import gguf_bytes


@pytest.mark.parametrize(
    ("env", "platform", "expected"),
    [
        ({"BENCH_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "linux", "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "linux", "/x/tokjoule"),
        ({"HOME": "/h"}, "linux", "/h/.cache/tokjoule"),
        ({"HOME": "/h"}, "darwin", "/h/Library/Caches/tokjoule"),
        ({"BENCH_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/h"}, "linux", "/h/.cache/tokjoule"),
    ],
)
def test_default_dir(env: dict[str, str], platform: str, expected: str) -> None:
    assert default_dir(env, platform) == Path(expected)


def test_a_relative_cache_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_dir({"BENCH_CACHE": "here"}) == tmp_path / "here"


def _finished(cache: Cache) -> Entry:
    staging = cache.staging("k")
    (staging / "files" / "m.gguf").write_bytes(gguf_bytes())
    (staging / "leftover.json").write_text("{}")
    (staging / "pip-old").mkdir()
    entry = describe(staging / "files", choose(["m.gguf"], None, "s"), {}, source="s", commit=None, licence=None)
    cache.finish("k", entry)
    return entry


def test_a_finished_entry_loads_as_written(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry = _finished(cache)
    assert cache.load("k") == (entry, None)
    assert sorted(p.name for p in (tmp_path / "models" / "k").iterdir()) == ["entry.json", "files"]
    assert not (tmp_path / "partial" / "k").exists()
    assert [key for key, _ in cache.entries()] == ["k"]


def test_an_empty_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "none")
    assert cache.load("k") == (None, None)
    assert list(cache.entries()) == []
    assert not (tmp_path / "none").exists()


def test_a_copied_cache_is_hashed_once_and_then_trusted(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry = _finished(cache)
    os.utime(cache.files("k") / "m.gguf", ns=(1, 1))
    again, problem = cache.load("k")
    assert problem is None
    assert again is not None
    assert again.weights_sha256 == entry.weights_sha256
    assert again.files[0].mtime_ns == 1
    assert cache.load("k") == (again, None)


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda files: (files / "m.gguf").unlink(), "m.gguf is gone"),
        (lambda files: (files / "m.gguf").write_bytes(b"short"), "has 5 bytes"),
        (lambda files: (files / "m.gguf").write_bytes(gguf_bytes()[:-1] + b"!"), "m.gguf was touched"),
        (lambda files: (files.parent / "entry.json").write_text("{"), "entry.json: "),
        (lambda files: (files.parent / "entry.json").unlink(), "entry.json: "),
    ],
)
def test_a_damaged_entry_is_not_used_and_says_why(tmp_path: Path, harm: object, problem: str) -> None:
    cache = Cache(tmp_path)
    _finished(cache)
    assert callable(harm)
    harm(cache.files("k"))
    entry, why = cache.load("k")
    assert entry is None
    assert why is not None
    assert problem in why


def test_an_entry_of_another_version(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    _finished(cache)
    path = tmp_path / "models" / "k" / "entry.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99'))
    assert cache.load("k") == (None, "it was written by another version of bench (schema 99)")


def test_finish_replaces_a_damaged_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    _finished(cache)
    (cache.files("k") / "m.gguf").unlink()
    entry = _finished(cache)
    assert cache.load("k") == (entry, None)


def test_a_record_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_record(path, {"a": 1})
    before = path.stat().st_ino
    write_record(path, {"a": 2})
    assert path.stat().st_ino != before, "a new file took its place: no reader sees half of it"
    assert read_record(path, dict[str, int]) == ({"a": 2}, None)
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_two_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    import fcntl

    cache = Cache(tmp_path)
    with cache.lock("k", lambda: pytest.fail("nobody else holds it")):
        handle = os.open(tmp_path / "locks" / "k.lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
    with cache.lock("k", lambda: pytest.fail("it was let go")):
        pass


@pytest.mark.parametrize(
    ("code", "message"), [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "disk is full"), (errno.EROFS, "can't write x")]
)
def test_disk_errors(tmp_path: Path, code: int, message: str) -> None:
    error = disk_error(OSError(code, os.strerror(code)), "x", tmp_path)
    assert message in str(error)
    assert error.hint is not None
    assert "BENCH_CACHE" in error.hint


def test_space_that_is_just_enough(tmp_path: Path) -> None:
    cache = Cache(tmp_path, lambda _: 100 << 20)
    cache.need_space(84 << 20, "x")
    with pytest.raises(ModelError, match=r"x needs 84\.0 MiB"):
        cache.need_space((84 << 20) + 1, "x")
