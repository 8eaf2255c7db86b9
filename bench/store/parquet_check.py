"""Whether a Parquet file is one that a query over all shards can be given: read, not believed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench.store import parquet
from bench.store.layout import CHUNKS, REQUESTS, TELEMETRY
from bench.store.validation import BadShard
from bench.units import format_bytes

if TYPE_CHECKING:
    import duckdb

FILES: Mapping[str, Mapping[str, str]] = {
    REQUESTS: parquet.REQUEST_COLUMNS,
    CHUNKS: parquet.CHUNK_COLUMNS,
    TELEMETRY: parquet.TELEMETRY_COLUMNS,
}
"""The Parquet files of a shard with the columns and types of each. A file of an earlier bench lacks the newest ones."""
MOST_ROWS = 200_000_000
"""A day of a thousand streams has a tenth of it."""
_ROWS_PER_B = 64
_UNPACKED_PER_B = 1000
_SMALL_ROWS = 100_000
_SMALL_B = 64 << 20
_OURS = ("date", "filename", "file_row_number")
"""Columns that a query adds; a file that has one of its own would break it."""
_COUNTS = {
    REQUESTS: tuple(name for name in parquet.REQUEST_COLUMNS if name.endswith("_tokens")),
    CHUNKS: ("tokens", "text_b"),
    TELEMETRY: ("energy_j", "memory_used_b", "engine_memory_b", "utilisation", "clock_mhz", "foreign_processes"),
}
"""Columns in which nothing is below 0: what is missing is NULL. Watts are kept as a sensor told them; impossible ones are
refused where they are used, and counted.
"""


def check_parquet(path: Path, trial_id: str) -> None:
    """Refuse a file that is no Parquet, has other types, claims more than it can hold, rows of another trial or
    amounts that are none.

    Raises: BadShard, OSError.
    """
    import duckdb

    size_b = path.stat().st_size
    try:
        with duckdb.connect(config={"temp_directory": "", "threads": 1, "memory_limit": "1GB"}) as con:
            _check_size(con, path, size_b)
            _check_columns(con, path)
            _check_trial(con, path, trial_id)
            _check_counts(con, path)
    except duckdb.Error as error:
        raise BadShard(f"{path.name} can't be read: {str(error).splitlines()[0][:200]}") from error


def _check_size(con: duckdb.DuckDBPyConnection, path: Path, size_b: int) -> None:
    """Of the footer alone. Raises: BadShard, duckdb.Error."""
    query = (
        "SELECT (SELECT num_rows FROM parquet_file_metadata($1)), coalesce(sum(total_uncompressed_size), 0), "
        "coalesce(sum(row_group_num_rows) FILTER (column_id = 0), 0) FROM parquet_metadata($1)"
    )
    row = con.execute(query, [str(path.absolute())]).fetchone()
    rows, unpacked_b, grouped = row or (0, 0, 0)
    if not 0 <= rows <= MOST_ROWS or (rows > _SMALL_ROWS and rows > _ROWS_PER_B * size_b):
        raise BadShard(f"{path.name} claims {rows} rows in {format_bytes(size_b)}")
    if grouped != rows:
        raise BadShard(f"{path.name} claims {rows} rows, and {grouped} in its row groups")
    if unpacked_b > _SMALL_B and unpacked_b > _UNPACKED_PER_B * size_b:
        raise BadShard(f"{path.name} unpacks {format_bytes(size_b)} to {format_bytes(unpacked_b)}")


def _check_columns(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    source = con.read_parquet(str(path.absolute()), hive_partitioning=False)
    found = {name: str(kind) for name, kind in zip(source.columns, source.types, strict=True)}
    for name, kind in FILES[path.name].items():
        if name in found and found[name] != kind:
            raise BadShard(f"{path.name} has {name} as {found[name][:40]}, not {kind}")
    odd = next((name for name in found if name.lower() in _OURS), None)
    if odd is not None or "trial_id" not in found:
        raise BadShard(f"{path.name} has " + ("no column trial_id" if odd is None else f"a column {odd}"))


def _check_trial(con: duckdb.DuckDBPyConnection, path: Path, trial_id: str) -> None:
    query = "SELECT 1 FROM read_parquet($1, hive_partitioning = false) WHERE trial_id IS DISTINCT FROM $2 LIMIT 1"
    if con.execute(query, [str(path.absolute()), trial_id]).fetchone() is not None:
        raise BadShard(f"{path.name} has rows of another trial")


def _check_counts(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    source = con.read_parquet(str(path.absolute()), hive_partitioning=False)
    there = [name for name in _COUNTS[path.name] if name in source.columns]
    if not there:
        return
    ends = ", ".join(f"min({name}), max({name})" for name in there)
    query = f"SELECT {ends} FROM read_parquet($1, hive_partitioning = false)"  # noqa: S608 - names of our own
    found = con.execute(query, [str(path.absolute())]).fetchone() or ()
    for name, *both in zip(there, found[::2], found[1::2], strict=True):
        wrong = next((end for end in both if end is not None and not 0 <= end < math.inf), None)
        if wrong is not None:
            raise BadShard(f"{path.name} has {name} of {wrong:g}, which is no amount")
