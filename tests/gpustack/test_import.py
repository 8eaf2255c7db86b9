"""Results of a GPUStack server, taken over its API: pages, keys, points, and what can't be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.reports.export_guidellm import guidellm_report
from bench.store.imported import imported
from tests.factories import make_case, make_event_log, make_record
from tests.gpustack.servers import GpuStack
from tests.in_process import Ran, run_here

KEY = "gpustack_1234"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.delenv("GPUSTACK_API_KEY", raising=False)


def a_benchmark(number: int, **over: Any) -> dict[str, Any]:
    """What the list says of one."""
    member = {"id": 1, "name": "m-1", "backend": "vLLM", "backend_version": "0.11.0"}
    base = {
        "id": number,
        "name": f"run-{number}",
        "model_name": "qwen3-8b",
        "gpu_summary": "1x NVIDIA H100",
        "state": "completed",
        "snapshot": {"instances": {"m-1": member}},
    }
    return base | over


def a_point(sequence: int = 0, **over: Any) -> dict[str, Any]:
    """One point with a report of its own, of eighty requests; what its server worked out stands beside it."""
    [report] = guidellm_report([(make_record(case=make_case(seed=sequence)), make_event_log(80, 5))])["benchmarks"]
    report.pop("tokjoule")
    flat = {"output_tokens_per_second_mean": 40.0, "request_concurrency_max": 8.0, "inter_token_latency_mean": 20.0}
    return {"id": 100 + sequence, "sequence": sequence, "input_tokens": 64, "raw_metrics": report, **flat, **over}


def pages(*benchmarks: dict[str, Any], points: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """What the server answers."""
    found: dict[str, Any] = {}
    size = 100
    for page in range(len(benchmarks) // size + 1):
        items = list(benchmarks[page * size : (page + 1) * size])
        found[f"/v2/benchmarks?page={page + 1}&perPage={size}"] = {"items": items, "pagination": {"page": page + 1}}
    for benchmark in benchmarks:
        found[f"/v2/benchmarks/{benchmark['id']}"] = benchmark
        found[f"/v2/benchmarks/{benchmark['id']}/results"] = points.get(benchmark["id"], [])
    return found


def take(capsys: pytest.CaptureFixture[str], stack: GpuStack, *flags: str) -> Ran:
    return run_here(capsys, "gpustack", "import", stack.url, *flags)


def test_points_are_imported_once_and_marked_as_imported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with GpuStack(pages=pages(a_benchmark(7), points={7: [a_point(0), a_point(1)]})) as stack:
        first, again = take(capsys, stack, "--json"), take(capsys, stack, "--json")
    assert (first.code, json.loads(first.out)["added"], json.loads(first.out)["known"]) == (0, 2, 0)
    assert (json.loads(again.out)["added"], json.loads(again.out)["known"]) == (0, 2)
    one = imported(tmp_path / "results")[0]
    assert (one.source, one.tool, one.model, one.device) == ("imported", "gpustack", "qwen3-8b", "1x NVIDIA H100")
    assert (one.engine, one.engine_version, one.requests_ok) == ("vLLM", "0.11.0", 79)
    assert "name run-7" in one.notes
    tpot = next(metric for metric in one.metrics if metric.name == "tpot_ms")
    assert tpot.mean == pytest.approx(20.0)
    energy = next(metric for metric in one.metrics if metric.name == "j_per_output_tok")
    assert energy.value is None
    assert energy.reason


def test_they_are_found_with_sql_and_in_no_table_of_trials(capsys: pytest.CaptureFixture[str]) -> None:
    with GpuStack(pages=pages(a_benchmark(7), points={7: [a_point()]})) as stack:
        take(capsys, stack)
    asked = run_here(capsys, "sql", "SELECT tool, source, (SELECT count(*) FROM trials) AS trials FROM imported", "--json")
    assert json.loads(asked.out) == [{"tool": "gpustack", "source": "imported", "trials": 0}]


def test_every_page_is_read_or_only_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    many = [a_benchmark(number) for number in range(1, 102)]
    with GpuStack(pages=pages(*many, points={1: [a_point(0)], 101: [a_point(1)]})) as stack:
        assert json.loads(take(capsys, stack, "--json").out)["added"] == 2
        one = json.loads(take(capsys, stack, "--id", "101", "--json").out)
    assert (one["added"], one["known"], len(one["imported"])) == (0, 1, 1)


def test_the_key_comes_from_its_variable_and_is_in_no_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with GpuStack(pages=pages(points={}), key=KEY) as stack:
        without = take(capsys, stack)
        monkeypatch.setenv("GPUSTACK_API_KEY", "wrong-key")
        wrong = take(capsys, stack)
        monkeypatch.setenv("OTHER", KEY)
        right = take(capsys, stack, "--api-key-env", "OTHER")
    assert (without.code, wrong.code, right.code) == (1, 1, 0)
    assert "wants a key" in without.err
    assert "GPUSTACK_API_KEY" in without.err
    assert "refuses the key" in wrong.err
    assert "wrong-key" not in wrong.err


def test_numbers_that_contradict_each_other_are_noted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wild = a_point(output_tokens_per_second_mean=20_132_659.0)
    with GpuStack(pages=pages(a_benchmark(7), points={7: [wild]})) as stack:
        ran = take(capsys, stack)
    [one] = imported(tmp_path / "results")
    assert f"{one.import_id}: impossible: " in ran.err
    [note] = [note for note in one.notes if note.startswith("impossible")]
    assert "2.01327e+07 tok/s" in note
    assert "400 at most" in note


def test_points_without_measurements_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with GpuStack(pages=pages(a_benchmark(7), points={7: [a_point(raw_metrics=None), a_point(raw_metrics={})]})) as stack:
        ran = take(capsys, stack)
    assert ran.code == 0
    assert ": 0 imported" in ran.err


@pytest.mark.parametrize("value", ["fast", -1.0, True, [1]])
def test_values_that_cannot_be_are_refused_with_their_place(
    value: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    point = a_point()
    point["raw_metrics"]["metrics"]["requests_per_second"]["successful"]["mean"] = value
    with GpuStack(pages=pages(a_benchmark(7), points={7: [point]})) as stack:
        ran = take(capsys, stack)
    assert ran.code == 2
    assert "/v2/benchmarks/7" in ran.err
    assert "requests_per_second.successful.mean" in ran.err
    assert imported(tmp_path / "results") == []


@pytest.mark.parametrize("document", [[], {}, {"items": 1}, None, "x"])
def test_a_server_of_another_kind_is_told(document: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with GpuStack(pages={"/v2/benchmarks?page=1&perPage=100": document}) as stack:
        ran = take(capsys, stack)
    assert ran.code == 1
    assert "no list of benchmarks" in ran.err


@pytest.mark.parametrize(
    "url", ["server:80", "http://user:pw@server", "http://server?x=1", "http://", "http://[", "http://h:99999", "http://h:x"]
)
def test_what_is_no_url_of_a_server_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "gpustack", "import", url).code == 2
