"""The benchmark image as a whole: the mock engine as the target, reports on disk, progress at a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.mock.launch import MockServer, start
from bench.store import run_records
from tests.gpustack.servers import GpuStack
from tests.in_process import Ran, run_here


@pytest.fixture(scope="module")
def target() -> Iterator[MockServer]:
    with start(ttft_ms=20, gap_ms=10, model="m") as server:
        yield server


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_PROBES", "cpu")


def image(capsys: pytest.CaptureFixture[str], url: str, *flags: str) -> Ran:
    """One container: what GPUStack gives to each, and `flags`."""
    always = ("--target", url, "--model", "m", "--sample-requests", "0", "--processor", "/models/m", "--output-dir", "out")
    kwargs = '{"timeout": 30, "request_handlers": {"/v1/chat/completions": "chat_completions_with_reasoning"}}'
    more = ("--backend", "openai_http_error_detail", "--backend-kwargs", kwargs, "--outputs", "7.dual_json", "--seed-increment")
    data = ("--data", "prompt_tokens=16,output_tokens=4", "--random-seed", "5")
    return run_here(capsys, "gpustack", "runner", "benchmark", "run", *always, *more, *data, *flags)


def report(name: str) -> dict[str, Any]:
    document = json.loads(Path("out", name).read_text(encoding="utf-8"))
    [one] = document["benchmarks"]
    found: dict[str, Any] = one
    return found


def test_stages_leave_their_reports_their_end_and_our_own_results(target: MockServer, capsys: pytest.CaptureFixture[str]) -> None:
    stages = '[{"rate": 1, "max_requests": 6}, {"rate": 2, "max_requests": 8, "max_seconds": 60}]'
    with GpuStack() as stack:
        progress = ("--progress-url", stack.state_url, "--progress-auth", "worker-token")
        ran = image(capsys, target.url, "--stages", stages, "--axis", "concurrency", *progress)
    assert ran.code == 0, ran.err
    assert {path.name for path in Path("out").iterdir()} == {"7__stage0.json", "7__stage1.json", "7__curve.json", "7.tokjoule"}
    for name, streams, requests in (("7__stage0.json", 1, 6), ("7__stage1.json", 2, 8)):
        one = report(name)
        assert one["config"]["strategy"] == {"type_": "concurrent", "streams": streams}
        assert one["metrics"]["request_totals"] == {"successful": requests, "errored": 0, "incomplete": 0, "total": requests}
        assert one["metrics"]["output_token_count"]["successful"]["mean"] == 4.0
        assert one["tokjoule"]["status"] == "invalid"  # a moment is too short, and that is no failure of the run
    records = run_records(Path("out/7.tokjoule"), report("7__stage0.json")["tokjoule"]["run_id"])
    assert [record.case.name for record in records] == ["7__stage0", "7__stage1"]
    told = [patch.body["progress"] for patch in stack.patches]
    assert told == sorted(told)
    assert told[-1] == 100.0
    assert {patch.authorization for patch in stack.patches} == {"Bearer worker-token"}
    kept = "".join(path.read_text(errors="replace") for path in Path("out").rglob("*.json"))
    assert "worker-token" not in kept + ran.err + ran.out


def test_a_target_that_is_not_there_is_a_failed_run_without_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    ran = image(capsys, "http://127.0.0.1:1", "--profile", "concurrent", "--rate", "1", "--max-requests", "2")
    assert ran.code == 1
    assert "nothing listens" in ran.err
    assert not Path("out/7.json").exists()


def test_a_ramp_leaves_each_point_and_why_it_ended(target: MockServer, capsys: pytest.CaptureFixture[str]) -> None:
    ramp = ("--auto-tune", "--axis", "concurrency", "--lower-bound", "1", "--upper-bound", "2", "--max-points", "1")
    ran = image(capsys, target.url, *ramp, "--max-total-seconds", "6", "--slo-avg-ttft-ms", "60000")
    assert ran.code == 0, ran.err
    sidecar = json.loads(Path("out/7__ramp.json").read_text(encoding="utf-8"))
    assert [path.name for path in Path("out").glob("7__p*.json")] == ["7__p0.json"]
    assert report("7__p0.json")["config"]["strategy"]["streams"] == 1
    assert (sidecar["stop_reason"], sidecar["points_measured"], sidecar["stopped_at"]) == ("budget_points", 1, 1.0)
    assert (sidecar["target"], sidecar["axis"]) == ("slo", "concurrency")
