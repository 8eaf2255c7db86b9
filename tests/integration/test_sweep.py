"""A search from the outside, on a mock engine that serves eight requests at once: its knee is known."""

from __future__ import annotations

import json

import pytest

from bench import mock
from tests.conftest import BenchCommand

QUICK = ("--input-tokens", "8", "--output-tokens", "4", "--duration", "5s", "--warmup", "1s", "--idle", "0s")
SEARCH = ("--find", "knee", "--low", "2", "--high", "32", "--points", "6")


@pytest.mark.alone
def test_the_knee_of_a_server_that_takes_eight_at_once(bench: BenchCommand) -> None:
    with mock.start(ttft_ms=100, gap_ms=100, max_in_flight=8) as server:
        attached = ("run", "--engine", "openai", "--base-url", server.url, "--model", "mock")
        done = bench(*attached, *QUICK, *SEARCH, "--json", timeout=100)
    told = json.loads(done.stdout)
    (found,) = told["searches"]
    assert done.returncode == 0, done.stderr
    assert found["complete"]
    assert 6 <= found["best"] <= 9, found["text"]
    assert found["text"].startswith(f"mock: knee at batch {found['best']:g}: ")
    assert len(found["points"]) <= 6
    assert done.stderr.count("starting the engine") == 1
    measured = {trial["trial_id"]: trial["case"]["load"]["batch_size"] for trial in told["trials"]}
    assert {trial: point["load"] for point in found["points"] for trial in point["trials"]} == measured
    again = bench("run", "--resume", told["run_id"], "--json")
    assert "starting the engine" not in again.stderr
    assert json.loads(again.stdout)["searches"] == told["searches"]
