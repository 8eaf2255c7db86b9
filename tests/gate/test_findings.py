"""`findings` and `accepted` in SQL: what `bench gate` told of, kept beside the shards."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from bench.errors import StoreError
from bench.store import Lab
from bench.store.findings import ACCEPTED_FILE, FINDINGS_FILE, Accepted, add_accepted, read_accepted, read_findings
from bench.store.sql import ask
from tests.factories import save_trial
from tests.gate.test_gate_command import save_nights, save_pairs, trial
from tests.in_process import Bench

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
QUERY = PAGE.partition("## What the gate told of")[2].partition("```sql\n")[2].partition("```")[0]
ASKED = "SELECT CAST(night AS VARCHAR), state, worse_percent, pairs, CAST(since AS VARCHAR) FROM findings ORDER BY judged_at"


@pytest.fixture
def slow_night(results: Path) -> Path:
    """Ten ordinary nights and one that is 6% slower."""
    save_nights(results)
    save_trial(results, trial(10, 0.94))
    return results


def test_a_finding_is_kept_once_and_follows_the_last_verdict(slow_night: Path, bench: Bench) -> None:
    for _ in range(2):
        assert bench("gate").code == 1
        ((night, state, worse, pairs, since),) = ask(Lab(slow_night), ASKED).rows
        assert (night, state, pairs, since) == ("2026-09-11", "trigger", None, None)
        assert worse == pytest.approx(6.1, abs=0.2)
    assert ask(Lab(slow_night), QUERY).rows == []
    save_pairs(slow_night, 10, 0.06)
    assert bench("gate").code == 3
    ((since, _, label, metric, worse, *_),) = ask(Lab(slow_night), QUERY).rows
    assert (str(since), metric, worse) == ("2026-09-11", "output_tok_per_s", pytest.approx(6.1, abs=0.2))
    assert label.startswith("tiny q4_1, mock")
    assert [row[:2] + row[3:] for row in ask(Lab(slow_night), ASKED).rows] == [("2026-09-11", "confirmed", 5, "2026-09-11")]
    assert len((slow_night / FINDINGS_FILE).read_bytes().splitlines()) == 2


def test_what_is_accepted_is_told_beside_it_and_a_night_that_is_judged_well_again_is_gone(slow_night: Path, bench: Bench) -> None:
    bench("gate")
    series = ask(Lab(slow_night), "SELECT DISTINCT series_id FROM findings").rows[0][0]
    bench("gate", "--accept", f"{series}:output_tok_per_s", "--reason", "it's meant")
    told = "SELECT f.state, a.reason FROM findings f LEFT JOIN accepted a USING (series_id, metric, night)"
    assert ask(Lab(slow_night), told).rows == [("accepted change point", "it's meant")]
    (slow_night / "accepted.jsonl").unlink()
    for place in (slow_night / "shards").glob("*/night-010/*"):
        content = json.loads((place / "trial.json").read_bytes())
        content["metrics"]["output_tok_per_s"]["value"] = 400.0
        (place / "trial.json").write_text(json.dumps(content))
    Lab(slow_night).ingest()
    assert bench("gate").code == 0
    assert ask(Lab(slow_night), told).rows == []


def test_they_outlive_the_database_and_a_results_folder_has_none_at_first(slow_night: Path, bench: Bench) -> None:
    Lab(slow_night).ingest()
    assert (
        ask(Lab(slow_night), "SELECT count(*) FROM findings").rows
        == ask(Lab(slow_night), "SELECT count(*) FROM accepted").rows
        == [(0,)]
    )
    bench("gate")
    (slow_night / "lab.duckdb").unlink()
    ran = bench("sql", "--csv", "SELECT night, state FROM findings")
    assert (ran.code, ran.out) == (0, "night,state\n2026-09-11,trigger\n")


def test_a_disk_that_gets_full_in_the_middle_of_a_line_leaves_whole_lines(results: Path) -> None:
    results.mkdir()
    change = Accepted(series="s", metric=None, night="2026-12-01", reason="meant" * 10)
    add_accepted(results, change)
    before = (results / ACCEPTED_FILE).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
    try:
        with pytest.raises(StoreError, match="can't write"):
            add_accepted(results, change)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (results / ACCEPTED_FILE).read_bytes() == before
    add_accepted(results, change)
    assert read_accepted(results) == [change, change]


def test_a_last_line_without_its_end_is_no_part_of_the_next(results: Path) -> None:
    results.mkdir()
    first, second = (Accepted(series=name, metric=None, night="2026-12-01", reason="meant") for name in "ab")
    add_accepted(results, first)
    path = results / ACCEPTED_FILE
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    add_accepted(results, second)
    assert read_accepted(results) == [first, second]


@pytest.mark.parametrize("name", [FINDINGS_FILE, ACCEPTED_FILE])
def test_a_pipe_in_its_place_is_not_waited_for(slow_night: Path, bench: Bench, name: str) -> None:
    os.mkfifo(slow_night / name)
    ran = bench("gate")
    assert ran.code == 1
    assert f"{name} can't be read: it is no plain file" in ran.err


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("night", "2026-02-30"),
        ("night", "yesterday"),
        ("night", "20260911"),
        ("since", "2026-9-1"),
        ("judged_at", "now"),
        ("judged_at", "2026-09-11"),
        ("baseline_nights", -1),
        ("pairs", 10**30),
    ],
)
def test_a_line_that_sql_could_not_take_is_named(slow_night: Path, bench: Bench, field: str, value: object) -> None:
    bench("gate")
    path = slow_night / FINDINGS_FILE
    good = json.loads(path.read_bytes())
    path.write_text("\n".join(json.dumps(one) for one in (good, good | {field: value})), encoding="utf-8")
    for command in (("gate",), ("sql", "SELECT * FROM findings")):
        ran = bench(*command)
        assert ran.code == 1
        assert "findings.jsonl:2: no finding line" in ran.err
    assert "mend or delete that line" in ran.err


def test_a_date_of_an_accepted_change_is_checked_too(results: Path) -> None:
    results.mkdir()
    add_accepted(results, Accepted(series="s", metric=None, night="2026-12-1", reason="meant"))
    with pytest.raises(StoreError, match=r"accepted.jsonl:1: no accepted line: '2026-12-1' is no day"):
        read_accepted(results)


def test_a_line_that_was_cut_off_is_named(slow_night: Path, bench: Bench) -> None:
    bench("gate")
    path = slow_night / FINDINGS_FILE
    path.write_bytes(path.read_bytes() + b'{"night": "2026-')
    with pytest.raises(StoreError, match=r"findings.jsonl:2"):
        read_findings(slow_night)
    ran = bench("gate")
    assert ran.code == 1
    assert "findings.jsonl:2" in ran.err
