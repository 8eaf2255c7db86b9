"""What the store and the session leave when an engine can't start, a session breaks, or a results folder is hostile."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.load import recover
from bench.store import Lab, adopt
from tests.conftest import BenchCommand
from tests.store.test_adoption import dead_pid, leave_partial

MOCK = ("run", "--engine", "mock", "--model", "mock", "--batch-size", "2", "--output-tokens", "8", "--idle", "0s")
BREAKS = """
import sys
from bench.cli.main import main
from bench.load import WireLoad

def broken(self, plan, on_progress, stop):
    (plan.spill_dir / "worker-0.spill").write_bytes(b"raw")
    raise RuntimeError("nobody expected this")

WireLoad.run = broken
main(sys.argv[1:])
"""


def _shards(results: Path) -> list[Path]:
    return sorted(results.glob("shards/date=*/*/*"))


def test_an_engine_that_did_not_start_leaves_its_log_in_each_failed_trial(bench_here: BenchCommand, tmp_path: Path) -> None:
    ran = bench_here(*MOCK, "--engine-arg", "quirk=fail-start", "--repeats", "3")
    assert ran.returncode == 1, ran.stderr
    folders = _shards(tmp_path / "results")
    assert len(folders) == 3
    for folder in folders:
        record = json.loads((folder / "trial.json").read_bytes())
        assert "engine.log" in record["files"]
        assert (folder / "engine.log").stat().st_size > 0
        assert "(next: " in record["error"].splitlines()[0]
        assert ".work" not in record["error"]
    (hint,) = [line for line in ran.stderr.splitlines() if line.startswith("  next: ")]
    if "log: " in hint:
        assert (tmp_path / hint.rpartition("log: ")[2]).is_file()
    assert ran.stdout.count("(next: ") == 1, "the row of all three says what to do"
    assert bench_here("table").stdout.count("(next: ") == 1
    assert list((tmp_path / "results" / ".work").iterdir()) == []


def _poison(seed: int) -> bytes:
    """Records of a spill file that have a plausible header and any body, or no sense at all."""
    dice = random.Random(seed)
    if seed % 4 == 0:
        return dice.randbytes(dice.randrange(400))
    out = b""
    for _ in range(dice.randrange(1, 6)):
        body = dice.randbytes(dice.choice([0, 1, 12, 33, 36, 64]))
        out += struct.pack("<BIII", dice.randrange(6), dice.randrange(3), dice.choice([0, 1, 3, 1 << 31]), len(body)) + body
    return out


def test_poisoned_spill_files_stop_nothing_and_are_kept(tmp_path: Path) -> None:
    pid = dead_pid()
    for seed in range(60):
        folder = leave_partial(tmp_path, pid=pid, started_s=1.0, repeat=seed)
        (folder / "worker-0.spill").write_bytes(_poison(seed))
    report = adopt(tmp_path, recover)
    assert report.notes == ()
    assert len(report.adopted) == 60
    assert Lab(tmp_path).ingest(verify=True).added == 60
    for home in report.adopted:
        told = json.loads((home / "trial.json").read_bytes())["extra"]["adopted"]["event_log"]
        aside = tmp_path / "shards" / ".partial-unreadable" / home.name / "worker-0.spill"
        assert aside.is_file() == ("are kept in" in told), told


def test_one_poisoned_folder_stops_neither_table_nor_run(bench_here: BenchCommand, tmp_path: Path) -> None:
    folder = leave_partial(tmp_path / "results", pid=dead_pid(), started_s=1.0)
    os.mkfifo(folder / "worker-0.spill")
    fifo = leave_partial(tmp_path / "results", pid=dead_pid(), started_s=1.0, repeat=1)
    (fifo / "owner.json").unlink()
    os.mkfifo(fifo / "owner.json")
    for command in (("ingest",), (*MOCK, "--engine-arg", "quirk=fail-start", "--repeats", "1"), ("table",)):
        ran = bench_here(*command)
        assert "Traceback" not in ran.stderr
        assert ran.stderr.count("is left as it is: ") == 2, ran.stderr
    assert "failed" in ran.stdout


@pytest.mark.parametrize("command", [("table",), ("ingest",), ("sql", "select 1"), ("run", "--resume", "latest"), MOCK])
def test_a_folder_that_cannot_hold_results_is_an_error_with_a_next_step(
    bench_here: BenchCommand, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name, code in (("", 2), ("loop", 1), ("x" * 300, 1), ("a?b", 1), (os.fsdecode(b"a\xff"), 1)):
        ran = bench_here(*command, "--results", name)
        assert ran.returncode == code, ran.stderr
        assert "Traceback" not in ran.stderr
        assert "next: " in ran.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop"]


def test_a_killed_runs_work_folder_goes_with_the_next_table(bench_here: BenchCommand, tmp_path: Path) -> None:
    assert bench_here(*MOCK, "--engine-arg", "quirk=fail-start", "--repeats", "1").returncode == 1
    left = tmp_path / "results" / ".work" / f"run.{dead_pid()}"
    left.mkdir()
    assert bench_here("table").returncode == 0
    assert not left.exists()


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A value in the environment by which every process of this test can be found."""
    yield str(tmp_path)
    for process in _marked(str(tmp_path)):
        process.kill()


def _marked(value: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("BENCH_TEST_MARK") == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_an_error_that_nobody_expected_stops_the_engine_and_keeps_the_trial(
    bench_here: BenchCommand, tmp_path: Path, marker: str
) -> None:
    results = tmp_path / "results"
    ran = subprocess.run(
        [sys.executable, "-c", BREAKS, *MOCK, "--repeats", "1"],
        env={**os.environ, "BENCH_RESULTS": str(results), "BENCH_TEST_MARK": marker},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 1
    assert "nobody expected this" in ran.stderr
    psutil.wait_procs(_marked(marker), timeout=20)
    assert _marked(marker) == []
    assert list((results / ".work").iterdir()) == []
    (partial,) = (results / "shards" / ".partial").iterdir()
    assert (partial / "worker-0.spill").read_bytes() == b"raw"
    table = bench_here("table")
    assert table.returncode == 0
    assert "ended before this trial was saved" in table.stdout
    assert len(_shards(results)) == 1
