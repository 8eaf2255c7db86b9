"""Plans of runs on disk: whole or not there, held by one process, found by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.errors import EXIT_USAGE, StoreError, UsageError
from bench.store import run_records
from bench.store.plans import LATEST, find_run, hold_plan, plan_path, planned_runs, write_plan
from tests.factories import make_record, save_trial

OLD, NEW = "20261130T100000Z-aaaaaa", "20261130T100001Z-000000"


def hold(results: Path, run_id: str, data: bytes = b"{}") -> int:
    return write_plan(results, run_id, data)


def test_a_running_run_is_not_gone_on_with_by_another(tmp_path: Path) -> None:
    lock = hold(tmp_path, OLD)
    with pytest.raises(UsageError, match="still being measured"):
        hold_plan(tmp_path, OLD)
    os.close(lock)
    os.close(hold_plan(tmp_path, OLD))


def test_a_killed_run_lets_go(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom bench.store.plans import write_plan\n"
        f"write_plan(Path(sys.argv[1]), {OLD!r}, b'x')\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert plan_path(tmp_path, OLD).read_bytes() == b"x"
    os.close(hold_plan(tmp_path, OLD))


def test_two_runs_at_once_keep_two_plans(tmp_path: Path) -> None:
    locks = [hold(tmp_path, OLD, b"1"), hold(tmp_path, NEW, b"2")]
    assert [plan_path(tmp_path, run).read_bytes() for run in (OLD, NEW)] == [b"1", b"2"]
    for lock in locks:
        os.close(lock)


def test_a_plan_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(StoreError, match="runs"):
        hold(tmp_path, OLD)


def test_runs_are_found_by_id_by_latest_and_by_nearness(tmp_path: Path) -> None:
    for run in (NEW, OLD):
        os.close(hold(tmp_path, run))
    (tmp_path / "runs" / ".half.json.12").write_text("")
    assert planned_runs(tmp_path) == [OLD, NEW]
    assert find_run(tmp_path, OLD) == OLD
    assert find_run(tmp_path, LATEST) == NEW
    with pytest.raises(UsageError, match=f"did you mean '{OLD}'") as near:
        find_run(tmp_path, OLD.replace("aaaaaa", "aaaaab"))
    assert near.value.exit_code == EXIT_USAGE
    with pytest.raises(UsageError, match=f"the last ones: {NEW}, {OLD}"):
        find_run(tmp_path, "nothing-like-it")


def test_the_beginning_of_an_id_will_do_where_it_is_that_of_one_run(tmp_path: Path) -> None:
    for run in (NEW, OLD):
        os.close(hold(tmp_path, run))
    assert find_run(tmp_path, OLD[:-1]) == OLD
    shared = OLD[:4]
    assert NEW.startswith(shared)
    with pytest.raises(UsageError, match="is the beginning of 2 runs") as caught:
        find_run(tmp_path, shared)
    assert f"{NEW}, {OLD}" in str(caught.value.hint)
    with pytest.raises(UsageError, match="the last ones"):
        find_run(tmp_path, "")


def test_what_is_no_plain_file_is_no_plan_and_hides_none(tmp_path: Path) -> None:
    """A pipe would be waited for."""
    os.close(hold(tmp_path, OLD))
    odd = [plan_path(tmp_path, OLD.replace("aaaaaa", f"bbbbb{number}")) for number in range(4)]
    os.mkfifo(odd[0])
    odd[1].mkdir()
    odd[2].symlink_to("nowhere")
    odd[3].symlink_to(odd[3].name)
    assert planned_runs(tmp_path) == [OLD]
    assert find_run(tmp_path, LATEST) == OLD


def test_without_any_plan_there_is_no_latest(tmp_path: Path) -> None:
    for wanted in (LATEST, OLD):
        with pytest.raises(UsageError, match="no plan of any run"):
            find_run(tmp_path, wanted)


def test_runs_of_the_same_second_are_told_apart_by_their_files(tmp_path: Path) -> None:
    first, second = OLD.replace("aaaaaa", "ffffff"), OLD.replace("aaaaaa", "000000")
    for run, stamp in ((first, 1000), (second, 2000)):
        os.close(hold(tmp_path, run))
        os.utime(plan_path(tmp_path, run), (stamp, stamp))
    assert find_run(tmp_path, LATEST) == second


def test_records_of_one_run_come_from_its_shards(tmp_path: Path) -> None:
    for run, repeat in ((OLD, 1), (OLD, 0), (NEW, 0)):
        save_trial(tmp_path, make_record(run_id=run, repeat=repeat))
    assert [record.key.repeat for record in run_records(tmp_path, OLD)] == [0, 1]
    assert run_records(tmp_path, "none") == []
