"""Event logs and readings to Parquet and back. DuckDB writes them; a missing value is NULL in the file.

Column names carry units: `_ns` monotonic nanoseconds, `_tokens`, `_b` bytes, `_w` watts, `_j` joules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.errors import StoreError
from bench.records import MISSING, ChunkKind, EventLog, IntArray, Outcome, Reading, Telemetry
from bench.store.layout import CHUNKS, REQUESTS, TELEMETRY

if TYPE_CHECKING:
    import duckdb

REQUEST_COLUMNS = {
    "trial_id": "VARCHAR",
    "request": "BIGINT",
    "scheduled_ns": "BIGINT",
    "sent_ns": "BIGINT",
    "opened_ns": "BIGINT",
    "closed_ns": "BIGINT",
    "outcome": "VARCHAR",
    "http_status": "BIGINT",
    "input_requested_tokens": "BIGINT",
    "output_requested_tokens": "BIGINT",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "cached_tokens": "BIGINT",
    "reasoning_tokens": "BIGINT",
    "output_retokenized_tokens": "BIGINT",
    "finish_reason": "VARCHAR",
    "error": "VARCHAR",
    "worker": "BIGINT",
}
CHUNK_COLUMNS = {
    "trial_id": "VARCHAR",
    "request": "BIGINT",
    "at_ns": "BIGINT",
    "kind": "VARCHAR",
    "tokens": "BIGINT",
    "text_b": "BIGINT",
}
TELEMETRY_COLUMNS = {
    "trial_id": "VARCHAR",
    "phase": "VARCHAR",
    "uid": "VARCHAR",
    "before_ns": "BIGINT",
    "after_ns": "BIGINT",
    "power_w": "DOUBLE",
    "energy_j": "DOUBLE",
    "memory_used_b": "BIGINT",
    "utilisation": "DOUBLE",
    "temperature_c": "DOUBLE",
    "clock_mhz": "DOUBLE",
    "foreign_processes": "DOUBLE",
    "engine_memory_b": "BIGINT",
    "throttle": "VARCHAR[]",
}
_LOG_FIELDS = {
    "scheduled_ns": "scheduled_ns",
    "sent_ns": "sent_ns",
    "opened_ns": "opened_ns",
    "closed_ns": "closed_ns",
    "http_status": "http_status",
    "input_requested": "input_requested_tokens",
    "output_requested": "output_requested_tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cached_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "worker": "worker",
}
_CHUNK_FIELDS = {"chunk_request": "request", "chunk_ns": "at_ns", "chunk_tokens": "tokens", "chunk_bytes": "text_b"}
_READING_FLOATS = ("power_w", "energy_j", "utilisation", "temperature_c", "clock_mhz", "foreign_processes")
_READING_INTS = ("memory_used_b", "engine_memory_b")
_LIST_MARK = "\x1f"

Column = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Texts:
    """A column of texts as codes into distinct ones; None has the code `MISSING`. `named`: the codes of an enumeration.

    Only plain number arrays are handed to DuckDB: its 1.x takes masked arrays for whole and object arrays for pandas'.
    """

    codes: IntArray
    distinct: list[str]
    named: bool = False


def write_log(folder: Path, trial_id: str, log: EventLog) -> None:
    """`requests.parquet` and `chunks.parquet`. Raises: duckdb.Error, OSError."""
    requests: dict[str, Column | _Texts] = {column: getattr(log, name) for name, column in _LOG_FIELDS.items()}
    requests["output_retokenized_tokens"] = np.full(len(log), MISSING) if (ours := log.output_retokenized) is None else ours
    requests["outcome"] = _names(log.outcome, Outcome)
    requests["finish_reason"] = _texts(log.finish_reason)
    requests["error"] = _texts(log.error)
    chunks: dict[str, Column | _Texts] = {column: getattr(log, name) for name, column in _CHUNK_FIELDS.items()}
    chunks["kind"] = _names(log.chunk_kind, ChunkKind)
    with _writer() as con:
        _write(con, folder / REQUESTS, trial_id, requests, REQUEST_COLUMNS)
        _write(con, folder / CHUNKS, trial_id, chunks, CHUNK_COLUMNS)


def write_telemetry(folder: Path, trial_id: str, telemetry: Telemetry) -> None:
    """`telemetry.parquet`: phase `trial` for readings around the window, `baseline` for those of the idle and resident
    windows. Raises: duckdb.Error, OSError.
    """
    readings = (*telemetry.idle_readings, *telemetry.readings)
    idle = len(telemetry.idle_readings)
    columns: dict[str, Column | _Texts] = {
        "phase": _texts(["baseline"] * idle + ["trial"] * (len(readings) - idle)),
        "uid": _texts(r.uid for r in readings),
        "before_ns": np.array([r.before_ns for r in readings], dtype=np.int64),
        "after_ns": np.array([r.after_ns for r in readings], dtype=np.int64),
        "throttle": _texts(None if r.throttle is None else _LIST_MARK.join(r.throttle) for r in readings),
    }
    for name in _READING_INTS:
        counts = [getattr(r, name) for r in readings]
        columns[name] = np.array([MISSING if count is None else count for count in counts], dtype=np.int64)
    for name in _READING_FLOATS:
        values = [getattr(r, name) for r in readings]
        columns[name] = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    with _writer() as con:
        _write(con, folder / TELEMETRY, trial_id, columns, TELEMETRY_COLUMNS)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Whatever is wrong with a file is a StoreError."""
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, KeyError, ValueError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"{what} can't be read: {said}") from error


