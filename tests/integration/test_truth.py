"""The client's numbers against the server's own, over the same window."""

from __future__ import annotations

import json

import pytest

from bench import mock
from tests.conftest import BenchCommand

DISTURBED = {"client_saturated", "server_saturated"}


@pytest.mark.alone
def test_64_in_flight_agree_with_the_servers_truth_or_say_that_they_may_not(bench: BenchCommand) -> None:
    """What a machine with other things to do takes from the latencies must be told; the tokens are all there in any case."""
    with mock.start(ttft_ms=50, gap_ms=20) as server:
        done = bench(
            *("run", "--engine", "openai", "--base-url", server.url, "--model", "mock"),
            *("--batch-size", "64", "--input-tokens", "64", "--output-tokens", "128"),
            *("--duration", "10s", "--warmup", "2s", "--repeats", "1", "--json"),
        )
        trial = json.loads(done.stdout)["trials"][0]
        truth = server.truth(trial["window"]["t0_ns"], trial["window"]["t1_ns"])
    metrics = trial["metrics"]
    codes = {reason["code"] for reason in trial["reasons"] if reason["severity"] == "invalid"}
    assert (trial["status"], done.returncode) == (("invalid", 1) if codes else ("valid", 0))
    assert codes <= DISTURBED, done.stderr
    assert metrics["output_tok_per_s"]["value"] == pytest.approx(truth.output_tok_per_s, rel=0.01)
    if not codes:
        assert metrics["ttft_ms"]["p50"] == pytest.approx(truth.ttft_ms.p50, abs=1.0)
        assert metrics["itl_ms"]["p50"] == pytest.approx(truth.itl_ms.p50, abs=1.0)
        assert metrics["ttft_ms"]["p99"] == pytest.approx(truth.ttft_ms.p99, rel=0.05, abs=2.0)
