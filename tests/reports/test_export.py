"""Exports: the same columns whatever was measured, and names that can't break out of their field."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import codec
from bench.records import Status, TrialRecord
from bench.reports.export import to_csv, to_json, to_markdown
from bench.reports.runs import run_json
from bench.store.layout import shard_path
from tests.factories import make_case, make_metrics, make_record

HOSTILE = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "a|b", "a\nb", 'a"b', "a,b", "<script>", "[x](y)", "`x`", "a\\|b")


def parsed(records: list[TrialRecord]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(records).decode(), newline="")))


def test_csv_columns_are_the_same_whatever_was_measured() -> None:
    full, empty = make_record(), make_record(metrics={}, window=None, engine=None, status=Status.FAILED)
    headers = {to_csv(records).split(b"\n", 1)[0] for records in ([], [full], [empty], [full, empty])}
    assert len(headers) == 1
    header = headers.pop().decode().split(",")
    assert len(set(header)) == len(header)
    named = {"trial_id", "window_s", "ttft_p50_ms", "ttft_p99_ms", "output_tok_per_s", "output_tok_per_s_low"}
    assert named | {"memory_used_peak_b", "j_per_output_tok"} <= set(header)


def test_csv_values_are_exact_and_missing_is_empty() -> None:
    (row,) = parsed([make_record(metrics=make_metrics(output_tok_per_s=1 / 3, requests_per_s=0.0, j_per_output_tok=None))])
    assert float(row["output_tok_per_s"]) == 1 / 3
    assert row["requests_per_s"] == "0.0"
    assert row["j_per_output_tok"] == row["error"] == row["e2e_p50_ms"] == ""
    assert row["started_at_utc"] == "2026-11-30T15:00:00.000Z"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_no_formula_and_stays_in_its_csv_field(name: str) -> None:
    (row,) = parsed([make_record(case=make_case(name=name, model=name), error=name)])
    assert row["model"] in (name, "'" + name)
    assert row["model"][0] not in "=+-@\t\r"
    assert row["status"] == "valid"


@given(st.text(max_size=30))
def test_any_name_survives_csv(name: str) -> None:
    (row,) = parsed([make_record(case=make_case(model=name))])
    assert row["model"].removeprefix("'") == name.removeprefix("'")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_not_break_a_markdown_row(name: str) -> None:
    lines = to_markdown([make_record(case=make_case(model=name))]).decode().splitlines()
    borders = [line.replace("\\\\", "").replace("\\|", "").count("|") for line in lines[:3]]
    assert borders[0] == borders[1] == borders[2]
    assert "<script>" not in "".join(lines)


def test_json_holds_whole_records() -> None:
    records = [make_record(), make_record(repeat=1, metrics={})]
    assert codec.decode(to_json(records), list[TrialRecord]) == records


def test_run_json_says_what_a_machine_needs() -> None:
    record = make_record(metrics=make_metrics(j_per_output_tok=None))
    failed = make_record(repeat=1, status=Status.FAILED, error="died", metrics={}, window=None, engine=None)
    data = json.loads(json.dumps(run_json("run-1", [record, failed]), allow_nan=False))
    assert data["run_id"] == "run-1"
    trial = data["trials"][0]
    assert trial["window"] == {"t0_ns": 2_000_000_000, "t1_ns": 12_000_000_000, "kind": "steady"}
    assert trial["metrics"]["ttft_ms"] == {"mean": 50.0, "p50": 50.0, "p90": 60.0, "p99": 75.0, "n": 400, "unit": "ms"}
    assert trial["metrics"]["j_per_output_tok"] == {"n": 0, "unit": "J/tok", "reason": "not measured"}
    assert trial["case"]["load"]["batch_size"] == 8
    assert trial["shard"] == shard_path(record)
    assert (data["trials"][1]["error"], data["trials"][1]["window"], data["trials"][1]["engine"]) == ("died", None, None)
