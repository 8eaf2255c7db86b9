"""`bench export` in the shapes of other programs, read back by those programs where they are small enough."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from msgspec import structs

from bench.importers import vllm_bench
from bench.importers.node import Node
from bench.records import LoadResult, LoadSpec, Status, Telemetry, TrialRecord
from bench.reports.export import to_json, to_parquet
from bench.reports.export_guidellm import guidellm_report
from bench.reports.export_pytest_benchmark import pytest_benchmark_json
from bench.reports.export_vllm_bench import vllm_bench_lines
from bench.timing.trial import measure
from tests.exchange.gpustack_venv import gpustack_python
from tests.factories import make_case, make_event_log, make_host, make_metrics, make_record, save_trial
from tests.in_process import Bench
from tests.timing.builders import HEALTHY


def exported(bench: Bench, tmp_path: Path, form: str, *args: str) -> bytes:
    path = tmp_path / form
    ran = bench("export", "--format", form, "--out", str(path), *args)
    assert ran.code == 0, ran.err
    return path.read_bytes()


def test_every_shape_of_nothing_is_valid() -> None:
    assert len(json.loads(to_json([]))) == 0
    assert json.loads(pytest_benchmark_json([]))["benchmarks"] == []
    assert guidellm_report([])["benchmarks"] == []
    assert vllm_bench_lines([]) == b""
    assert to_parquet([]).startswith(b"PAR1")


def test_parquet_has_the_numbers_of_the_csv(results: Path, bench: Bench, tmp_path: Path) -> None:
    failed = make_case(model='it\'s "=1"\n')
    save_trial(results, make_record(run_id="run-2", case=failed, status=Status.FAILED, error="\x1b[31m", metrics={}, window=None))
    for form in ("csv", "parquet"):
        exported(bench, tmp_path, form)
    con = duckdb.connect()
    theirs = con.read_parquet(str(tmp_path / "parquet"))
    ours = con.read_csv(str(tmp_path / "csv"), all_varchar=True)
    assert theirs.columns == ours.columns
    rows = theirs.project("output_tok_per_s, ttft_p50_ms, repeat, model, error").fetchall()
    assert sorted(row[0] for row in rows if row[0] is not None) == [400.0, 404.0, 408.0]
    (gone,) = [row for row in rows if row[4] is not None]
    assert gone == (None, None, 0, 'it\'s "=1"\n', "\x1b[31m")
    kinds = dict(zip(theirs.columns, map(str, theirs.types), strict=True))
    assert (kinds["started_at_utc"], kinds["ttft_n"], kinds["repeat"], kinds["window_s"]) == (
        "TIMESTAMP",
        "BIGINT",
        "BIGINT",
        "DOUBLE",
    )


# --- vllm-bench -------------------------------------------------------------------------------------------------------


def one_line(**over: Any) -> dict[str, Any]:
    record, log = make_record(**over), make_event_log(60, 5)
    (line,) = vllm_bench_lines([(record, log)]).splitlines()
    told: dict[str, Any] = json.loads(line)
    return told


def test_vllm_bench_keys_mean_what_vllm_says() -> None:
    """60 requests of which the last failed, a chunk every 20 ms, 5 of them."""
    told = one_line(metrics=make_metrics(output_tok_per_s=29.5, requests_per_s=5.9, input_tok_per_s=377.6, total_tok_per_s=407.1))
    assert vllm_bench.is_one(Node(told))
    assert (told["mean_ttft_ms"], told["median_tpot_ms"], told["p90_itl_ms"], told["mean_e2el_ms"]) == (20.0, 20.0, 20.0, 100.0)
    assert (told["duration"], told["completed"], told["failed"], told["num_prompts"]) == (10.0, 59, 1, 60)
    assert (told["total_output_tokens"], told["output_throughput"], told["max_concurrency"]) == (295, 29.5, 8)
    assert told["request_rate"] == "inf"
    assert told["date"] == "20261130-150000"
    imported = vllm_bench.read(
        Node(told), {"import_id": "x", "file": "f", "file_sha256": "0", "place": 0, "imported_at": "2026", "bench_version": "0"}
    )
    assert (imported.load, imported.requests_ok, imported.output_tokens) == ("closed", 59, 5.0)


def test_vllm_bench_leaves_out_what_it_does_not_know_and_says_why() -> None:
    told = one_line(metrics=make_metrics(output_tok_per_s=None))
    assert "output_throughput" not in told
    assert told["tokjoule"]["left_out"]["output_throughput"] == "not measured"
    assert "p99_ttft_ms" not in told
    assert told["tokjoule"]["left_out"]["p99_ttft_ms"] == "fewer than 100 samples"
    assert told["tokjoule"]["status"] == "valid"


def test_vllm_bench_tpot_counts_the_first_chunk_as_one_token() -> None:
    """Two tokens a chunk: (100 - 20) ms over 10 - 1 tokens, where ours is over 10 less the first chunk's."""
    log = make_event_log(4, 5)
    log.output_tokens[:3] = 10
    log.chunk_tokens[:] = 2
    (line,) = vllm_bench_lines([(make_record(), log)]).splitlines()
    assert json.loads(line)["mean_tpot_ms"] == pytest.approx(80 / 9)


