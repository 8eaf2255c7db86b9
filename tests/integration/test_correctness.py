"""Correctness before speed, from the outside: a reference is made, and later runs of the same weights are held to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BenchCommand

RUN = ("run", "--engine", "mock", "--model", "mock", "--batch-size", "4", "--output-tokens", "4", "--duration", "1s", "--json")
QUICK = ("--warmup", "0.3s", "--grace", "2s", "--idle", "0s", "--engine-arg", "ttft_ms=200", "--engine-arg", "gap_ms=100")


def only_trial(text: str) -> dict[str, Any]:
    (trial,) = json.loads(text)["trials"]
    assert isinstance(trial, dict)
    return trial


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


@pytest.mark.parametrize("quirk", ["", "wrong-output"])
def test_an_engine_is_held_to_the_reference(bench_here: BenchCommand, cache: str, quirk: str) -> None:
    made = bench_here("reference", "mock", "--engine", "mock", "--json", BENCH_CACHE=cache)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["engine"] == "mock"
    done = bench_here(*RUN, *QUICK, *(("--engine-arg", f"quirk={quirk}") if quirk else ()), BENCH_CACHE=cache)
    trial = only_trial(done.stdout)
    codes = {reason["code"] for reason in trial["reasons"]}
    agreement, delta = (trial["metrics"][name] for name in ("top1_agreement", "ppl_delta"))
    assert agreement["source"].startswith("mock")
    if quirk:
        assert (done.returncode, trial["status"], agreement["value"]) == (1, "invalid", 0.0)
        assert "wrong_output" in codes
        assert delta["value"] > 1.0
        table = bench_here("table")
        assert "wrong_output" in table.stdout
        assert "joule1" in table.stdout
    else:
        assert (agreement["value"], delta["value"]) == (1.0, 0.0)
        assert "wrong_output" not in codes
    again = bench_here("rederive", "--run", "latest", "--check")
    assert again.returncode == 0, again.stdout


def test_without_a_reference_the_reason_says_how_to_make_one(bench_here: BenchCommand, cache: str) -> None:
    trial = only_trial(bench_here(*RUN, *QUICK, BENCH_CACHE=cache).stdout)
    for name in ("top1_agreement", "ppl_delta"):
        assert trial["metrics"][name]["reason"] == "no reference of these weights: bench reference mock"


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("mock", "--engine", "openai"), 2, "base"),
        (("mock", "--engine", "mock", "--engine-arg", "quirk=fail-start"), 1, "exit"),
        (("mock", "--engine", "mock", "--engine-arg", "quirk=status=500"), 1, "HTTP 500"),
    ],
)
def test_what_makes_no_reference_is_told(
    bench_here: BenchCommand, cache: str, args: tuple[str, ...], code: int, told: str
) -> None:
    done = bench_here("reference", *args, BENCH_CACHE=cache)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert told in done.stderr
    assert not list(Path(cache).rglob("*.json"))
