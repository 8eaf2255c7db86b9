from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from bench.codec import convert
from bench.identity import case_id, workload_id
from bench.records import Case
from bench.suite import load, text_of
from tests.in_process import Ran, run_here

GOOD = "cases:\n  - model: m\n    batch_size: [1, 2]\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    return run_here(capsys, "suites", *args)


def test_list_shows_what_can_be_run_by_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "suites").mkdir()
    (here / "suites" / "mine.yaml").write_text("description: |\n  first line\n  second line\n" + GOOD)
    (here / "suites" / "broken.yaml").write_text("cases:\n  - modle: m\n")
    ran = run(capsys, "list")
    assert (ran.code, ran.err) == (0, "")
    rows = [re.split(r"\s{2,}", line) for line in ran.out.splitlines()]
    assert rows[0] == ["suite", "cases", "from", "description"]
    table = {row[0]: row[1:] for row in rows[1:]}
    assert table["mine"] == ["2", "here", "first line"]
    assert table["quickstart"][:2] == ["2", "shipped"]
    broken = str(Path("suites/broken.yaml"))
    assert table["broken"] == ["-", "here", f"can't be used: {broken}:2: unknown key 'modle': did you mean 'model'?"]


def test_list_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(run(capsys, "list", "--json").out)
    assert [row["name"] for row in rows] == ["quickstart", "smoke"]
    assert {row["origin"] for row in rows} == {"shipped"}


def test_show_prints_the_file_with_its_comments(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "show", "quickstart")
    assert ran == Ran(0, text_of("quickstart"), "")
    assert ran.out.startswith("#")


@pytest.mark.parametrize("command", [["show"], ["expand"], ["validate"]])
def test_an_unknown_suite_exits_2_with_the_nearest(here: Path, capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    ran = run(capsys, *command, "quikstart")
    assert (ran.code, ran.out) == (2, "")
    assert "error: quikstart: there is no such suite: did you mean 'quickstart'?" in ran.err


def test_validate_accepts_good_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.yaml").write_text(GOOD)
    assert run(capsys, "validate", "a.yaml", "smoke") == Ran(0, "a.yaml: ok, 2 cases\nsmoke.yaml: ok, 3 cases\n", "")


def test_validate_says_every_problem_of_every_file_and_exits_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.yaml").write_text("cases:\n  - model: m\n    batchsize: 4\n    seed: x\n")
    (here / "b.yaml").write_text(GOOD)
    (here / "c.yaml").write_text("")
    ran = run(capsys, "validate", "a.yaml", "b.yaml", "c.yaml", "d.yaml")
    assert ran.code == 2
    assert ran.out == "b.yaml: ok, 2 cases\n"
    assert ran.err.splitlines() == [
        "error: a.yaml:3: unknown key 'batchsize': did you mean 'batch_size'?",
        "a.yaml:4: seed must be a whole number, got 'x'",
        "c.yaml:1: is empty: a suite has 'name', 'defaults' and 'cases'",
        "d.yaml: there is no such file: known suites: quickstart, smoke (bench suites list)",
    ]


def test_validate_warns_on_stderr_and_passes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.yaml").write_text("cases:\n  - model: m\n    duration: 1s\n")
    ran = run(capsys, "validate", "a.yaml")
    assert (ran.code, ran.out) == (0, "a.yaml: ok, 1 case\n")
    assert ran.err.startswith("warning: a.yaml:3: 'duration' is shorter than the 5s of profile: smoke")


def test_validate_needs_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "validate").code == 2


def test_expand_as_json_holds_every_resolved_case(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "expand", "quickstart", "--json")
    rows = json.loads(ran.out)
    cases = load("quickstart").cases
    assert [set(row) for row in rows] == [{"case_id", "workload_id", "name", "case"}] * 2
    assert [convert(row["case"], Case) for row in rows] == list(cases)
    assert [(row["case_id"], row["workload_id"]) for row in rows] == [(case_id(case), workload_id(case)) for case in cases]
    assert [row["name"] for row in rows] == ["smollm2/batch_size=1", "smollm2/batch_size=4"]


def test_expand_as_a_table_fits_a_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("quickstart", "smoke"):
        ran = run(capsys, "expand", name)
        assert ran.code == 0
        lines = ran.out.splitlines()
        assert len(lines) == 1 + len(load(name).cases)
        assert max(map(len, lines)) <= 100
        assert all(line.startswith(case_id(case)) for line, case in zip(lines[1:], load(name).cases, strict=True))


def test_expand_tells_loads_apart(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "cases:\n  - {name: a, model: m, request_rate: inf, num_prompts: 7}\n  - {name: b, model: m, request_rate: 2.5}\n"
    (here / "a.yaml").write_text(text)
    rows = [re.split(r"\s{2,}", line) for line in run(capsys, "expand", "a.yaml").out.splitlines()[1:]]
    assert [row[4] for row in rows] == ["all at once", "2.5/s poisson"]
    assert [row[6] for row in rows] == ["7 prompts x 1", "10s x 1"]


def test_schema_is_one_that_accepts_what_is_shipped(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(run(capsys, "schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(yaml.safe_load(text_of("smoke")))
    assert not validator.is_valid({"cases": [{"modle": "m"}]})