def test_vllm_bench_open_loop_has_its_rate() -> None:
    load = LoadSpec(kind="open", request_rate=5.0, arrivals="gamma", burstiness=0.5, max_concurrency=16)
    log = make_event_log(60, 5)
    log.scheduled_ns[:] = log.sent_ns
    (line,) = vllm_bench_lines([(make_record(case=make_case(load=load)), log)]).splitlines()
    told = json.loads(line)
    assert (told["request_rate"], told["burstiness"], told["max_concurrency"]) == (5.0, 0.5, 16)


@pytest.mark.parametrize(
    ("load", "left_out"),
    [
        (LoadSpec(kind="open", request_rate=5.0, arrivals="constant"), {"burstiness"}),
        (LoadSpec(kind="open", arrivals="trace", speed=2.0), {"burstiness", "request_rate"}),
        (LoadSpec(kind="open", arrivals="burst", num_prompts=60), set()),
        (LoadSpec(kind="open", request_rate=5.0, arrivals="poisson"), set()),
    ],
)
def test_vllm_bench_calls_no_other_arrivals_poisson(load: LoadSpec, left_out: set[str]) -> None:
    log = make_event_log(60, 5)
    log.scheduled_ns[:] = log.sent_ns
    (line,) = vllm_bench_lines([(make_record(case=make_case(load=load)), log)]).splitlines()
    told = json.loads(line)
    assert {"burstiness", "request_rate"} - set(told) == left_out
    assert left_out <= set(told["tokjoule"]["left_out"])
    assert told.get("burstiness", 1.0) == 1.0


def test_trials_without_a_window_are_left_out_with_a_note(results: Path, bench: Bench, tmp_path: Path) -> None:
    save_trial(results, make_record(run_id="run-2", status=Status.FAILED, error="gone", metrics={}, window=None))
    path = tmp_path / "out"
    for form in ("vllm-bench", "guidellm"):
        ran = bench("export", "--format", form, "--out", str(path))
        assert "(failed) has no window to tell of: left out" in ran.err
    assert len(json.loads(path.read_text())["benchmarks"]) == 3
    ran = bench("export", "--format", "pytest-benchmark", "--run", "run-2", "--out", str(path))
    assert "no trial is valid: the file holds no benchmark" in ran.err


# --- pytest-benchmark -------------------------------------------------------------------------------------------------


def test_pytest_benchmark_statistics() -> None:
    records = [
        make_record(repeat=i, metrics=make_metrics(output_tok_per_s=v, ttft_ms=None)) for i, v in enumerate((400.0, 500.0))
    ]
    told = json.loads(pytest_benchmark_json(records))
    by_name = {one["group"]: one for one in told["benchmarks"]}
    assert set(by_name) == {"s_per_output_tok", "tpot_p50_s"}
    stats = by_name["s_per_output_tok"]["stats"]
    assert stats["data"] == [1 / 400, 1 / 500]
    assert (stats["rounds"], stats["min"], stats["max"]) == (2, 1 / 500, 1 / 400)
    assert stats["stddev"] == pytest.approx(np.std([1 / 400, 1 / 500], ddof=1))
    assert by_name["s_per_output_tok"]["extra_info"]["j_per_output_tok"] == [0.25, 0.25]


def test_pytest_benchmark_has_no_trial_that_is_not_valid() -> None:
    records = [make_record(), make_record(repeat=1, status=Status.INVALID)]
    rounds = [one["stats"]["rounds"] for one in json.loads(pytest_benchmark_json(records))["benchmarks"]]
    assert rounds == [1, 1, 1]


