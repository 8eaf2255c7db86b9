"""The warden's pure parts: whose child is whose, and a log that stays small."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.runners import warden
from bench.runners.warden import BoundedLog, descendants, proc_marked, proc_parents, ps_marked, ps_parents


@given(st.lists(st.integers(0, 40), max_size=40))
def test_descendants_are_what_leads_up_to_the_root(choices: list[int]) -> None:
    parents = {pid: choice % pid for pid, choice in enumerate(choices, start=1)}  # a tree below 0

    def ancestors(pid: int) -> set[int]:
        found = set()
        while pid in parents:
            pid = parents[pid]
            found.add(pid)
        return found

    for root in {0, *parents}:
        assert descendants(root, parents) == {pid for pid in parents if root in ancestors(pid)}


def test_a_ring_of_parents_ends() -> None:
    assert descendants(1, {2: 1, 1: 3, 3: 2}) == {2, 3}


def put(proc: Path, pid: int, stat: str, environ: bytes = b"") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(stat, "latin-1")
    (folder / "environ").write_bytes(environ)


def test_proc_is_read_whatever_a_command_is_called(tmp_path: Path) -> None:
    put(tmp_path, 10, "10 (sh) S 1 10 10 0")
    put(tmp_path, 11, "11 (a) Z 7 (b) R 10 11 11 0")
    put(tmp_path, 12, "12 (dead) Z 10 12 12 0")
    put(tmp_path, 13, "13 (odd \xff) D 11 13 13 0")
    (tmp_path / "14").mkdir()  # went away while we looked
    (tmp_path / "self").mkdir()
    assert proc_parents(tmp_path) == {10: 1, 11: 10, 13: 11}


def test_marked_processes_are_those_with_the_whole_value(tmp_path: Path) -> None:
    put(tmp_path, 10, "", b"A=1\0BENCH_ENGINE_ID=abc\0B=2\0")
    put(tmp_path, 11, "", b"BENCH_ENGINE_ID=abcd\0")
    put(tmp_path, 12, "", b"X=BENCH_ENGINE_ID=abc\0")
    assert proc_marked("abc", tmp_path) == {10}


def test_ps_listings_are_read() -> None:
    assert ps_parents("    1     0 Ss\n   20     1 S+\n   21    20 Z+\n  300    20 R\nodd line here now\n") == {
        1: 0,
        20: 1,
        300: 20,
    }
    listing = "   20 python x.py A=1 BENCH_ENGINE_ID=abc B=2\n   21 sh BENCH_ENGINE_ID=abcd\n   22 BENCH_ENGINE_ID=abc\n"
    assert ps_marked("abc", listing) == {20, 22}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares ps with /proc")
def test_ps_and_proc_agree_about_this_process() -> None:
    listing = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    assert ps_parents(listing)[os.getpid()] == proc_parents()[os.getpid()] == os.getppid()


@given(pieces=st.lists(st.integers(0, 700), max_size=30))
def test_a_log_keeps_both_ends_and_stays_small(tmp_path_factory: pytest.TempPathFactory, pieces: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warden, "HEAD_B", 100)
        patch.setattr(warden, "TAIL_B", 200)
        path = tmp_path_factory.mktemp("log") / "engine.log"
        log = BoundedLog(path)
        said = b""
        for size in pieces:
            data = bytes(65 + (len(said) + offset) % 26 for offset in range(size))
            said += data
            log.write(data)
            kept = path.read_bytes()
            marks = re.findall(rb"\n\[\.\.\. (\d+) bytes of the engine's log left out here \.\.\.\]\n", kept)
            head, _, tail = re.sub(rb"\n\[.*?\]\n", b"|", kept).partition(b"|")
            assert said.startswith(head)
            assert said.endswith(tail)
            assert len(marks) == (1 if log.cut_b else 0)
            assert len(head) + len(tail) + log.cut_b == len(said)
            assert len(head) + len(tail) < 100 + 2 * 200
            assert not log.cut_b or (len(head) == 100 and len(tail) >= 200)
        log.close()
        assert log.error is None
        assert [part.name for part in path.parent.iterdir()] == ["engine.log"]


class FullDisk:
    """A file on a disk with no room left."""

    def write(self, _: object) -> int:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        return


def test_a_full_disk_ends_the_log_and_nothing_else(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "engine.log")
    log.write(b"before\n")
    log._file.close()
    log._file = FullDisk()  # type: ignore[assignment]
    log.write(b"lost\n")
    log.write(b"lost too\n")
    log.close()
    assert "No space left" in str(log.error)
    assert (tmp_path / "engine.log").read_bytes() == b"before\n"


def test_a_warden_without_orders_ends_by_itself() -> None:
    program = [sys.executable, "-I", "-S", str(warden.__file__)]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_warden_with_broken_orders_says_so() -> None:
    program = [sys.executable, "-I", "-S", str(warden.__file__)]
    done = subprocess.run(program, input=b"not json\n", capture_output=True, timeout=30, check=False)
    assert done.returncode != 0
    assert b'"event": "failed"' in done.stdout