@_reading(f"{REQUESTS} and {CHUNKS}")
def read_log(folder: Path) -> EventLog:
    """The event log of a shard, as it was handed to `write_log`. Raises: StoreError (missing or damaged)."""
    with _connect() as con:
        requests = _read(con, folder / REQUESTS, REQUEST_COLUMNS, "request")
        chunks = _read(con, folder / CHUNKS, CHUNK_COLUMNS, "file_row_number")
    ours = _filled(requests.get("output_retokenized_tokens", np.zeros(0)))
    return EventLog(
        output_retokenized=ours if (ours != MISSING).any() else None,
        **{name: _filled(requests[column]) for name, column in _LOG_FIELDS.items()},
        **{name: _filled(chunks[column]) for name, column in _CHUNK_FIELDS.items()},
        outcome=_codes(requests["outcome"], Outcome),
        chunk_kind=_codes(chunks["kind"], ChunkKind),
        finish_reason=_optional_texts(requests["finish_reason"]),
        error=_optional_texts(requests["error"]),
    )


@_reading(TELEMETRY)
def read_readings(folder: Path) -> tuple[tuple[Reading, ...], tuple[Reading, ...]]:
    """The readings of a shard: (baseline, trial). Raises: StoreError (missing or damaged)."""
    names = ("phase", "uid", "before_ns", "after_ns", "throttle", *_READING_INTS, *_READING_FLOATS)
    with _connect() as con:
        source = con.read_parquet(str((folder / TELEMETRY).absolute()), file_row_number=True)
        there = [name for name in names if name in source.columns]  # a shard of an earlier bench lacks the newest ones
        rows = source.order("file_row_number").project(", ".join(there)).fetchall()
    baseline: list[Reading] = []
    trial: list[Reading] = []
    for row in rows:
        values = dict(zip(there, row, strict=True))
        phase = values.pop("phase")
        if values["throttle"] is not None:
            values["throttle"] = tuple(values["throttle"])
        (baseline if phase == "baseline" else trial).append(Reading(**values))
    return tuple(baseline), tuple(trial)


def _connect(threads: int | None = None) -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(config={"temp_directory": "", **({"threads": threads} if threads is not None else {})})


def _writer() -> duckdb.DuckDBPyConnection:
    """With one thread: more are no faster, and each holds row groups that wait for their turn."""
    return _connect(threads=1)


