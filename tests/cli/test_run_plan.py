"""`bench run --dry-run`, `--resume` and `--find` up to where something would start."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from bench import codec
from bench.identity import case_id
from bench.lab.plans import new_plan
from bench.records import Status
from bench.store.plans import plan_path, write_plan
from bench.suite import load
from tests.conftest import BenchCommand
from tests.factories import make_case, make_record, save_trial
from tests.in_process import Ran, run_here

RUN = "20261130T100000Z-aaaaaa"
MOCK = ("--engine", "mock", "--model", "m")


# Power at rest is read before the engine starts and with the model resident, two seconds each (profile `smoke`).
IDLE_S = 4.0


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_RESULTS", raising=False)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    return run_here(capsys, "run", *args)


def test_a_dry_run_names_every_case_and_touches_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "quickstart", "--dry-run")
    assert ran.code == 0
    cases = load("quickstart").cases
    seconds = [case.warmup_s + case.duration_s for case in cases]
    for case, each, line in zip(cases, seconds, ran.out.splitlines()[1:], strict=False):
        trials = str(case.repeats)
        assert line.split() == [
            case_id(case),
            case.name,
            "llamacpp",
            "batch",
            str(case.load.batch_size),
            trials,
            f"{each:g}",
            "each",
        ]
    total_s = sum(case.repeats * each for case, each in zip(cases, seconds, strict=True))
    assert ran.out.splitlines()[-1] == f"1 engine start, {total_s + IDLE_S:g} s of load and idle; nothing was started"
    assert list(here.iterdir()) == []


def test_a_dry_run_of_a_search_says_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, *MOCK, "--find", "knee", "--high", "32", "--points", "6", "--repeats", "2", "--dry-run")
    assert " ".join(ran.out.splitlines()[1].split()) == "- m mock knee over batch_size 1..32 at most 12 12 each"
    assert "at most 148 s" in ran.out


def test_a_dry_run_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "smoke", "--dry-run", "--json")
    told = json.loads(ran.out)
    assert told["dry_run"] is True
    assert told["engine_starts"] == 1
    assert [line["case_id"] for line in told["lines"]] == [case_id(case) for case in load("smoke").cases]
    assert told["estimated_s"] == sum(line["trials"] * line["seconds"] for line in told["lines"]) + 2 * 1.0
    counted = json.loads(run(capsys, *MOCK, "--num-prompts", "9", "--dry-run", "--json").out)
    assert counted["estimated_s"] is None


def test_a_dry_run_of_a_wrong_suite_is_refused_as_a_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *MOCK, "--batch-size", "0", "--dry-run").code == 2
    assert run(capsys, "--dry-run").code == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--points", "9"), "--points without --find"),
        (("--over", "request_rate"), "--over without --find"),
        (("--find", "max-goodput"), "--find: 'sweep' with find: max-goodput needs 'goodput'"),
        (("--find", "knee", "--batch-size", "4"), "'sweep' together with 'batch_size'"),
        (("--find", "knee", "--low", "4", "--high", "2"), "sweep.low is not below sweep.high"),
    ],
)
def test_impossible_searches_are_named(capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str) -> None:
    ran = run(capsys, *MOCK, *flags, "--dry-run")
    assert ran.code == 2
    assert said in ran.err


def keep_plan(results: Path) -> None:
    case = make_case(repeats=3, name="point")
    os.close(write_plan(results, RUN, codec.encode_pretty(new_plan(RUN, [case], [], 1.0))))
    save_trial(results, make_record(case=case, run_id=RUN, repeat=1))
    save_trial(results, make_record(case=case, run_id=RUN, repeat=2, status=Status.FAILED, error="died"))


def test_a_run_that_is_not_known_names_the_last_ones(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = run(capsys, "--resume", "latest")
    assert (empty.code, empty.out) == (2, "")
    assert "holds no plan of any run" in empty.err
    assert list(here.iterdir()) == []
    keep_plan(here / "results")
    unknown = run(capsys, "--resume", "nothing")
    assert unknown.code == 2
    assert f"the last ones: {RUN}" in unknown.err
    near = run(capsys, "--resume", RUN[:-1] + "b")
    assert near.code == 2
    assert f"did you mean '{RUN}'" in near.err


def test_what_is_left_of_a_run_can_be_seen_beforehand(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_plan(here / "results")
    ran = run(capsys, "--resume", "latest", "--dry-run", "--json")
    assert ran.code == 0
    assert [line["trials"] for line in json.loads(ran.out)["lines"]] == [2]


def test_a_run_of_the_same_is_gone_on_with_where_that_is_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "s.yaml").write_text(
        "defaults: {engine: mock, model: m, repeats: 2, labels: {a: b}}\ncases: [{name: x}, {name: y, seed: 1}]\n"
    )
    cases = load("s.yaml").cases
    os.close(write_plan(here / "results", RUN, codec.encode_pretty(new_plan(RUN, cases, [], 1.0))))
    save_trial(here / "results", make_record(case=cases[0], run_id=RUN, repeat=1))
    save_trial(here / "results", make_record(case=cases[0], run_id=RUN, repeat=2, status=Status.INVALID))
    save_trial(here / "results", make_record(case=cases[1], run_id=RUN, repeat=1, status=Status.FAILED, error="died"))

    def left(*flags: str) -> list[int]:
        ran = run(capsys, "s.yaml", "--dry-run", "--json", *flags)
        assert ran.code == 0
        assert (f"run {RUN} set out to do the same" in ran.err) is (flags == ("--skip-measured",))
        return [line["trials"] for line in json.loads(ran.out)["lines"]]

    assert left("--skip-measured") == [0, 2]
    assert left() == [2, 2]
    assert left("--skip-measured", "--label", "a=c") == [2, 2]
    assert left("--skip-measured", "--case", "x") == [2]


@pytest.mark.parametrize(
    "more",
    [("quickstart",), ("--duration", "5s"), ("--find", "knee"), ("--no-stream",), ("--label", "a=b"), ("--skip-measured",)],
)
def test_a_resumed_run_keeps_its_plan(here: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]) -> None:
    keep_plan(here / "results")
    ran = run(capsys, "--resume", "latest", *more)
    assert ran.code == 2
    assert "--resume goes on with the plan of that run as it is: drop" in ran.err


def test_a_run_that_can_not_be_begun_leaves_no_plan(here: Path, bench: BenchCommand) -> None:
    assert bench("run", *MOCK, "--engine-arg", "no_such=1").returncode == 2
    assert list((here / "results" / "runs").iterdir()) == []


def test_a_run_that_is_being_measured_is_left_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_plan(here / "results")
    with plan_path(here / "results", RUN).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        ran = run(capsys, "--resume", RUN)
    assert ran.code == 2
    assert f"run {RUN} is still being measured" in ran.err
