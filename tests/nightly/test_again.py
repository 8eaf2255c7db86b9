"""A night's job run again after a failure: what its first attempt measured stays, and what it lost is measured."""

from __future__ import annotations

import json
from pathlib import Path

from bench import codec, suite
from bench.lab.matrix import Wishes, jobs_of, place_of
from bench.records import Status
from tests.nightly.builds import build, weights
from tests.nightly.history import records_in
from tests.nightly.pipeline import Driver, Night

MEASURE = "./.github/workflows/nightly-measure.yml"
SUITE = """
name: two-builds
defaults:
  {{engine: llamacpp, model: tiny, model_source: "path:{weights}", protocol: openai-completions, input_tokens: 8,
    output_tokens: 4, batch_size: 2, num_prompts: 4, warmup: 0s, idle: 0s, grace: 5s, repeats: 1}}
cases:
  - {{name: here, engine_args: {{binary: {here}}}}}
  - {{name: gone, engine_args: {{binary: {gone}}}}}
"""


def test_another_attempt_measures_only_what_the_first_one_lost(tmp_path: Path) -> None:
    here, gone = build(tmp_path, 1), build(tmp_path, 2)
    path = tmp_path / "two-builds.yaml"
    path.write_text(SUITE.format(weights=weights(tmp_path), here=here, gone=gone))
    (job,) = jobs_of(suite.load(str(path)), str(path), Wishes(places=(place_of("cpu"),), runner=("ubuntu-24.04",)))
    given = {
        "vendor": "v",
        "prefix": "shards",
        "night": "2026-12-01",
        "matrix": json.dumps({"include": [codec.to_builtins(job)]}),
    }
    driver, night = Driver(home=tmp_path), Night(folder=tmp_path / "night")
    night.artifacts.mkdir(parents=True)
    (tmp_path / "tools").mkdir()

    gone.rename(gone.with_name("away"))
    assert driver.call(night, MEASURE, given) == "failure"
    first = {record.case.name: record for record in records_in(night.artifacts / f"shards-v-{job.id}-1" / "shards")}
    assert first["gone"].status is Status.FAILED

    gone.with_name("away").rename(gone)
    night.attempt = 2
    driver.call(night, MEASURE, given)
    assert "set out to do the same" in _measured(night)
    second = records_in(night.artifacts / f"shards-v-{job.id}-2" / "shards")
    assert [record for record in second if record.case.name == "here"] == [first["here"]]
    (mended,) = [record for record in second if record.case.name == "gone" and record.status is not Status.FAILED]
    assert (mended.key.run_id, mended.key.attempt) == (first["here"].key.run_id, 2)
    assert mended.case.labels == {"job": job.id, "night": "2026-12-01", "commit": "c0ffee"}
    assert mended.metrics["output_tok_per_s"].value

    night.attempt = 3  # of a run that lacks nothing
    driver.call(night, MEASURE, given)
    assert "nothing left to do" in _measured(night)


def _measured(night: Night) -> str:
    """What the last attempt to measure said."""
    return [step.out for step in night.steps if step.name == "Measure"][-1]
