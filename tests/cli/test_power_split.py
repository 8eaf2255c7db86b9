"""`bench power split` and `bench explain --trial`: what stored joules are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from bench.cli.main import cli
from bench.errors import UsageError
from bench.records import Metric
from bench.timing.error_budget import MEANINGS
from tests.analysis.test_length_sweeps import A_J, B_J, C_W, LENGTHS, trial
from tests.factories import make_metrics, make_record, save_trial

TERMS = {"blocks": (0.003, 0.003), "gain": (0.01, 0.01), "unseen": (0.0, 0.004)}


def ask(results: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, [*args, "--results", str(results)], standalone_mode=False, env={"COLUMNS": "200"})


def told(results: Path, *args: str) -> str:
    done = ask(results, *args)
    assert done.exception is None, done.exception
    return done.output


class TestSplit:
    @pytest.fixture
    def results(self, tmp_path: Path) -> Path:
        for lengths in LENGTHS:
            save_trial(tmp_path, trial(*lengths))
        for lengths in LENGTHS[:2]:
            save_trial(tmp_path, trial(*lengths, case={"model": "two-lengths"}))
        return tmp_path

    def test_each_part_with_its_interval(self, results: Path) -> None:
        lines = told(results, "power", "split", "--model", "tiny").splitlines()
        assert lines[0] == "tiny, mock, Example Accelerator, batch 8: 6 trials of 6 pairs of lengths"
        for line, label, value, unit in zip(
            lines[1:4], ("prompt token", "output token", "time"), (A_J, B_J, C_W), ("J", "J", "W"), strict=True
        ):
            assert line.split("  ")[1].strip() == label
            assert f" {value:g} {unit} (95%: " in line
        assert lines[4] == "  what is left over: 0.0% of each trial's energy"

    def test_a_sweep_that_can_not_be_split_says_why_and_what_to_do(self, results: Path) -> None:
        lines = told(results, "power", "split", "--model", "two-lengths").splitlines()
        assert lines[1] == "  can't be split: 2 pairs of lengths: at least 3 are needed"
        assert lines[2].startswith("  next: vary the prompt's and the reply's length apart")

    def test_json_has_the_same(self, results: Path) -> None:
        sweeps: list[dict[str, Any]] = json.loads(told(results, "power", "split", "--json"))["sweeps"]
        by_model = {sweep["model"]: sweep for sweep in sweeps}
        whole, short = by_model["tiny"], by_model["two-lengths"]
        assert whole["j_per_output_tok"]["value"] == pytest.approx(B_J)
        assert whole["j_per_output_tok"]["low"] <= B_J * (1 + 1e-9)
        assert len(whole["trials"]) == 6
        assert (short["reason"], "j_per_output_tok" in short) == ("2 pairs of lengths: at least 3 are needed", False)

    def test_nothing_to_split_says_how_to_measure_it(self, tmp_path: Path) -> None:
        save_trial(tmp_path, make_record())
        done = ask(tmp_path, "power", "split")
        assert done.exception is None
        assert "vary the prompt's and the reply's length apart" in done.stderr

    def test_a_model_that_is_not_there_is_a_usage_error(self, results: Path) -> None:
        assert isinstance(ask(results, "power", "split", "--model", "tinny").exception, UsageError)


class TestExplainTrial:
    def stored(self, results: Path, metric: Metric) -> str:
        record = make_record(metrics={**make_metrics(), metric.name: metric})
        save_trial(results, record)
        return record.key.trial_id

    @pytest.fixture
    def metric(self) -> Metric:
        return Metric(
            name="j_per_output_tok", unit="J/tok", value=0.2, low=0.1896, high=0.2112, n=20, source="counter", terms=TERMS
        )

    def test_the_error_budget_largest_term_first_and_all_together(self, tmp_path: Path, metric: Metric) -> None:
        trial_id = self.stored(tmp_path, metric)
        lines = told(tmp_path, "explain", "j_per_output_tok", "--trial", trial_id[:10]).splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith(f"in trial {trial_id}"))
        assert lines[at + 1].strip() == "value 0.2, low 0.1896, high 0.2112 J/tok (counter)"
        rows = [line.split(maxsplit=4) for line in lines[at + 2 :]]
        assert rows[0][:4] == ["term", "below", "above", "share"]
        assert [row[0] for row in rows[1:]] == ["gain", "unseen", "blocks", "together"]
        assert rows[1][1:] == ["0.01", "0.01", "5.00%", MEANINGS["gain"]]
        assert rows[4][1:] == ["0.01044", "0.01118", "5.59%", "all together"]

    def test_without_a_gain_the_sum_says_so(self, tmp_path: Path, metric: Metric) -> None:
        bare = replace(metric, low=None, high=None, terms={"blocks": (0.003, 0.003)})
        page = told(tmp_path, "explain", "j_per_output_tok", "--trial", self.stored(tmp_path, bare))
        assert "all together, without the gain, which no source gives" in page

    def test_a_missing_number_has_its_reason(self, tmp_path: Path, metric: Metric) -> None:
        missing = Metric(name=metric.name, unit=metric.unit, reason="counter_reset: it fell")
        page = told(tmp_path, "explain", "j_per_output_tok", "--trial", self.stored(tmp_path, missing))
        assert page.splitlines()[-1].strip() == "counter_reset: it fell"

    def test_a_distribution_shows_its_quantiles(self, tmp_path: Path, metric: Metric) -> None:
        page = told(tmp_path, "explain", "ttft_ms", "--trial", self.stored(tmp_path, metric))
        assert page.splitlines()[-1].strip() == "mean 50, p50 50, p90 60, p99 75 ms"

    def test_json_holds_the_terms(self, tmp_path: Path, metric: Metric) -> None:
        found = json.loads(told(tmp_path, "explain", "j_per_output_tok", "--trial", self.stored(tmp_path, metric), "--json"))
        assert found["name"] == "j_per_output_tok"
        assert found["trial"]["value"] == 0.2
        assert found["trial"]["terms"]["unseen"] == {"below": 0.0, "above": 0.004}

    def test_no_metric_or_no_such_trial_is_a_usage_error(self, tmp_path: Path, metric: Metric) -> None:
        trial_id = self.stored(tmp_path, metric)
        assert "explains one metric" in str(ask(tmp_path, "explain", "--trial", trial_id).exception)
        assert "no trial begins with 'nope'" in str(ask(tmp_path, "explain", "ttft_ms", "--trial", "nope").exception)
