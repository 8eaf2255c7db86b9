"""A results folder of generated trials, and the command in this process."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.factories import make_case, make_event_log, make_metrics, make_record, save_trial
from tests.in_process import Bench, run_here

SAMPLES = Path(__file__).parent / "samples"
"""Files that the tools wrote: vLLM 0.32, GuideLLM 0.8 and AIPerf 0.13 against one server that sends a token every 20 ms, less
what nobody reads. `llama_bench.json` has the shape that llama.cpp documents, with made-up numbers.
"""
TOOLS = {"vllm-bench": "vllm_bench.json", "guidellm": "guidellm.json", "aiperf": "aiperf.json", "llama-bench": "llama_bench.json"}
REPEATS = 3


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs `bench ARGS...` in this process."""
    return partial(run_here, capsys)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three valid repeats of one case."""
    folder = tmp_path_factory.mktemp("saved")
    for repeat in range(REPEATS):
        metrics = make_metrics(output_tok_per_s=400.0 + 4 * repeat, ttft_ms=50.0 + repeat)
        save_trial(folder, make_record(case=make_case(repeats=REPEATS), repeat=repeat, metrics=metrics), make_event_log(60, 5))
    return folder


@pytest.fixture
def results(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with the trials of `saved`."""
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))
    return shutil.copytree(saved, tmp_path / "results")
