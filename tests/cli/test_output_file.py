"""What `--out` of a command writes: all of a file, or what was there."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.cli.output_file import write_output
from bench.errors import StoreError


@contextmanager
def largest_file(limit_b: int) -> Iterator[None]:
    """A disk that gets full: of a larger file only so much can be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_b, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_gets_full_keeps_what_was_there_and_leaves_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "export.json"
    out.write_bytes(b"old")
    with largest_file(1000), pytest.raises(StoreError, match=r"can't write .*export.json"):
        write_output(out, b"x" * 5000)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("export.json", b"old")]


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    for data in (b"first", b"second"):
        write_output(tmp_path / "link", data)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there" / "file").read_bytes() == data


@pytest.mark.parametrize("through_link", [False, True])
def test_a_pipe_is_written_to_and_stays(tmp_path: Path, through_link: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    out = tmp_path / "link" if through_link else pipe
    if through_link:
        out.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(out, b"data")
    assert os.read(reader, 100) == b"data"
    os.close(reader)
    assert pipe.is_fifo()
    assert out.is_symlink() == through_link


def test_nothing_that_lies_beside_it_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    for name in ("out.part", ".out.part"):
        (tmp_path / name).symlink_to("precious")
    write_output(tmp_path / "out", b"data")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "out").read_bytes() == b"data"


@pytest.mark.parametrize("name", ["", "missing/file", "x" * 300, "folder", "file/below"])
def test_where_no_file_can_be_is_said_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreError) as caught:
        write_output(Path(name), b"data")
    assert caught.value.hint
    assert sorted(tmp_path.iterdir()) == before
