"""Which format a file has, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from pathlib import Path

from bench.errors import UsageError
from bench.load.data.rows import Here, Row, json_object, lines, open_file
from bench.load.data.sharegpt import begins_with, sharegpt_rows
from bench.load.data.tables import csv_rows, jsonl_rows, parquet_rows
from bench.load.data.traces import AZURE_FIELDS, MOONCAKE_FIELDS, azure_rows, mooncake_rows
from bench.records import DataSpec

TRACES = ("mooncake", "azure")
"""Formats that say when requests came."""
_READERS: dict[str, Callable[[str, DataSpec], Iterator[Row]]] = {
    "sharegpt": lambda path, data: sharegpt_rows(path),
    "jsonl": jsonl_rows,
    "csv": csv_rows,
    "parquet": parquet_rows,
    "mooncake": lambda path, data: mooncake_rows(path),
    "azure": lambda path, data: azure_rows(path),
}


def read_rows(kind: str, path: str, data: DataSpec) -> Iterator[Row]:
    """Every row of a file, one at a time, as far as the limits of `data` let it through. Raises: UsageError with the line."""
    reader = _READERS.get(kind)
    if reader is None:
        raise UsageError(f"dataset {kind!r} is not known to the load generator", hint=f"known: synthetic, {', '.join(_READERS)}")
    return (row for row in reader(path, data) if _within(row, data))


def format_of(path: str) -> str:
    """The format of a file by its ending and its first line. Raises: UsageError where neither tells."""
    ending = Path(path).suffix.lower()
    if ending == ".parquet":
        return "parquet"
    open_file(path).close()
    if ending == ".csv":
        return "azure" if _columns(path) >= AZURE_FIELDS else "csv"
    if ending == ".json" and begins_with(path, b"["):
        return "sharegpt"
    if ending in (".json", ".jsonl", ".ndjson"):
        return _kind_of_object(path)
    raise UsageError(
        f"{path}: the ending {ending!r} doesn't say what kind of data it is",
        hint=f"write dataset: {{type: ..., path: ...}}, one of {', '.join(_READERS)}",
    )


def _columns(path: str) -> Set[str]:
    first = next(lines(path), None)
    return frozenset() if first is None else {name.strip().strip('"') for name in first[1].decode("utf-8", "replace").split(",")}


def _kind_of_object(path: str) -> str:
    first = next(lines(path), None)
    if first is None:
        Here(path=path).refuse("is empty")
    keys = json_object(*first).keys()
    if keys >= MOONCAKE_FIELDS:
        return "mooncake"
    if keys >= AZURE_FIELDS:
        return "azure"
    return "sharegpt" if "conversations" in keys else "jsonl"


def _within(row: Row, data: DataSpec) -> bool:
    return (
        (data.min_input_tokens or 0) <= row.input_tokens <= (data.max_input_tokens or row.input_tokens)
        and (row.output_tokens is None or (data.min_output_tokens or 0) <= row.output_tokens)
        and (row.output_tokens is None or row.output_tokens <= (data.max_output_tokens or row.output_tokens))
    )
