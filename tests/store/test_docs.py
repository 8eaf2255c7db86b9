"""`docs/results.md` says what is: its queries run, its columns are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.records import Outcome, Reason, Status
from bench.store import Lab
from bench.store.parquet import CHUNK_COLUMNS, REQUEST_COLUMNS, TELEMETRY_COLUMNS
from bench.store.schema import METRICS, TABLES
from bench.store.sql import RAW_VIEWS, ask
from tests.factories import make_event_log, make_record, make_telemetry, save_trial

PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """One valid trial with raw events and one that is not valid."""
    reason = Reason(code="errors", group="throughput", severity="invalid", message="12 of 100 requests failed")
    save_trial(tmp_path, make_record(), make_event_log(), make_telemetry())
    save_trial(tmp_path, make_record(repeat=1, status=Status.INVALID, reasons=(reason,)))
    lab = Lab(tmp_path)
    lab.ingest()
    return lab


def test_there_are_three_queries() -> None:
    assert len(QUERIES) == 3


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_answers(lab: Lab, query: str) -> None:
    assert len(ask(lab, query).rows) == 1


def test_the_query_over_raw_events_is_right(lab: Lab) -> None:
    (row,) = ask(lab, QUERIES[2]).rows
    assert row[2:] == (3, 20.0)


def section(title: str) -> str:
    found = re.search(rf"### {re.escape(title)}\n(.*?)(?=\n##|\Z)", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("file", "columns"),
    [("requests.parquet", REQUEST_COLUMNS), ("chunks.parquet", CHUNK_COLUMNS), ("telemetry.parquet", TELEMETRY_COLUMNS)],
)
def test_every_column_of_a_file_is_explained(file: str, columns: dict[str, str]) -> None:
    rows = [line.split("|")[1] for line in section(file).splitlines() if line.startswith("| `")]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(columns)


def test_every_table_and_view_is_explained() -> None:
    for name in (*TABLES, *RAW_VIEWS, "trials_wide"):
        assert re.search(rf"^\| .*`{name}`.* \|", PAGE, re.MULTILINE), name
    metrics_row = next(line for line in PAGE.splitlines() if line.startswith("| `metrics`"))
    assert set(METRICS) - {"trial_id"} <= set(re.findall(r"`(\w+)`", metrics_row))
    assert all(f"`{outcome.name.lower()}`" in section("requests.parquet") for outcome in Outcome)
