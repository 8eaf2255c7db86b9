"""The table of results beside what the chips could do: `bench table --columns roofline`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.records import Group
from bench.reports.numbers import Number, NumberColumn, pooled_number
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.text import INVALID_MARK, number_text, status_text


def _column(key: str, plain: str, metric: str, group: Group = "throughput") -> NumberColumn:
    return NumberColumn(key=key, title=plain, plain=plain, metric=metric, field="value", group=group)


COLUMNS = (
    _column("output", "output_tok/s", "output_tok_per_s"),
    _column("mfu", "mfu", "mfu"),
    _column("mbu", "mbu", "mbu"),
    _column("prefill", "prefill_share", "prefill_roofline_share", "latency"),
    _column("decode", "decode_share", "decode_roofline_share", "latency"),
    _column("per_tflops", "tok/s/TFLOP/s", "tok_per_s_per_tflops"),
    _column("per_tbps", "tok/s/TB/s", "tok_per_s_per_tbps"),
    _column("per_w", "tok/s/rated_W", "tok_per_s_per_rated_w"),
)
_TELL_SOURCES = ("tok_per_s_per_tflops", "tok_per_s_per_tbps", "tok_per_s_per_rated_w", "mbu")
HEADER = ("model", "precision", "engine", "devices", "load", "in/out", *(column.plain for column in COLUMNS), "status")


def roofline_table(table: Sequence[Row]) -> tuple[list[tuple[str, ...]], list[str]]:
    """A line for each row, under `HEADER`: `-` where there is no number, `!` behind what must not be trusted. Then the notes:
    against which figures, and why numbers are missing, each thing once.
    """
    numbers = [_numbers(row) for row in table]
    lines = [(*_names(row), *map(_cell, of_row), status_text(row)) for row, of_row in zip(table, numbers, strict=True)]
    return lines, list(dict.fromkeys((*_sources(table), *_reasons(numbers))))


def _names(row: Row) -> tuple[str, ...]:
    return row.case.model, row.precision, row.case.engine, row.devices, row.load, row.lengths


def _numbers(row: Row) -> list[Number]:
    return [pooled_number(column, row.trials) for column in COLUMNS]


def _cell(number: Number) -> str:
    if number.value is None:
        return MISSING_TEXT
    return number_text(number.value) + ("" if number.valid else INVALID_MARK)


def _sources(table: Sequence[Row]) -> list[str]:
    trials = [trial for row in table for trial in row.trials]
    told = [metric for trial in trials for name in _TELL_SOURCES if (metric := trial.metrics.get(name)) is not None]
    return [f"against {metric.source}" for metric in told if metric.source]


def _reasons(numbers: Sequence[Sequence[Number]]) -> list[str]:
    return [f"-: {number.reason}" for of_row in numbers for number in of_row if number.value is None and number.reason]


def roofline_json(table: Sequence[Row]) -> dict[str, Any]:
    """The table as one object: `rows[]`."""
    return {"rows": [_row_json(row) for row in table]}


def _row_json(row: Row) -> dict[str, Any]:
    names = {"case": row.case.name, "model": row.case.model, "engine": row.case.engine, "devices": row.devices}
    numbers = {column.key: asdict(number) for column, number in zip(COLUMNS, _numbers(row), strict=True)}
    return names | {"trials": [trial.key.trial_id for trial in row.trials], "status": row.status, "numbers": numbers}
