"""The table of results as plain, stable text and as data. Made from records alone; `screen` has it for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from bench.printable import printable
from bench.records import TrialRecord
from bench.reports.advice import Again, measure_again
from bench.reports.differences import differences
from bench.reports.footer import footer
from bench.reports.notes import PLAIN, TITLES
from bench.reports.numbers import COLUMNS
from bench.reports.rows import MISSING_TEXT, Row, rows
from bench.reports.text import cell, status_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def summary(records: Sequence[TrialRecord], again: Again | None = measure_again) -> RenderableType:
    """What a run measured, for a terminal of any width."""
    from bench.reports.screen import ScreenTable  # most of rich, and only here

    return ScreenTable(rows(records), again)


def screen_table(table: Sequence[Row]) -> RenderableType:
    """Rows for a terminal of any width."""
    from bench.reports.screen import ScreenTable

    return ScreenTable(table)


def summary_text(records: Sequence[TrialRecord], again: Again | None = measure_again) -> str:
    """What a run measured, as plain text of one stable form."""
    return plain_table(rows(records), again)


# --- plain text -------------------------------------------------------------------------------------------------------


def plain_table(table: Sequence[Row], again: Again | None = measure_again) -> str:
    """Columns two spaces apart, nothing cut, then the notes."""
    header, lines = text_cells(table)
    return "\n".join([*aligned([header, *lines], "  "), *footer(table, PLAIN, again=again).lines])


def aligned(lines: Sequence[Sequence[str]], between: str) -> list[str]:
    """Lines whose columns stand under each other, with `between` between them; nothing is cut."""
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    padded = ([part + " " * (w - cell_len(part)) for part, w in zip(line, widths, strict=True)] for line in lines)
    return [between.join(line).rstrip() for line in padded]


def text_cells(table: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text. `case` says what tells rows apart, where they would read the same; the run has a column when
    there are several, the trial where each has its own row.
    """
    several_runs = len({row.first.key.run_id for row in table}) > 1
    single = any(len(row.trials) == 1 for row in table) and _repeats_apart(table)
    cases, marks = differences(table), footer(table, PLAIN).marks
    named = any(cases)
    header = ["model", "precision", "engine", "devices", "load", "in/out", *["case"] * named]
    header += [*(column.plain for column in COLUMNS), "status", "notes", *["run"] * several_runs, *["trial"] * single]
    lines = []
    for row, case, mark in zip(table, cases, marks, strict=True):
        key = row.first.key
        line = [row.case.model, row.precision, row.case.engine, row.devices, row.load, row.lengths, *[case] * named]
        line += [*(cell(row, column.key) for column in COLUMNS), status_text(row), mark]
        line += [key.run_id] * several_runs + [key.trial_id] * single
        lines.append([printable(part) or MISSING_TEXT for part in line])
    return header, lines


def _repeats_apart(table: Sequence[Row]) -> bool:
    """Whether repeats of one case are rows of their own."""
    points = [(row.first.key.run_id, row.first.key.case_id, row.first.key.role) for row in table]
    return len(set(points)) < len(points)


# --- data -------------------------------------------------------------------------------------------------------------


def table_json(table: Sequence[Row]) -> dict[str, Any]:
    """The table as one object: `rows[]` with numbers in their metrics' own units (bytes, seconds as named)."""
    return {"rows": [_row_json(row) for row in table]}


def _row_json(row: Row) -> dict[str, Any]:
    key, case = row.first.key, row.case
    return {
        "case": case.name,
        "model": case.model,
        "precision": None if row.precision == MISSING_TEXT else row.precision,
        "engine": case.engine,
        "engine_args": case.engine_args,
        "labels": case.labels,
        "devices": None if row.devices == MISSING_TEXT else row.devices,
        "load": {"kind": case.load.kind, "batch_size": case.load.batch_size, "request_rate": case.load.request_rate},
        "input_tokens": case.input_tokens.mean,
        "output_tokens": case.output_tokens.mean,
        "status": row.status,
        "valid": row.valid,
        "trials": [trial.key.trial_id for trial in row.trials],
        "run_id": key.run_id,
        "case_id": key.case_id,
        "config_id": row.first.config_id,
        "host_id": row.first.host.host_id,
        "numbers": {key: asdict(number) for key, number in row.numbers.items()},
        "notes": [note.spelled(TITLES) for note in row.notes],
    }
