"""The whole pipeline on two nights a week apart, with one engine 8% slower on the second."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.nightly.builds import build, weights
from tests.nightly.history import keep_history, made_up, moved, records_in
from tests.nightly.pipeline import Driver, Night

SLOW_DOWN = 0.08
BEFORE = 24
"""Made-up nights before the first real one."""
SUITE = """
name: two-engines
defaults:
  engine: llamacpp
  model: tiny
  model_source: "path:{weights}"
  protocol: openai-completions
  input_tokens: 32
  output_tokens: 8
  batch_size: 8
  warmup: 1s
  duration: 6s
  idle: 0s
  repeats: 1
cases:
  - {{name: changing, engine_args: {{binary: "{changing}"}}}}
  - {{name: control, engine_args: {{binary: "{control}", threads: 1}}}}
"""


def tell(title: str, night: Night) -> None:
    """What a reader of the proof wants to see."""
    lines = [f"\n=== {title}: {night.results}"]
    shown = ("Measure", "Gate", "What is to be confirmed", "Report")
    lines += [f"--- {step.job}: {step.name} (exit {step.code})\n{step.out}" for step in night.steps if step.name in shown]
    sys.stdout.write("\n".join([*lines, night.summary]))


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_a_slow_down_is_found_confirmed_and_reported_and_the_control_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(np.random.SeedSequence().entropy) % 2**32  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    good, same, slow = build(tmp_path, 7001), build(tmp_path, 6000), build(tmp_path, 7002, SLOW_DOWN)
    home, suite = tmp_path / "home", tmp_path / "two-engines.yaml"
    driver = Driver(home=home, inputs={"suite": str(suite)})

    def night(changing: Path) -> Night:
        suite.write_text(SUITE.format(weights=weights(tmp_path), changing=changing, control=same))
        return driver.night("nightly-hosted")

    home.mkdir()
    real = records_in(night(good).artifacts / "history-hosted")
    templates = [next(one for one in real if one.case.name == name) for name in ("changing", "control")]
    keep_history(home, [one for template in templates for one in made_up(template, range(BEFORE, 0, -1), rng)])
    first = night(good)

    week = [one for one in records_in(first.artifacts / "history-hosted") if not one.key.run_id.startswith("made-up")]
    before = [one for template in templates for one in made_up(template, [*range(7 + BEFORE, 7, -1), *range(6, 0, -1)], rng)]
    keep_history(home, [*before, *(moved(one, 7) for one in week)])
    second = night(slow)

    with capsys.disabled():
        sys.stdout.write(f"\nseed {seed} (drawn when the test began)\n")
        tell("first week", first)
        tell(f"second week, one engine {SLOW_DOWN:.0%} slower", second)
    assert first.results["confirm"] == "skipped"
    assert set(first.results.values()) == {"success", "skipped"}
    assert first.said("report", "Gate").strip().endswith(": 6 results judged: 6 ok")
    assert second.results["confirm"] == "success"
    assert second.results["report"] == "failure"  # the gate ends it, after everything was told and kept
    gate = second.said("report", "Gate")
    assert "regression: output_tok_per_s of tiny" in gate
    assert "::error title=regression" in gate
    found = [line for line in gate.splitlines() if line.startswith("regression: ")]
    assert {line.split("series ")[1][:8] for line in found} == {templates[0].series_id[:8]}  # type: ignore[index]
    assert f"(series {templates[1].series_id[:8]})" not in gate  # type: ignore[index]
    assert "| regression |" in second.summary
    assert (second.artifacts / "report-hosted-1" / "report.html").stat().st_size > 0
