"""Flags of data sets and traces, and runs that use them on the mock engine."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.cli.loading import with_data
from bench.errors import UsageError
from tests.in_process import Bench, run_here
from tests.load.data.samples import jsonl, mooncake


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"dataset": "a.jsonl"}, {"dataset": "a.jsonl"}),
        ({"dataset": "a.jsonl", "prompt_column": "q"}, {"dataset": {"path": "a.jsonl", "prompt_column": "q"}}),
        ({"dataset_name": "sharegpt", "dataset_path": "a.json"}, {"dataset": {"type": "sharegpt", "path": "a.json"}}),
        ({"dataset_name": "random"}, {"dataset": {"type": "synthetic"}}),
        ({"dataset_path": "a.csv", "output_tokens_column": "n"}, {"dataset": {"path": "a.csv", "output_tokens_column": "n"}}),
        ({"trace": "t.jsonl", "speed": 2.0}, {"dataset": {"path": "t.jsonl"}, "arrivals": "trace", "speed": 2.0}),
        ({"trace": "t.txt", "dataset_name": "azure"}, {"dataset": {"type": "azure", "path": "t.txt"}, "arrivals": "trace"}),
        (
            {"random_range_ratio": 0.5, "input_tokens": 100, "output_tokens": 10},
            {
                "input_tokens": {"mean": 100, "dist": "uniform", "spread": 0.5},
                "output_tokens": {"mean": 10, "dist": "uniform", "spread": 0.5},
            },
        ),
        ({"random_range_ratio": 0.0, "input_tokens": 100}, {"input_tokens": 100}),
        ({"prefix_tokens": 9, "batch_size": 2}, {"prefix_tokens": 9, "batch_size": 2}),
    ],
)
def test_flags_become_keys(options: dict[str, Any], keys: dict[str, Any]) -> None:
    nothing = dict.fromkeys(
        ("dataset_name", "dataset_path", "prompt_column", "output_tokens_column", "random_range_ratio", "trace")
    )
    assert with_data(nothing | options) == keys


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trace": "t.jsonl", "dataset": "a.jsonl"}, "--trace together with --dataset"),
        ({"trace": "t.jsonl", "dataset_path": "a.jsonl"}, "--trace together with --dataset-path"),
        ({"trace": "t.jsonl", "arrivals": "poisson"}, "--trace together with --arrivals"),
        ({"dataset": "a.jsonl", "dataset_name": "csv"}, "--dataset together with"),
        ({"random_range_ratio": 0.5}, "--random-range-ratio without a length"),
        ({"random_range_ratio": 1.5, "input_tokens": 4}, "must be from 0 to 1"),
    ],
)
def test_flags_that_contradict_each_other(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        with_data(options)


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    return partial(run_here, capsys)


def test_a_trace_and_a_data_set_run_from_flags(tmp_path: Path, bench: Bench) -> None:
    """Exit code 1 is a trial that this busy machine made invalid: here only what was sent is looked at."""
    trace = mooncake(tmp_path / "t.jsonl", [(50 * i, 40, 3 + i % 2, [i]) for i in range(12)])
    code, out, err = bench(
        "run", "--engine", "mock", "--trace", trace, "--speed", "2", "--json", "--results", str(tmp_path / "r")
    )
    assert code in (0, 1), err
    (trial,) = json.loads(out)["trials"]
    metrics = trial["metrics"]
    assert metrics["request_rate_asked_rps"]["value"] == pytest.approx(40, rel=1e-3)
    assert metrics["output_tokens"]["n"] == 12
    assert "prefix_cache_hits" not in {reason["code"] for reason in trial["reasons"]}
    path = jsonl(tmp_path / "q.jsonl", [{"prompt": f"question {i}", "n": 5} for i in range(8)])
    flags = ("--dataset", path, "--output-tokens-column", "n", "--num-prompts", "8", "--batch-size", "2")
    code, out, err = bench("run", "--engine", "mock", *flags, "--json", "--results", str(tmp_path / "r"))
    assert code in (0, 1), err
    (trial,) = json.loads(out)["trials"]
    assert trial["metrics"]["output_tokens"]["p50"] == 5
    assert not {"errors", "prompts_recycled"} & {reason["code"] for reason in trial["reasons"]}


def test_unsound_files_end_a_run_before_anything_is_started(tmp_path: Path, bench: Bench) -> None:
    path = jsonl(tmp_path / "q.jsonl", [{"prompt": "a"}, {"text": "b"}])
    results = tmp_path / "results"
    code, _, err = bench("run", "--engine", "mock", "--dataset", path, "--results", str(results))
    assert code == 2
    assert "q.jsonl:2: there is no column 'prompt'" in err
    assert not results.exists()
    code, _, err = bench("run", "--engine", "mock", "--dataset", str(tmp_path / "p.jsonl"), "--results", str(results))
    assert code == 2
    assert "there is no such data file" in err
    assert "did you mean 'q.jsonl'?" in err


def test_suites_validate_and_expand_read_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text("cases: [{engine: mock, dataset: t.jsonl, arrivals: trace, speed: 2}]\n")
    code, _, err = bench("suites", "validate", "s.yaml")
    assert code == 2
    assert "t.jsonl: there is no such data file" in err
    mooncake(Path("t.jsonl"), [(0, 40, 3, []), (10, 40, 3, [])])
    assert bench("suites", "validate", "s.yaml")[0] == 0
    code, out, _ = bench("suites", "expand", "s.yaml")
    assert code == 0
    assert "trace x2 n=2" in out
    one = bench("suites", "expand", "s.yaml", "--json")[1]
    mooncake(Path("t.jsonl"), [(0, 40, 3, []), (10, 41, 3, [])])
    assert json.loads(one)[0]["case_id"] != json.loads(bench("suites", "expand", "s.yaml", "--json")[1])[0]["case_id"]
