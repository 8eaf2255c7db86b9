"""Ctrl-C, SIGTERM and kill -9 in each phase: finished trials stay, no engine is left, the next run works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import BenchCommand, with_flags

RUN = (
    *("run", "--engine", "mock", "--model", "mock", "--batch-size", "2", "--output-tokens", "3"),
    *("--engine-arg", "ttft_ms=400", "--engine-arg", "gap_ms=200", "--engine-arg", "quirk=fork-child"),
    *("--duration", "5s", "--warmup", "1s", "--repeats", "2", "--idle", "0s"),
)
"""A slow mock engine: what a busy machine does to such latencies leaves a trial valid."""
PHASES = {  # what stderr says when the phase begins -> trials finished by then
    "starting the engine": 0,
    "warming up": 0,
    "measuring": 0,
    "valid": 1,
}


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A variable by which every process of this test can be found, however it was forked."""
    mark = f"BENCH_TEST_MARK={tmp_path}"
    yield mark
    for process in _marked(mark):
        process.kill()


def _marked(mark: str) -> list[psutil.Process]:
    name, _, value = mark.partition("=")
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _gone(mark: str, seconds: float) -> list[psutil.Process]:
    """Processes still there after at most `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _start_until(phase: str, tmp_path: Path, mark: str) -> subprocess.Popen[str]:
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-m", "bench", *RUN],
        cwd=tmp_path,
        env={**os.environ, "BENCH_RESULTS": str(tmp_path / "results"), name: value},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if phase in line:
            return process
    raise AssertionError(f"the run never said {phase!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("phase", PHASES)
def test_ended_in_any_phase(bench_here: BenchCommand, tmp_path: Path, marker: str, phase: str, number: signal.Signals) -> None:
    process = _start_until(phase, tmp_path, marker)
    process.send_signal(number)
    process.communicate(timeout=30)
    expected = -9 if number is signal.SIGKILL else 130
    assert process.returncode == expected
    assert _gone(marker, 20) == []

    rows = json.loads(bench_here("sql", "select status, count(*) as n from trials group by all", "--json").stdout)
    status = {row["status"]: row["n"] for row in rows}
    assert status.get("valid", 0) == PHASES[phase]
    if phase in ("warming up", "measuring"):
        assert status.get("killed" if number is signal.SIGKILL else "interrupted", 0) == 1

    again = bench_here(*with_flags(RUN, "--repeats", "1", "--duration", "1s", "--warmup", "0s"), "--json")
    (trial,) = json.loads(again.stdout)["trials"]
    assert trial["error"] is None, again.stderr
    assert trial["metrics"]["output_tok_per_s"]["value"] > 0
    assert list((tmp_path / "results" / "shards" / ".partial").iterdir()) == []
    assert not (tmp_path / "results" / ".work").exists() or list((tmp_path / "results" / ".work").iterdir()) == []
