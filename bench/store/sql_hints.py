"""What to type next where a query names a column or a table that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

TABLES_HINT = "tables: bench sql 'SHOW TABLES'"
WIDEST = "trials_wide"
"""Where people look for a column first."""
_COLUMN = re.compile(r'column (?:named )?"([^"]+)"', re.IGNORECASE)
_TABLE = re.compile(r"(?:Table|View) with name (\S+) does not exist")
_SHOWN = 4


def hint_for(con: duckdb.DuckDBPyConnection, query: str, error: str, more_tables: Iterable[str]) -> str:
    """The next step after DuckDB's `error`: names near the wrong one, and how to list all. Whatever else is wrong: the tables.
    `more_tables` are made for queries that name them.
    """
    columns = _columns(con)
    wrong = _TABLE.search(error)
    if wrong:
        near = _near(wrong[1].rpartition(".")[2], [*columns, *more_tables])
        return f"did you mean {_listed(near)}? {TABLES_HINT}" if near else TABLES_HINT
    wrong = _COLUMN.search(error)
    if not wrong:
        return TABLES_HINT
    asked = [table for table in columns if re.search(rf"\b{table}\b", query, re.IGNORECASE)] or [WIDEST]
    return _column_hint(wrong[1].rpartition(".")[2], asked, columns)


def _column_hint(name: str, asked: list[str], columns: dict[str, list[str]]) -> str:
    """Near names in the tables that are asked, or else in the one with most columns."""
    for tables in (asked, [WIDEST]):
        near = {table: found for table in tables if (found := _near(name, columns[table]))}
        if near:
            told = "; ".join(f"{table} has {_listed(found)}" for table, found in near.items())
            return f"{told}; all columns: bench sql 'DESCRIBE {next(iter(near))}'"
    return f"columns: bench sql 'DESCRIBE {asked[0]}'"


def _columns(con: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """The columns of every table and view that the query could have asked."""
    found: dict[str, list[str]] = {}
    for table, column in con.execute("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").fetchall():
        found.setdefault(table, []).append(column)
    return found


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Names that are spelled alike, then those of which it is a part: `ttft` is of `ttft_p50_ms`."""
    names = list(known)
    begun = [one for one in names if name and name.lower() in one.lower()]
    return list(dict.fromkeys([*get_close_matches(name.lower(), names, n=_SHOWN, cutoff=0.7), *begun]))[:_SHOWN]


def _listed(names: list[str]) -> str:
    return ", ".join(names)
