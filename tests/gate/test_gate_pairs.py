"""`bench matrix --confirm`: what the gate wants measured in turns, as jobs where it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.lab.gate_pairs import NoPairs, sides_of
from bench.records import ContainerSpec, TrialRecord
from tests.factories import make_case, save_trial
from tests.gate.test_gate_command import WIGGLE, save_pairs, trial
from tests.in_process import Bench

SUITE = """
name: demo
defaults: {engine: mock, model: tiny, input_tokens: 64, output_tokens: 32, batch_size: 8, duration: 10s}
cases:
  - {name: point}
  - {name: other, seed: 1}
"""
JOB = "cpu-x1-mock"
BEFORE = 9
"""Nights before the last: the fewest that are judged by, and one."""


def made(number: int, factor: float = 1.0, *, version: str = "1.0", **case: Any) -> TrialRecord:
    """A trial of the one series on a night, whatever build its case names."""
    case.setdefault("labels", {"job": JOB})
    same = trial(number, factor, version=version)
    return trial(number, factor, version=version, case=make_case(**case), series_id=same.series_id, config_id=same.config_id)


# --- which builds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "base", "cand"),
    [
        (
            {"engine_args": {"binary": "/b1"}},
            {"engine_args": {"binary": "/b2"}},
            "engine_args.binary=/b1",
            "engine_args.binary=/b2",
        ),
        ({"engine_python": "/old env/py"}, {"engine_python": "/py"}, "'engine_python=/old env/py'", "engine_python=/py"),
        ({"base_url": "http://a/v1"}, {"base_url": "http://b/v1"}, "base_url=http://a/v1", "base_url=http://b/v1"),
        (
            {"container": ContainerSpec(tool="docker", image="a/b:1")},
            {"container": ContainerSpec(tool="podman", image="a/b:2")},
            "image=a/b:1 launch=docker",
            "image=a/b:2 launch=podman",
        ),
        ({"version": "1.0"}, {"version": "1.0"}, "", ""),
        ({"engine_args": {"threads": 4}}, {"engine_args": {"threads": 4}}, "", ""),
    ],
)
def test_what_tells_two_builds_apart(before: dict[str, Any], now: dict[str, Any], base: str, cand: str) -> None:
    assert sides_of(made(1, **before), made(2, **now)) == (base, cand)


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        ({"version": "0.9"}, {"version": "1.0"}, "mock 0.9 became mock 1.0 in place"),
        ({}, {"engine_python": "/new"}, "only one of the builds has engine_python"),
        ({}, {"container": ContainerSpec(tool="docker", image="a/b:2")}, "only one of the builds has image"),
    ],
)
def test_builds_that_can_t_stand_beside_each_other(before: dict[str, Any], now: dict[str, Any], why: str) -> None:
    with pytest.raises(NoPairs, match=why):
        sides_of(made(1, **before), made(2, **now))


# --- which jobs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def suite_file(tmp_path: Path) -> str:
    path = tmp_path / "demo.yaml"
    path.write_text(SUITE)
    return str(path)


@pytest.fixture
def ordinary(results: Path) -> Path:
    """Nights of build /b1."""
    for number in range(BEFORE):
        save_trial(results, made(number, 1 + WIGGLE[number], engine_python="/b1"))
    return results


def wanted(bench: Bench, suite_file: str, *args: str) -> tuple[list[dict[str, Any]], str]:
    """The jobs, and what was said beside them."""
    ran = bench("matrix", suite_file, "--confirm", "--json", *args)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["include"], ran.err


def test_a_build_that_was_replaced_in_its_place_gives_way_to_a_later_one(results: Path, bench: Bench, suite_file: str) -> None:
    """The oldest nights ran what no longer exists: pairs with the first that can still be started show what they can."""
    for number in range(BEFORE):
        save_trial(results, made(number, 1 + WIGGLE[number], engine_python="/b1" if number >= 3 else None))
    save_trial(results, made(BEFORE, 0.94, engine_python="/b2"))
    (job,), told = wanted(bench, suite_file)
    assert told == ""
    assert (job["ab_base"], job["ab_cand"]) == ("engine_python=/b1", "engine_python=/b2")


def test_the_last_good_build_against_tonights_where_it_ran_until_it_was_measured(
    ordinary: Path, bench: Bench, suite_file: str
) -> None:
    save_trial(ordinary, made(BEFORE, 0.94, engine_python="/b2"))
    save_trial(ordinary, made(BEFORE + 1, 0.94, engine_python="/b3"))  # /b2 was no good night
    (job,), told = wanted(bench, suite_file)
    assert told == ""
    assert (job["ab_base"], job["ab_cand"]) == ("engine_python=/b1", "engine_python=/b3")
    assert (job["cases"], job["pairs"], job["id"][: len(JOB) + 4]) == ("point", 5, f"{JOB}-ab-")
    assert job["runs_on"] == ["self-hosted", "bench", "vendor-cpu", "x1"]
    (earlier,), _ = wanted(bench, suite_file, "--night", f"2026-09-{BEFORE + 1:02}")
    assert earlier["ab_cand"] == "engine_python=/b2"
    save_pairs(ordinary, BEFORE + 1, 0.06)
    assert wanted(bench, suite_file) == ([], "")


def test_a_bad_build_that_was_lucky_at_first_is_not_measured_against_itself(
    ordinary: Path, bench: Bench, suite_file: str
) -> None:
    for number, factor in ((BEFORE, 1.0), (BEFORE + 1, 0.99), (BEFORE + 2, 0.94)):
        save_trial(ordinary, made(number, factor, engine_python="/b2"))
    (job,), _ = wanted(bench, suite_file)
    assert (job["ab_base"], job["ab_cand"]) == ("engine_python=/b1", "engine_python=/b2")


@pytest.mark.parametrize("tonight", [1.0, 1.06])
def test_a_night_that_did_not_get_worse_wants_nothing(ordinary: Path, bench: Bench, suite_file: str, tonight: float) -> None:
    save_trial(ordinary, made(BEFORE, tonight, engine_python="/b2"))
    assert wanted(bench, suite_file) == ([], "")


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({"labels": {}}, "its case 'point' is no longer in a job '' of demo"),
        ({"name": "renamed"}, "its case 'renamed' is no longer in a job 'cpu-x1-mock' of demo"),
        ({"engine_python": None}, "only one of the builds has engine_python"),
    ],
)
def test_what_can_t_be_paired_is_told_with_the_reason(
    ordinary: Path, bench: Bench, suite_file: str, now: dict[str, Any], why: str
) -> None:
    save_trial(ordinary, made(BEFORE, 0.94, **({"engine_python": "/b2"} | now)))
    jobs, told = wanted(bench, suite_file)
    assert jobs == []
    assert "note: no pairs for output_tok_per_s of tiny q4_1" in told
    assert why in told
