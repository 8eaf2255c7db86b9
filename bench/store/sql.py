"""SQL over the results: tables from the database, raw events straight from the Parquet files of the shards."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import UsageError
from bench.store import layout, parquet
from bench.store.costs import COST_VIEWS, cost_views
from bench.store.findings import FINDING_TABLES, finding_tables
from bench.store.imported import IMPORT_TABLES, import_tables
from bench.store.lab import Lab
from bench.store.sql_hints import TABLES_HINT, hint_for

if TYPE_CHECKING:
    import duckdb

RAW_VIEWS = {
    "requests": (layout.REQUESTS, parquet.REQUEST_COLUMNS),
    "chunks": (layout.CHUNKS, parquet.CHUNK_COLUMNS),
    "telemetry": (layout.TELEMETRY, parquet.TELEMETRY_COLUMNS),
}
_MADE_WHEN_NAMED = (*RAW_VIEWS, *COST_VIEWS, *IMPORT_TABLES, *FINDING_TABLES)
_EXPLAIN = re.compile(r"\s*explain(\s+analyze|\s*\([^)]*\))?\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Column names and rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Each row by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def ask(lab: Lab, query: str) -> Answer:
    """The answer to one or more statements (that of the last). Only reading is possible: the database is attached
    read-only, statements that change anything are refused, and no file outside the shards can be reached.

    Raises: UsageError (bad SQL, or SQL that writes), StoreError.
    """
    import duckdb

    try:
        statements = _statements(query)
        _refuse_writes(statements)
        with lab.connect() as con:
            _views(con, lab, query)
            try:
                return _run(con, statements)
            except duckdb.Error as error:
                raise UsageError(_told(error), hint=hint_for(con, query, str(error), _MADE_WHEN_NAMED)) from error
    except duckdb.Error as error:
        raise UsageError(_told(error), hint=TABLES_HINT) from error


def change(lab: Lab, query: str) -> Answer:
    """Run statements that may write, on a copy that then replaces the database. A rebuild from shards drops such changes.

    Raises: UsageError (bad SQL), StoreError.
    """
    import duckdb

    try:
        statements = _statements(query)
        with lab.changing() as con:
            _views(con, lab, query)
            return _run(con, statements)
    except duckdb.Error as error:
        raise UsageError(_told(error)) from error


def _run(con: duckdb.DuckDBPyConnection, statements: list[duckdb.Statement]) -> Answer:
    if not statements:
        raise UsageError("the query is empty", hint="try: bench sql 'SELECT * FROM trials_wide'")
    for statement in statements:
        con.execute(statement)
    described = con.description or []
    return Answer(columns=tuple(column[0] for column in described), rows=con.fetchall() if described else [])


def _statements(query: str) -> list[duckdb.Statement]:
    """Raises: UsageError (a text that is none), duckdb.Error."""
    import duckdb

    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the query is not UTF-8", hint="save or type it as UTF-8") from error
    return duckdb.extract_statements(query)


def _refuse_writes(statements: list[duckdb.Statement]) -> None:
    import duckdb

    reading = {duckdb.StatementType.SELECT, duckdb.StatementType.PRAGMA, duckdb.StatementType.CALL, duckdb.StatementType.MULTI}
    for statement in statements:
        if statement.type == duckdb.StatementType.EXPLAIN:
            # EXPLAIN ANALYZE runs what it explains
            _refuse_writes(duckdb.extract_statements(_EXPLAIN.sub("", statement.query, count=1)))
        elif statement.type not in reading and statement.query:  # DuckDB 1.x makes a PIVOT of several, with no text of their own
            raise UsageError(
                f"{statement.type.name} is not a query, and results are read-only", hint="add --write to change the database"
            )


def _views(con: duckdb.DuckDBPyConnection, lab: Lab, query: str) -> None:
    """What is made for one connection, and only where the query names it."""
    _raw_views(con, lab, _named(RAW_VIEWS, query))
    if _named(COST_VIEWS, query):
        cost_views(con, lab.results)
    if _named(IMPORT_TABLES, query):
        import_tables(con, lab.results)
    if _named(FINDING_TABLES, query):
        finding_tables(con, lab.results)


def _named(views: Iterable[str], query: str) -> list[str]:
    return [name for name in views if re.search(rf"\b{name}\b|show", query, re.IGNORECASE)]


def _raw_views(con: duckdb.DuckDBPyConnection, lab: Lab, named: list[str]) -> None:
    """Views over the Parquet files of accepted shards, for those that are named: binding opens every file."""
    if not named:
        return
    shards = [row[0] for row in con.execute("SELECT shard FROM lab.shards ORDER BY shard").fetchall()]
    for name in named:
        file, columns = RAW_VIEWS[name]
        paths = [path for shard in shards if (path := lab.results.absolute() / shard / file).is_file()]
        con.execute(f"CREATE TEMP VIEW {name} AS {_source([str(p) for p in paths], columns)}")


def _source(paths: list[str], columns: dict[str, str]) -> str:
    if not paths:
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns.items())
        return f"SELECT {nothing} WHERE false"
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return (
        f"SELECT {', '.join(columns)}, date, filename FROM "  # noqa: S608 - names of our own
        f"read_parquet([{listed}], hive_partitioning = true, union_by_name = true, filename = true)"
    )


def _told(error: duckdb.Error) -> str:
    """DuckDB's message without its trailing blank lines."""
    return "\n".join(line for line in str(error).splitlines() if line.strip())
