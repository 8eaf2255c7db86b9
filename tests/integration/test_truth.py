"""The client's numbers against the server's own, over the same window."""

from __future__ import annotations

import json

import pytest

from bench import mock
from tests.conftest import BenchCommand, undisturbed


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_64_in_flight_agree_with_the_servers_truth(bench: BenchCommand) -> None:
    with mock.start(ttft_ms=50, gap_ms=20) as server:
        done = undisturbed(
            bench,
            *("run", "--engine", "openai", "--base-url", server.url, "--model", "mock"),
            *("--batch-size", "64", "--input-tokens", "64", "--output-tokens", "128"),
            *("--duration", "10s", "--warmup", "2s", "--repeats", "1", "--json"),
        )
        assert done.returncode == 0, done.stderr + done.stdout
        trial = json.loads(done.stdout)["trials"][0]
        truth = server.truth(trial["window"]["t0_ns"], trial["window"]["t1_ns"])
    metrics = trial["metrics"]
    assert trial["status"] == "valid"
    assert metrics["ttft_ms"]["p50"] == pytest.approx(truth.ttft_ms.p50, abs=1.0)
    assert metrics["itl_ms"]["p50"] == pytest.approx(truth.itl_ms.p50, abs=1.0)
    assert metrics["output_tok_per_s"]["value"] == pytest.approx(truth.output_tok_per_s, rel=0.01)