def _write(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    trial_id: str,
    columns: Mapping[str, Column | _Texts],
    types: Mapping[str, str],
) -> None:
    """Rows in the order of the arrays, `MISSING` and NaN as NULL. DuckDB reads arrays where they lie, a piece at a time: those of
    a mapped file are never in memory as a whole.
    """
    arrays = {name: c.codes if isinstance(c, _Texts) else np.ascontiguousarray(c) for name, c in columns.items()}
    texts = {name: c for name, c in columns.items() if isinstance(c, _Texts) and not c.named}
    if texts or len(columns) < len(types) - 1:
        arrays["row_number"] = np.arange(len(next(iter(arrays.values()))), dtype=np.int64)
    con.register("frame", arrays)
    joins = "".join(_join(con, name, c) for name, c in texts.items())
    selected = ", ".join(
        f"{_value(name, kind, columns.get(name))} AS {name}" for name, kind in types.items() if name != "trial_id"
    )
    con.execute(
        f"COPY (SELECT CAST({_quoted(trial_id)} AS VARCHAR) AS trial_id, {selected} "  # noqa: S608 - our own names
        f"FROM frame{joins}{' ORDER BY row_number' if joins else ''}) "
        f"TO {_quoted(str(path.absolute()))} (FORMAT parquet, COMPRESSION zstd)"
    )
    con.unregister("frame")


def _join(con: duckdb.DuckDBPyConnection, name: str, texts: _Texts) -> str:
    con.execute(
        f"CREATE TEMP TABLE {name}_texts AS SELECT unnest(range(len($1))) AS code, unnest(CAST($1 AS VARCHAR[])) AS text",
        [texts.distinct],
    )
    return f" LEFT JOIN {name}_texts ON frame.{name} = {name}_texts.code"


def _value(name: str, kind: str, column: Column | _Texts | None) -> str:
    """The SQL of one column; one that nobody gave is the row's number (`request`)."""
    if column is None:
        return "row_number"
    if isinstance(column, _Texts) and column.named:
        return f"([{', '.join(map(_quoted, column.distinct))}])[frame.{name} + 1]"
    if isinstance(column, _Texts):
        text = f"{name}_texts.text"
        if kind == "VARCHAR":
            return text
        return f"CASE WHEN {text} = '' THEN CAST([] AS VARCHAR[]) ELSE string_split({text}, chr({ord(_LIST_MARK)})) END"
    if kind == "DOUBLE":
        return f"CASE WHEN isnan(frame.{name}) THEN NULL ELSE frame.{name} END"
    return f"nullif(CAST(frame.{name} AS BIGINT), {MISSING})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _read(con: duckdb.DuckDBPyConnection, path: Path, types: Mapping[str, str], order: str) -> dict[str, Column]:
    source = con.read_parquet(str(path.absolute()), file_row_number=True)
    there = [name for name in types if name in source.columns]  # a shard of an earlier bench lacks the newest ones
    columns: dict[str, Column] = source.order(order).project(", ".join(there)).fetchnumpy()
    return columns


def _filled(values: Column) -> IntArray:
    return np.ma.filled(np.ma.asarray(values).astype(np.int64), MISSING)


def _texts(values: Iterable[str | None]) -> _Texts:
    distinct: dict[str, int] = {}
    codes: list[int] = []
    for value in values:
        if value is None:
            codes.append(MISSING)
            continue
        storable = value.encode("utf-8", "replace").decode()  # a lone surrogate can't be stored
        codes.append(distinct.setdefault(storable, len(distinct)))
    return _Texts(np.array(codes, dtype=np.int64), list(distinct))


def _names(codes: IntArray, kind: type[IntEnum]) -> _Texts:
    return _Texts(codes, [member.name.lower() for member in kind], named=True)


def _codes(names: Column, kind: type[IntEnum]) -> IntArray:
    table = {member.name.lower(): int(member) for member in kind}
    return np.array([table[name] for name in names], dtype=np.int64)


def _optional_texts(values: Column) -> tuple[str | None, ...]:
    masked = np.ma.asarray(values)
    mask = np.ma.getmaskarray(masked)
    return tuple(None if gone else str(text) for text, gone in zip(masked.data, mask, strict=True))
