"""DuckDB files: opened read-only, or copied, changed and closed. DuckDB itself is imported on use."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import codec
from bench.errors import StoreError
from bench.store import schema

if TYPE_CHECKING:
    import duckdb

STORAGE = "v1.4.0"
"""DuckDB's storage format: files of this one open in DuckDB 1.4 and later."""


def memory() -> duckdb.DuckDBPyConnection:
    """An empty database in memory that fetches nothing from the network and spills nothing into the current folder."""
    import duckdb

    return duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "temp_directory": "",
            "pandas_analyze_sample": "0",  # arrays of objects are text, whatever the first ones look like
        }
    )


def attach(con: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool) -> None:
    """Attach a file as `lab`. Raises: StoreError (reading), duckdb.Error (writing)."""
    import duckdb

    quoted = str(path.absolute()).replace("'", "''")  # relative, `~` or `s3:` would mean something
    option = "READ_ONLY" if read_only else f"STORAGE_VERSION '{STORAGE}'"
    try:
        con.execute(f"ATTACH '{quoted}' AS lab ({option})")
    except duckdb.Error as error:
        if not read_only:
            raise
        raise StoreError(
            f"can't open {path}: {str(error).splitlines()[0]}", hint="run: bench ingest (it rebuilds the database)"
        ) from error


def temp_table(con: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: Sequence[Any]) -> None:
    """A table for one connection; `rows` are records that have at least these columns. Raises: duckdb.Error."""
    form = ", ".join(f'"{column}": "{kind}"' for column, kind in columns.items())
    source = f"SELECT unnest(from_json_strict(CAST($1 AS JSON), '[{{{form}}}]')) AS r"
    con.execute(f"CREATE TEMP TABLE {name} AS SELECT r.* FROM ({source})", [codec.encode(rows).decode()])  # noqa: S608 - our names


def open_copy(base: Path | None, copy: Path) -> duckdb.DuckDBPyConnection:
    """A connection with `copy`, made from `base` or empty with all tables, attached as `lab`. Raises: OSError, duckdb.Error."""
    if base is not None:
        shutil.copyfile(base, copy)
    elif schema.SCHEMA_TAG in _empty:
        copy.write_bytes(_empty[schema.SCHEMA_TAG])
    else:
        _empty[schema.SCHEMA_TAG] = _made_empty(copy)
    con = memory()
    try:
        attach(con, copy, read_only=False)
    except BaseException:
        con.close()
        raise
    return con


_empty: dict[str, bytes] = {}
"""The file of an empty database, once this process has made one: DuckDB takes 0.1 s of CPU to bind the views, a copy none."""


def _made_empty(file: Path) -> bytes:
    with memory() as con:
        attach(con, file, read_only=False)
        for statement in schema.ddl("lab"):
            con.execute(statement)
        con.execute("INSERT INTO lab.meta VALUES ($1)", [schema.SCHEMA_TAG])
        close_copy(con)
    return file.read_bytes()


def close_copy(con: duckdb.DuckDBPyConnection) -> None:
    """Fold everything into the one file, and let go of it."""
    con.execute("CHECKPOINT lab")
    con.execute("DETACH lab")
    con.close()


def remove(copy: Path) -> None:
    """Remove a copy and its log, where they are."""
    for path in (copy, copy.with_name(copy.name + ".wal")):
        path.unlink(missing_ok=True)