def test_pytest_benchmark_compare_reads_it(results: Path, bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    bench("export", "--format", "pytest-benchmark", "--out", str(path))
    program = [sys.executable, "-c", "import sys; from pytest_benchmark.cli import main; main()", "compare", str(path)]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    assert "point[s_per_output_tok]" in ran.stdout
    assert "point[ttft_p50_s]" in ran.stdout


def exported_benchmarks(*records: TrialRecord) -> dict[str, dict[str, Any]]:
    """Benchmarks of tokens a second by their full name, none of which is there twice."""
    told = [one for one in json.loads(pytest_benchmark_json(records))["benchmarks"] if one["group"] == "s_per_output_tok"]
    assert len({one["fullname"] for one in told}) == len(told)
    return {one["fullname"]: one for one in told}


def test_pytest_benchmark_calls_the_same_setting_of_two_runs_the_same() -> None:
    old, new = (exported_benchmarks(make_record(run_id=run_id)) for run_id in ("run-1", "run-2"))
    assert set(old) == set(new)


@pytest.mark.parametrize(
    "other",
    [
        {"run_id": "run-2"},
        {"host": make_host(host_id="host0002")},
        {"case": make_case(engine="other")},
        {"case": make_case(precision="fp8")},
        {"case": make_case(load=LoadSpec(kind="closed", batch_size=64))},
        {"case": make_case(seed=1)},
        {"config_id": "config-2"},
        {"key": structs.replace(make_record().key, role="ab_cand", trial_id="cand")},
    ],
    ids=lambda other: next(iter(other)),
)
def test_pytest_benchmark_tells_all_that_differ_in_one_file_apart(other: dict[str, Any]) -> None:
    assert len(exported_benchmarks(make_record(), make_record(**other))) == 2


def test_pytest_benchmark_compares_two_runs_by_full_name(tmp_path: Path) -> None:
    """Each run has two settings; each setting stands beside itself, and no other."""
    for run_id, tok_per_s in (("run-1", 400.0), ("run-2", 500.0)):
        cases = (make_case(), make_case(load=LoadSpec(kind="closed", batch_size=64)))
        records = [make_record(run_id=run_id, case=case, metrics=make_metrics(output_tok_per_s=tok_per_s)) for case in cases]
        (tmp_path / f"{run_id}.json").write_bytes(pytest_benchmark_json(records))
    words = ["compare", "run-1.json", "run-2.json", "--group-by=fullname", "--columns=ops,rounds"]
    program = [sys.executable, "-c", "import sys; from pytest_benchmark.cli import main; main()", *words]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    groups = [part for part in ran.stdout.split("\n\n") if "[s_per_output_tok]" in part and "tests" in part]
    assert len(groups) == 2, ran.stdout
    for group in groups:
        assert "2 tests" in group
        assert "400.0" in group
        assert "500.0" in group


# --- guidellm ---------------------------------------------------------------------------------------------------------

_READ = """
import json, sys
from gpustack.worker.schemas.benchmark_runner import GenerativeBenchmarksReport
report = GenerativeBenchmarksReport.load_file(sys.argv[1])
(result,) = report.to_results()
result.pop("raw_metrics")
json.dump([report.to_metrics().model_dump(exclude={"raw_metrics"}), result], sys.stdout)
"""


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_the_real_gpustack_reads_a_report(results: Path, bench: Bench, tmp_path: Path) -> None:
    """GPUStack 2.3.0 from PyPI in an environment of its own takes the numbers that the report has."""
    log = make_event_log(60, 5)
    record = make_record(run_id="run-3")
    load = LoadResult(log=log, window=record.window, health=HEALTHY, dataset_hash="d")
    found = measure(record.case, load, Telemetry(), {}, {})
    save_trial(results, make_record(run_id="run-3", metrics=found.metrics), log)
    report = tmp_path / "report.json"
    bench("export", "--format", "guidellm", "--run", "run-3", "--out", str(report))
    ran = subprocess.run(
        [str(gpustack_python()), "-c", _READ, str(report)], capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stderr
    metrics, result = json.loads(ran.stdout.splitlines()[-1])
    assert (metrics["request_total"], metrics["request_successful"], metrics["request_errored"]) == (60, 59, 1)
    assert (result["strategy_type"], result["rate"]) == ("concurrent", 8.0)
    assert result["time_to_first_token_mean"] == pytest.approx(20.0)
    assert result["inter_token_latency_mean"] == pytest.approx(20.0)
    assert result["request_latency_mean"] == pytest.approx(0.1)
    assert result["output_tokens_per_second_mean"] == pytest.approx(found.metrics["output_tok_per_s"].value)
    assert result["time_to_first_token_p99"] is None
