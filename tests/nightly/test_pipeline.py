"""The nightly pipeline on this machine: real trials of a real engine, and a night on which it is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

from bench.records import Status
from tests.nightly.history import keep_history, moved, records_in
from tests.nightly.pipeline import Driver, evaluate, filled

SUITE = """
name: nightly-cpu
defaults:
  engine: llamacpp
  model: smollm2-135m-instruct
  precision: q4_1
  protocol: openai-completions
  input_tokens: 32
  output_tokens: 8
  num_prompts: 6 # ends when it is done, however busy this machine is
  idle: 1s
  repeats: 1
cases:
  - {{name: smollm2, batch_size: 2, engine_args: {{{args}}}}}
"""


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_night_of_a_real_engine_and_one_on_which_it_is_gone(tmp_path: Path) -> None:
    suite, home = tmp_path / "nightly-cpu.yaml", tmp_path / "home"
    driver = Driver(home=home, inputs={"suite": str(suite), "replay": ""})
    suite.write_text(SUITE.format(args=""))
    night = driver.night("nightly-hosted")
    assert (night.results["plan"], night.results["judge"], night.results["confirm"]) == ("success", "success", "skipped")
    (record,) = records_in(home / "nights" / "history-hosted")
    assert record.case.labels == {"job": "cpu-x1-llamacpp", "night": night.outputs["plan"]["night"], "commit": "c0ffee"}
    assert record.metrics["output_tok_per_s"].value
    assert (night.artifacts / "report-hosted-1" / "report.html").stat().st_size > 0
    assert night.summary.startswith("## Gate of ")

    # the night before it was valid, however busy this machine is; now the engine does not start
    keep_history(home, [moved(structs.replace(record, status=Status.VALID, reasons=()), 1)])
    suite.write_text(SUITE.format(args=f"binary: {tmp_path}/gone/llama-server"))
    night = driver.night("nightly-hosted")
    assert {job: night.results[job] for job in ("bench", "judge", "report")} == {
        "bench": "failure",
        "judge": "success",
        "report": "failure",
    }
    assert re.search(r"missing result: (\d metrics|output_tok_per_s) of smollm2", night.said("report", "Gate"))
    assert "| missing result |" in night.summary


CONTEXTS = {
    "inputs": {"name": "a", "none": None, "flag": True},
    "needs": {"plan": {"result": "success", "outputs": {"jobs": '{"include": []}', "some": '{"include": [{"id": 1}]}'}}},
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("inputs.name", "a"),
        ("inputs.other", None),
        ("needs.plan.result == 'success' && !inputs.none", True),
        ("inputs.name != 'a' || inputs.flag", True),
        ("fromJSON(needs.plan.outputs.jobs).include[0] != null", False),
        ("fromJSON(needs.plan.outputs.some).include[0] != null", True),
    ],
)
def test_expressions_mean_what_they_mean_on_github(expression: str, value: object) -> None:
    assert evaluate(expression, CONTEXTS) == value


def test_what_is_filled_in_keeps_its_type_where_it_stands_alone() -> None:
    written = {"alone": "${{ inputs.flag }}", "within": "x-${{ inputs.flag }}-${{ inputs.none }}-${{ inputs.name }}"}
    assert filled(written, CONTEXTS) == {"alone": True, "within": "x-true--a"}
