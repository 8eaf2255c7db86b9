"""`gpustack benchmark`: its spellings, its table, its dry run, and a measurement on the mock engine."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bench.cli import gpustack as cli
from bench.lab.gpustack.fitting import default_engine, fit_line, need_of
from bench.records import LoadSpec, Reason, Status, TrialRecord
from bench.reports.hardware import HEADER, hardware_json, hardware_table
from bench.reports.rows import rows
from tests.factories import make_case, make_device, make_metric, make_metrics, make_record
from tests.in_process import run_here

ASKED = ("--model", "llama2-13b", "--precision", "fp16", "--batch_size", "128", "--duration", "300s")
GB = 10**9


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_RESULTS", raising=False)
    monkeypatch.setenv("BENCH_PROBES", "cpu")
    return tmp_path


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


# --- the table ----------------------------------------------------------------------------------------------------------


def four_boards(**over: Any) -> list[TrialRecord]:
    boards = tuple(make_device(uid=f"GPU-{i}", name="NVIDIA H100 80GB HBM3", index=i) for i in range(4))
    metrics = make_metrics(
        requests_per_s=142.0, j_per_output_tok=3.2, memory_reserved_util=make_metric("memory_reserved_util", 0.78)
    )
    return [make_record(devices=boards, metrics=metrics, **over)]


def test_the_four_columns_come_first_and_ours_after_them() -> None:
    header, line = hardware_table(rows(four_boards())).splitlines()[:2]
    assert cells(header)[:4] == list(HEADER) == ["hardware combination", "QPS", "memory utilisation", "J per token"]
    assert cells(line)[:4] == ["4x NVIDIA H100 80GB HBM3", "142.0", "78.0%", "3.200"]
    assert {"model", "engine", "load", "output_tok/s", "ttft_p50_ms", "status"} <= set(cells(header)[4:])
    assert not {"devices", "qps", "j_per_output_tok"} & set(cells(header))
    assert len(cells(header)) == len(cells(line))


def test_numbers_of_an_invalid_trial_are_marked_and_missing_ones_are_not_zero() -> None:
    errors = Reason(code="errors", group="all", severity="invalid", message="12 of 100 requests failed")
    line = hardware_table(rows(four_boards(status=Status.INVALID, reasons=(errors,)))).splitlines()[1]
    assert cells(line)[1:4] == ["142.0!", "78.0%!", "3.200!"]
    bare = rows([make_record(metrics=make_metrics(j_per_output_tok=None))])
    assert cells(hardware_table(bare).splitlines()[1])[2:4] == ["-", "-"]
    [told] = hardware_json(bare)
    assert (told["memory_utilisation"], told["j_per_token"]) == (None, None)


def test_the_same_as_data() -> None:
    [told] = hardware_json(rows(four_boards()))
    assert told["hardware_combination"] == "4x NVIDIA H100 80GB HBM3"
    assert (told["qps"], told["memory_utilisation"], told["j_per_token"]) == pytest.approx((142.0, 0.78, 3.2))
    assert told["row"]["numbers"]["output"]["value"] == pytest.approx(400.0)


# --- what would run -----------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_what_would_run_though_it_does_not_fit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capsys, "gpustack", "benchmark", *ASKED, "--dry-run")
    assert ran.code == 0
    assert ran.out.splitlines()[1].split()[1:5] == ["llama2-13b", "vllm", "batch", "128"]
    assert "302 each" in ran.out
    assert "llama2-13b needs 24.2 GiB of weights and up to 33.2 GiB of KV cache" in ran.err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("other", ["--batch-size", "--batch_size"])
@pytest.mark.parametrize(
    ("dashed", "words"), [("--input-tokens", "9"), ("--output-tokens", "9"), ("--engine-arg", "x=1"), ("--request-timeout", "9s")]
)
def test_flags_are_spelled_with_dashes_or_underscores(
    dashed: str, words: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("gpustack", "benchmark", "--model", "llama2-13b", other, "8", "--dry-run", "--json")
    told = [run_here(capsys, *asked, flag, words) for flag in (dashed, "--" + dashed[2:].replace("-", "_"))]
    assert [ran.code for ran in told] == [0, 0]
    ids = [json.loads(ran.out)["lines"][0]["case_id"] for ran in told]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("model", "precision", "source", "engine"),
    [
        ("llama2-13b", "fp16", None, "vllm"),
        ("smollm2-135m-instruct", "q4_1", None, "llamacpp"),
        ("smollm2-135m-instruct", None, None, "llamacpp"),
        ("qwen3-0.6b", None, None, "vllm"),
        ("nobody/knows", "fp8", None, "vllm"),
        ("mine", None, "path:/models/m.GGUF", "llamacpp"),
        ("mine", None, "hf:org/m@main", "vllm"),
    ],
)
def test_the_weights_choose_the_engine(model: str, precision: str | None, source: str | None, engine: str) -> None:
    assert default_engine(model, precision, source) == engine


def test_memory_that_is_needed_is_weights_and_every_token_of_the_batch() -> None:
    case = make_case(model="llama2-13b", precision="fp16", load=LoadSpec(kind="closed", batch_size=128))
    need = need_of(case)
    assert need is not None
    assert need.weights_b == 13015864320 * 2
    assert need.kv_cache_b == need.tokens * 2 * 40 * 40 * 128 * 2
    assert need_of(make_case(model="nobody/knows")) is None


def test_boards_are_counted_together_and_one_of_unknown_size_tells_nothing() -> None:
    case = make_case(model="llama2-13b", precision="fp16")
    board = make_device(memory_total_b=20 * GB)
    assert "it does not fit" in str(fit_line(case, [board], 999 * GB))
    assert "it fits" in str(fit_line(case, [board, board, board], 0))
    assert "no accelerator is here" in str(fit_line(case, [], 10 * GB))
    assert fit_line(case, [make_device()], 10 * GB) is None


def test_a_model_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capsys, "gpustack", "benchmark", "--batch_size", "8")
    assert ran.code == 2
    assert "--model" in ran.err


# --- measured -----------------------------------------------------------------------------------------------------------


def test_a_measurement_is_one_of_bench_run_in_another_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--engine", "mock", "--model", "m", "--batch_size", "2", "--num_prompts", "8", "--output_tokens", "4")
    ran = run_here(capsys, "gpustack", "benchmark", *flags, "--idle", "0s", "--engine-arg", "gap_ms=1", "--json")
    assert ran.code in (0, 1), ran.err  # a job of a moment is too short to be valid
    told = json.loads(ran.out)
    [line], [trial] = told["table"], told["trials"]
    assert line["qps"] == pytest.approx(trial["metrics"]["requests_per_s"]["value"])
    assert line["qps"] > 0
    assert line["j_per_token"] is None
    assert trial["case"]["suite"] == "gpustack benchmark"
    assert (here / "results" / trial["shard"] / "trial.json").exists()


# --- the other ways in --------------------------------------------------------------------------------------------------


def test_a_command_that_is_not_there_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run_here(capsys, "gpustack", "bnechmark")
    assert ran.code == 2
    assert "bench gpustack benchmark" in ran.err


def test_the_console_script_is_the_same_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"]["gpustack-benchmark"] == "bench.cli.gpustack:benchmark_main"
    assert project["entry-points"]["gpustack.plugins"] == {"tokjoule": "bench.lab.gpustack.plugin:BenchmarkPlugin"}
    monkeypatch.setattr(sys, "argv", ["gpustack-benchmark", *ASKED, "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        cli.benchmark_main()
    assert ended.value.code == 0
    assert "llama2-13b" in capsys.readouterr().out
