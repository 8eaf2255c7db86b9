"""The table of results: through rich on a terminal, plain and stable when piped, and as data. Made from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench.records import Status, TrialRecord
from bench.reports.rows import COLUMNS, MISSING_TEXT, Row, load_label, rows
from bench.reports.text import INVALID_MARK, cell, in_table_unit, printable, spread_text

MIN_WIDTH = 92
"""Columns of a terminal that the rich table needs; a narrower one is better served by plain text."""

_MEANINGS = {
    INVALID_MARK: "not valid: don't use these numbers",
    "scheduled": "open loop: TTFT counts from the scheduled send time (no coordinated omission)",
}


def summary(records: Sequence[TrialRecord]) -> RenderableType:
    """What a run measured, for a terminal."""
    return rich_table(rows(records))


def summary_text(records: Sequence[TrialRecord]) -> str:
    """What a run measured, as plain text of one stable form."""
    return plain_table(rows(records))


# --- plain text -------------------------------------------------------------------------------------------------------


def plain_table(table: Sequence[Row]) -> str:
    """Columns two spaces apart, nothing cut, then the notes."""
    header, lines = text_cells(table)
    widths = [max(cell_len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    padded = ([part + " " * (w - cell_len(part)) for part, w in zip(line, widths, strict=True)] for line in [header, *lines])
    text = ["  ".join(line).rstrip() for line in padded]
    return "\n".join([*text, *footer(table)])


def text_cells(table: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text; the run has a column when there are several, the trial where each has its own row."""
    several_runs = len({row.first.key.run_id for row in table}) > 1
    single = any(len(row.trials) == 1 for row in table) and _repeats_apart(table)
    header = [
        "model",
        "precision",
        "engine",
        "devices",
        "batch",
        "in/out",
        *(column.plain for column in COLUMNS),
        "status",
        "notes",
    ]
    header += ["run"] * several_runs + ["trial"] * single
    numbered = _numbered_notes(table)
    lines = []
    for row in table:
        key = row.first.key
        line = [row.case.model, row.precision, row.case.engine, row.devices, _batch(row), _lengths(row)]
        line += [cell(row.numbers[column.key]) for column in COLUMNS]
        line += [row.status, f"[{numbered[row.notes]}]" if row.notes else MISSING_TEXT]
        line += [key.run_id] * several_runs + [key.trial_id] * single
        lines.append([printable(part) or MISSING_TEXT for part in line])
    return header, lines


def _repeats_apart(table: Sequence[Row]) -> bool:
    """Whether repeats of one case are rows of their own."""
    points = [(row.first.key.run_id, row.first.key.case_id, row.first.key.role) for row in table]
    return len(set(points)) < len(points)


def _batch(row: Row) -> str:
    return load_label(row.case.load)


def _lengths(row: Row) -> str:
    return f"{row.case.input_tokens.mean}/{row.case.output_tokens.mean}"


def _numbered_notes(table: Sequence[Row]) -> dict[tuple[str, ...], int]:
    """Rows with the same notes share a number."""
    distinct = dict.fromkeys(row.notes for row in table if row.notes)
    return {notes: number for number, notes in enumerate(distinct, start=1)}


def footer(table: Sequence[Row]) -> list[str]:
    """The lines under a table: its notes by number, and what its marks mean."""
    lines = [f"[{number}] {printable(note)}" for notes, number in _numbered_notes(table).items() for note in notes]
    runs = {row.first.key.run_id for row in table}
    lines += [f"run {printable(run_id)}" for run_id in runs if len(runs) == 1]
    numbers = [number for row in table for number in row.numbers.values() if number.value is not None]
    if any(not number.valid for number in numbers):
        lines.append(f"{INVALID_MARK} {_MEANINGS[INVALID_MARK]}")
    if any(row.open_loop for row in table):
        lines.append(_MEANINGS["scheduled"])
    if any(number.low is not None or number.high is not None for number in numbers):
        lines.append("intervals: 95%, over repeats; J/token of a single trial: of its measurement")
    return lines


# --- terminal ---------------------------------------------------------------------------------------------------------


def rich_table(table: Sequence[Row]) -> RenderableType:
    """A table that fits 100 columns: names fold, the interval stands under its number as the farther end."""
    numbered = _numbered_notes(table)
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    shown.add_column("Model\nprecision", overflow="fold", min_width=8)
    shown.add_column("Engine\ndevices", overflow="fold", min_width=8)
    shown.add_column("Batch\nin/out", no_wrap=True, justify="right")
    for column in COLUMNS:
        shown.add_column("Memory\nGiB" if column.key == "memory" else column.title, no_wrap=True, justify="right")
    shown.add_column("Status", overflow="fold", min_width=7)
    for row in table:
        good = any(trial.status is Status.VALID for trial in row.trials)
        mark = f"\n[{numbered[row.notes]}]" if row.notes else ""
        shown.add_row(
            Text(printable(row.case.model) + "\n" + printable(row.precision)),
            Text(printable(row.case.engine) + "\n" + printable(row.devices)),
            Text(f"{_batch(row)}\n{_lengths(row)}"),
            *(_rich_number(row, column.key) for column in COLUMNS),
            Text(row.status + mark, style="green" if good else "red"),
        )
    return Group(shown, *(Text(line, style="dim" if line[:1] != "[" else "") for line in footer(table)))


def _rich_number(row: Row, key: str) -> Text:
    number = row.numbers[key]
    if number.value is None:
        return Text(MISSING_TEXT, style="dim")
    text = in_table_unit(number, number.value)
    below = spread_text(number)
    if not number.valid:
        return Text(f"{text}{INVALID_MARK}" + (f"\n{below}" if below else ""), style="red")
    return Text(text).append(f"\n{below}" if below else "", style="dim")


# --- data -------------------------------------------------------------------------------------------------------------


def table_json(table: Sequence[Row]) -> dict[str, Any]:
    """The table as one object: `rows[]` with numbers in their metrics' own units (bytes, seconds as named)."""
    return {"rows": [_row_json(row) for row in table]}


def _row_json(row: Row) -> dict[str, Any]:
    key, case = row.first.key, row.case
    return {
        "model": case.model,
        "precision": None if row.precision == MISSING_TEXT else row.precision,
        "engine": case.engine,
        "devices": None if row.devices == MISSING_TEXT else row.devices,
        "load": {"kind": case.load.kind, "batch_size": case.load.batch_size, "request_rate": case.load.request_rate},
        "input_tokens": case.input_tokens.mean,
        "output_tokens": case.output_tokens.mean,
        "status": row.status,
        "valid": sum(trial.status is Status.VALID for trial in row.trials),
        "trials": [trial.key.trial_id for trial in row.trials],
        "run_id": key.run_id,
        "case_id": key.case_id,
        "config_id": row.first.config_id,
        "host_id": row.first.host.host_id,
        "numbers": {
            column.key: {
                "metric": (number := row.numbers[column.key]).metric,
                "field": number.field,
                "value": number.value,
                "low": number.low,
                "high": number.high,
                "n": number.n,
                "valid": number.valid,
                "reason": number.reason,
            }
            for column in COLUMNS
        },
        "notes": list(row.notes),
    }
