"""`bench rederive --check` as a gate: what it must not pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.records import Status
from tests.conftest import BenchCommand
from tests.factories import make_record, save_trial


@pytest.mark.parametrize("damaged", ["", "{", "{}", "[]"])
def test_a_trial_that_can_not_be_looked_at_fails_the_check(damaged: str, bench_here: BenchCommand, tmp_path: Path) -> None:
    failed = [make_record(repeat=repeat, status=Status.FAILED, error="no route", metrics={}, engine=None) for repeat in range(2)]
    shards = [save_trial(tmp_path / "results", record) for record in failed]
    assert bench_here("rederive", "--check").returncode == 0
    (shards[0] / "trial.json").write_text(damaged)
    assert bench_here("rederive").returncode == 0
    checked = bench_here("rederive", "--check")
    assert (checked.returncode, "Traceback" in checked.stderr) == (1, False)


def test_a_check_of_nothing_is_no_success(bench_here: BenchCommand, tmp_path: Path) -> None:
    (tmp_path / "results" / "shards").mkdir(parents=True)
    assert bench_here("rederive", "--check").returncode == 1
