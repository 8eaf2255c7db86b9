"""A whole run against an engine that listens on a socket file, as the sidecar of a pod does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import mock
from tests.conftest import BenchCommand


def command(url: str) -> tuple[str, ...]:
    return (
        *("run", "--engine", "openai", "--base-url", url, "--model", "mock", "--batch-size", "2", "--output-tokens", "8"),
        *("--num-prompts", "6", "--repeats", "1", "--json"),
    )


def test_a_run_over_a_socket(bench_here: BenchCommand, tmp_path: Path) -> None:
    with mock.start(host=f"unix:{tmp_path}/llm.sock", ttft_ms=5, gap_ms=2) as server:
        done = bench_here(*command(server.url))
        truth = server.truth()
    trial = json.loads(done.stdout)["trials"][0]
    assert trial["engine"]["version"] is not None
    assert trial["metrics"]["ttft_ms"]["n"] == 6
    assert trial["metrics"]["ttft_ms"]["p50"] >= 5
    assert truth.output_tokens >= 48


@pytest.mark.parametrize(
    ("name", "said"),
    [("none.sock", "there is no socket at unix:"), ("x" * 300, "bytes: the system takes")],
)
def test_a_socket_that_cant_be_reached_is_one_clear_error(bench_here: BenchCommand, tmp_path: Path, name: str, said: str) -> None:
    done = bench_here(*command(f"unix:{tmp_path}/{name}"))
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
