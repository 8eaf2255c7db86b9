"""A run that was killed, or stopped, goes on: what was measured stays, what was lost is measured again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BenchCommand

SUITE = """
name: pair
defaults:
  {engine: mock, model: mock, input_tokens: 8, output_tokens: 4, warmup: 0.2s, duration: 1s, idle: 0s, grace: 5s, repeats: 2,
   engine_args: {ttft_ms: 20, gap_ms: 5}}
cases:
  - {name: plain, batch_size: [1, 2]}
"""


def start_until(phase: str, times: int, tmp_path: Path, *args: str) -> subprocess.Popen[str]:
    """`bench ARGS` up to the line of stderr that has `phase` in it for the `times`th time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", *args],
        cwd=tmp_path,
        env={**os.environ, "BENCH_RESULTS": str(tmp_path / "results")},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        times -= phase in line
        if times == 0:
            return process
    raise AssertionError(f"the run never said {phase!r} often enough")


def trials(bench: BenchCommand) -> list[dict[str, Any]]:
    done = bench("sql", "select run_id, case_name, repeat, attempt, status from trials order by started_at", "--json")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.mark.parametrize(
    ("number", "again"),
    [(signal.SIGKILL, ("run", "pair.yaml", "--skip-measured")), (signal.SIGINT, ("run", "--resume", "latest"))],
    ids=["killed", "interrupted"],
)
def test_a_run_that_was_ended_in_its_third_trial_goes_on(
    bench_here: BenchCommand, tmp_path: Path, number: signal.Signals, again: tuple[str, ...]
) -> None:
    (tmp_path / "pair.yaml").write_text(SUITE, encoding="utf-8")
    process = start_until("measuring", 3, tmp_path, "run", "pair.yaml")
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    if number is signal.SIGINT:
        assert "2 of 4 measured, 2 left" in said
        assert [line for line in said.splitlines() if "next: " in line] == [said.splitlines()[-1]]
        assert "next: bench run --resume 2" in said

    dry = bench_here(*again, "--dry-run", "--json")
    assert [line["trials"] for line in json.loads(dry.stdout)["lines"]] == [1, 1]
    done = bench_here(*again, "--json")
    told = json.loads(done.stdout)
    rows = trials(bench_here)
    assert {row["run_id"] for row in rows} == {told["run_id"]}
    ended = "killed" if number is signal.SIGKILL else "interrupted"
    assert [(row["case_name"], row["repeat"], row["attempt"]) for row in rows] == [
        ("plain/batch_size=1", 1, 1),
        ("plain/batch_size=2", 1, 1),
        ("plain/batch_size=1", 2, 1),
        ("plain/batch_size=1", 2, 2),
        ("plain/batch_size=2", 2, 1),
    ]
    assert rows[2]["status"] == ended
    assert {row["status"] for row in rows if row is not rows[2]} <= {"valid", "invalid"}
    assert len(told["trials"]) == 4

    nothing = bench_here("run", "--resume", told["run_id"], "--json")
    assert "starting the engine" not in nothing.stderr
    assert "nothing left to do" in nothing.stderr
    assert json.loads(nothing.stdout)["trials"] == told["trials"]
    assert len(trials(bench_here)) == 5


def test_a_run_killed_before_its_first_trial_goes_on(bench_here: BenchCommand, tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(SUITE, encoding="utf-8")
    process = start_until("starting the engine", 1, tmp_path, "run", "pair.yaml", "--repeats", "1")
    process.kill()
    process.communicate(timeout=30)
    told = json.loads(bench_here("run", "--resume", "latest", "--json").stdout)
    assert [trial["attempt"] for trial in told["trials"]] == [1, 1]


def test_a_run_is_not_gone_on_with_while_it_runs(bench_here: BenchCommand, tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(SUITE, encoding="utf-8")
    process = start_until("warming up", 1, tmp_path, "run", "pair.yaml")
    try:
        second = bench_here("run", "--resume", "latest")
        assert second.returncode == 2
        assert "still being measured" in second.stderr
    finally:
        process.kill()
        process.communicate(timeout=30)
