"""The programs in `benchmarks/` run, and read what other clients report; what they measure is not judged here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks._peer_commands import CLIENTS, Client, Job, Seen
from benchmarks._stream_server import Schedule

ROOT = Path(__file__).resolve().parent.parent
VLLM = {"median_ttft_ms": 51.0, "p99_ttft_ms": 52.0, "p99_itl_ms": 21.5}
AIPERF = {"time_to_first_token": {"p50": 51.0, "p99": 52.0}, "inter_chunk_latency": {"p99": 21.5}}
SUCCESSFUL = {"time_to_first_token_ms": {"p50": 51.0, "p99": 52.0}, "inter_token_latency_ms": {"p50": 20.0, "p99": 21.5}}
GUIDELLM = {"benchmarks": [{"metrics": {name: {"successful": {"percentiles": v}} for name, v in SUCCESSFUL.items()}}]}
FAKE_VLLM = f"""
import sys, urllib.request
url = sys.argv[sys.argv.index("--base-url") + 1]
urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", b"{{}}")).read()
open("vllm.json", "w").write({json.dumps(VLLM)!r})
"""


def run(*arguments: str, **env: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_load_client() -> None:
    told = run("benchmarks/load_client.py", "--streams", "2", "--seconds", "1", "--no-pin")
    assert "2 streams, 1 s window" in told
    assert "hot path" in told


def test_open_loop() -> None:
    told = run("benchmarks/open_loop.py", "--rate", "50", "--seconds", "1", "--no-pin")
    assert told.count("send lag, last third") == 2
    assert "requests/s: asked 50, scheduled 50.0, sent" in told


def test_ingest() -> None:
    told = run("benchmarks/ingest.py", "--trials", "7", "--tries", "1")
    assert "7 trials, " in told
    assert re.search(r"bench table .* s of CPU: best of [1-9]", told)


@pytest.fixture
def all_cores() -> Iterator[None]:
    """Back to all cores afterwards: the benchmark takes one."""
    before = os.sched_getaffinity(0) if sys.platform == "linux" else set()
    yield
    if sys.platform == "linux":
        os.sched_setaffinity(0, before)


def named(name: str) -> Client:
    return next(client for client in CLIENTS if client.name == name)


def test_a_client_of_another_project_is_run_and_told_in_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_cores: None
) -> None:
    (tmp_path / "vllm.py").write_text(FAKE_VLLM)
    monkeypatch.setenv("PEER_VLLM", f"{sys.executable} {tmp_path}/vllm.py")
    client = named("vllm")
    outcome = peers.run(client, client.executable() or [], streams=1, rounds=1)
    assert isinstance(outcome, peers.Outcome)
    assert len(outcome.truth["first"]) == 1
    assert outcome.starts_s > 0
    row = outcome.row(client).split()
    assert (row[0], row[1], row[3], row[5]) == ("vllm", "51.0", "52.0", "21.5")


def test_a_client_that_fails_says_why(tmp_path: Path, all_cores: None) -> None:
    (tmp_path / "vllm.py").write_text("raise SystemExit('no tokenizer')")
    told = peers.run(named("vllm"), [sys.executable, str(tmp_path / "vllm.py")], streams=1, rounds=1)
    assert told == "failed with exit status 1: no tokenizer"


@pytest.mark.parametrize("name", ["vllm", "aiperf", "guidellm"])
def test_a_client_that_is_not_there_is_left_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PEER_{name.upper()}", str(tmp_path / "none"))
    assert named(name).executable() is None


@pytest.mark.parametrize(
    ("name", "report", "told"),
    [
        ("vllm", "vllm.json", VLLM),
        ("aiperf", "aiperf/profile_export_aiperf.json", AIPERF),
        ("guidellm", "guidellm.json", GUIDELLM),
    ],
)
def test_reports_of_other_clients_are_read(tmp_path: Path, name: str, report: str, told: object) -> None:
    job = Job(url="http://127.0.0.1:1", folder=tmp_path, streams=2, rounds=3, schedule=Schedule())
    (tmp_path / report).parent.mkdir(exist_ok=True)
    (tmp_path / report).write_text(json.dumps(told))
    assert named(name).read(job, "") == Seen(ttft_p50_ms=51.0, ttft_p99_ms=52.0, gap_p99_ms=21.5)
