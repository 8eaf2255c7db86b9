"""Streams as a shell may hand them over: closed, on a full disk, or with a reader that leaves."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

RUN = (
    "run --engine mock --model mock --engine-arg ttft_ms=20 --batch-size 1 --output-tokens 2"
    " --duration 1s --warmup 0.1s --idle 0s --repeats 1"
)


def in_a_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`command` with `bench` as it is here, and its exit code even before a pipe."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("bench", f"{shlex.quote(sys.executable)} -m bench", 1)],
        cwd=folder,
        env={**os.environ, "BENCH_RESULTS": "results"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def trials(folder: Path) -> list[Path]:
    return list(folder.glob("results/shards/**/trial.json"))


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_takes_what_is_said_and_changes_nothing_else(streams: str, tmp_path: Path) -> None:
    done = in_a_shell(f"bench suites list {streams}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) is (">&-" not in streams.replace("2>&-", ""))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["suites list", "doctor"])
def test_a_full_disk_for_what_is_said_is_one_line(command: str, tmp_path: Path) -> None:
    done = in_a_shell(f"bench {command} >/dev/full", tmp_path)
    assert done.returncode == 1
    assert "can't be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("streams", ["2>&-", ">/dev/full 2>/dev/full", "2>&1 >/dev/null | head -1"])
def test_a_run_keeps_its_trial_whoever_listens(streams: str, tmp_path: Path) -> None:
    if "/dev/full" in streams and not Path("/dev/full").exists():
        streams = ">&- 2>&-"
    done = in_a_shell(f"bench {RUN} {streams}", tmp_path)
    assert "Traceback" not in done.stderr
    assert len(trials(tmp_path)) == 1
    assert not list(tmp_path.glob("results/.work/*"))
