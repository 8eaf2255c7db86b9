"""Records as bytes: JSON (everything), CSV and Parquet (one row a trial, the same columns whatever was measured), Markdown (the
table).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import codec
from bench.clock import iso_utc
from bench.records import TrialRecord
from bench.reports import markdown
from bench.reports.footer import footer
from bench.reports.notes import PLAIN
from bench.reports.rows import device_label, rows
from bench.reports.table import text_cells
from bench.reports.text import csv_line
from bench.timing.columns import WideColumn, wide_columns
from bench.timing.normalise import running_precision

Report = Callable[[Sequence[TrialRecord]], bytes]
"""Trials as the bytes of a file: what an entry point in `bench.reports` names."""
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
_CONTEXT: dict[str, Callable[[TrialRecord], object]] = {
    "run_id": lambda r: r.key.run_id,
    "trial_id": lambda r: r.key.trial_id,
    "case_id": lambda r: r.key.case_id,
    "workload_id": lambda r: r.key.workload_id,
    "series_id": lambda r: r.series_id,
    "config_id": lambda r: r.config_id,
    "role": lambda r: r.key.role,
    "repeat": lambda r: r.key.repeat,
    "attempt": lambda r: r.key.attempt,
    "status": lambda r: r.status.value,
    "reasons": lambda r: ";".join(reason.code for reason in r.reasons),
    "error": lambda r: r.error,
    "case_name": lambda r: r.case.name,
    "suite": lambda r: r.case.suite,
    "profile": lambda r: r.case.profile.value,
    "model": lambda r: r.case.model,
    "precision": lambda r: running_precision(r.case, r.engine),
    "engine": lambda r: r.case.engine,
    "engine_version": lambda r: r.engine.version if r.engine else None,
    "devices": device_label,
    "load": lambda r: r.case.load.kind,
    "batch_size": lambda r: r.case.load.batch_size,
    "request_rate_per_s": lambda r: r.case.load.request_rate,
    "input_requested_tokens": lambda r: r.case.input_tokens.mean,
    "output_requested_tokens": lambda r: r.case.output_tokens.mean,
    "window_s": lambda r: r.window.seconds if r.window else None,
    "window_kind": lambda r: r.window.kind if r.window else None,
    "started_at_utc": lambda r: iso_utc(r.started.wall_ns),
    "host_id": lambda r: r.host.host_id,
    "energy_scope": lambda r: r.energy_scope,
}


def to_json(records: Sequence[TrialRecord]) -> bytes:
    """A JSON array of whole trial records."""
    return codec.encode_pretty(list(records))


def to_csv(records: Sequence[TrialRecord]) -> bytes:
    """UTF-8 CSV; what is missing is an empty field. Texts that a spreadsheet would run as a formula begin with `'`."""
    columns = wide_columns()
    lines = [csv_line([*_CONTEXT, *(c.column for c in columns)])]
    for record in records:
        context = [no_formula(read(record)) for read in _CONTEXT.values()]
        lines.append(csv_line([*context, *(no_formula(_number(record, c)) for c in columns)]))
    return "".join(lines).encode("utf-8", "replace")


_COUNTS = ("repeat", "attempt", "batch_size", "input_requested_tokens", "output_requested_tokens")
_REALS = ("request_rate_per_s", "window_s")


def to_parquet(records: Sequence[TrialRecord]) -> bytes:
    """The columns of the CSV as Parquet: numbers as numbers, texts as they are, what is missing NULL, times in UTC."""
    import duckdb

    kinds = {name: "BIGINT" if name in _COUNTS else "DOUBLE" if name in _REALS else "VARCHAR" for name in _CONTEXT}
    kinds |= {"started_at_utc": "TIMESTAMP"} | {c.column: "BIGINT" if c.field == "n" else "DOUBLE" for c in wide_columns()}
    rows = [_plain_row(record) for record in records]
    shape = ", ".join(f'"{name}": "{kind}"' for name, kind in kinds.items())
    with tempfile.TemporaryDirectory(prefix="bench-export-") as folder, duckdb.connect() as con:
        path = Path(folder) / "trials.parquet"
        source = f"SELECT unnest(from_json_strict(CAST($1 AS JSON), '[{{{shape}}}]')) AS r"
        con.execute(f"CREATE TABLE trials AS SELECT r.* FROM ({source})", [codec.encode(rows).decode()])  # noqa: S608 - our names
        con.execute(f"COPY trials TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
        return path.read_bytes()


def _plain_row(record: TrialRecord) -> dict[str, object]:
    texts = {name: read(record) for name, read in _CONTEXT.items()}
    row = {name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value for name, value in texts.items()}
    row["started_at_utc"] = str(row["started_at_utc"]).removesuffix("Z")
    return row | {column.column: _number(record, column) for column in wide_columns()}


def _number(record: TrialRecord, wanted: WideColumn) -> object:
    metric = record.metrics.get(wanted.metric)
    if metric is None or (wanted.field == "n" and metric.p50 is None):
        return None  # the size of a sample that says nothing is not a number to average
    return getattr(metric, wanted.field)


def no_formula(value: object) -> object:
    """A field of a CSV file; a text that a spreadsheet would run begins with `'`."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value


def to_markdown(records: Sequence[TrialRecord]) -> bytes:
    """The pooled table with its notes as GitHub Markdown."""
    table = rows(records)
    header, lines = text_cells(table)
    told = [markdown.row([markdown.escaped(cell) for cell in line]) for line in (header, *lines)]
    text = [told[0], markdown.rule(len(header)), *told[1:]]
    notes = [f"- {markdown.escaped(line)}" for line in footer(table, PLAIN).lines]
    return ("\n".join([*text, *([""] if notes else []), *notes]) + "\n").encode("utf-8", "replace")


FORMATS: dict[str, Report] = {
    "json": to_json,
    "csv": to_csv,
    "parquet": to_parquet,
    "markdown": to_markdown,
}
"""Exporters of our own shapes, by the name that `bench export --format` takes."""
