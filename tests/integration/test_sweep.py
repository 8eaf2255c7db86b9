"""A search from the outside, on a mock engine that serves eight requests at once: its knee is known."""

from __future__ import annotations

import json

import pytest

from tests.conftest import BenchCommand

SERVER = ("--engine-arg", "ttft_ms=400", "--engine-arg", "gap_ms=200", "--engine-arg", "max_in_flight=8")
LOAD = ("--input-tokens", "8", "--output-tokens", "3", "--duration", "5s", "--warmup", "0.5s", "--idle", "0s", "--repeats", "3")
SEARCH = ("--find", "knee", "--low", "4", "--high", "16", "--points", "4")


@pytest.mark.alone
def test_the_knee_of_a_server_that_takes_eight_at_once(bench: BenchCommand) -> None:
    """Three repeats a point: one that the machine disturbed does not end the search."""
    done = bench("run", "--engine", "mock", "--model", "mock", *SERVER, *LOAD, *SEARCH, "--json", timeout=110)
    told = json.loads(done.stdout)
    (found,) = told["searches"]
    assert done.returncode == 0, done.stderr
    assert found["complete"]
    assert found["best"] == 8, found["text"]
    assert found["text"].startswith("mock: knee at batch 8: ")
    assert [point["load"] for point in found["points"]] == [4, 8, 16, 6]
    assert done.stderr.count("starting the engine") == 1
    measured = {trial["trial_id"]: trial["case"]["load"]["batch_size"] for trial in told["trials"]}
    assert {trial: point["load"] for point in found["points"] for trial in point["trials"]} == measured
    again = bench("run", "--resume", told["run_id"], "--json")
    assert "starting the engine" not in again.stderr
    assert json.loads(again.stdout)["searches"] == told["searches"]
