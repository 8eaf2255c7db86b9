"""The programs in `benchmarks/` run, and read what other clients report; what they measure is not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._peer_commands import CLIENTS, Job, Seen
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


def test_clients_that_are_there_are_run_and_others_named(tmp_path: Path) -> None:
    (tmp_path / "vllm.py").write_text(FAKE_VLLM)
    missing = str(tmp_path / "none")
    told = run(
        *("benchmarks/peers.py", "--streams", "2", "--rounds", "3"),
        PEER_VLLM=f"{sys.executable} {tmp_path}/vllm.py",
        PEER_AIPERF=missing,
        PEER_GUIDELLM=missing,
    )
    rows = {line.split()[0]: line.split() for line in told.splitlines()}
    assert (rows["vllm"][1], rows["vllm"][3], rows["vllm"][5]) == ("51.0", "52.0", "21.5")
    assert rows["aiperf"][1:] == rows["guidellm"][1:] == ["not", "installed"]
    assert float(rows["bench"][1]) >= 50.0


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
    client = next(client for client in CLIENTS if client.name == name)
    assert client.read(job, "") == Seen(ttft_p50_ms=51.0, ttft_p99_ms=52.0, gap_p99_ms=21.5)
