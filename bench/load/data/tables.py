"""Rows out of columns: JSON Lines, CSV, and Parquet through duckdb."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from bench.errors import UsageError
from bench.load.data.rows import LONGEST_LINE_B, Here, Row, count_of, field_of, open_file, prompt_of, refuse_column, text_tokens
from bench.load.data.rows import objects as json_objects
from bench.records import DataSpec

PROMPT_COLUMN = "prompt"
_AT_ONCE = 512


def jsonl_rows(path: str, data: DataSpec) -> Iterator[Row]:
    """One object a line. Raises: UsageError with the line."""
    for here, record in json_objects(path):
        yield _row(here, record, data)


def csv_rows(path: str, data: DataSpec) -> Iterator[Row]:
    """A file with a header line. Raises: UsageError with the line."""
    for here, record in csv_records(path):
        yield _row(here, record, data)


def csv_records(path: str) -> Iterator[tuple[Here, dict[str, Any]]]:
    """Every record of a CSV file by column name. Raises: UsageError with the line."""
    csv.field_size_limit(LONGEST_LINE_B)
    with open_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True)
        while True:
            try:
                record = next(reader, None)
            except UnicodeDecodeError:
                Here(path=path, line=reader.line_num + 1).refuse("is not UTF-8 here or soon after: save the file as UTF-8")
            except csv.Error as error:
                Here(path=path, line=max(1, reader.line_num)).refuse(f"is not CSV: {error}")
            if record is None:
                return
            here = Here(path=path, line=reader.line_num)
            if None in record or None in record.values():
                here.refuse(f"has another number of fields than the header ({len(reader.fieldnames or ())})")
            yield here, record


def parquet_rows(path: str, data: DataSpec) -> Iterator[Row]:
    """The wanted columns of a Parquet file, a few hundred rows at a time. Raises: UsageError."""
    import duckdb

    open_file(path).close()
    whole = Here(path=path)
    wanted = [data.prompt_column or PROMPT_COLUMN, *([data.output_tokens_column] if data.output_tokens_column else [])]
    try:
        with duckdb.connect(config={"threads": 1}) as lab:
            known = [str(line[0]) for line in lab.execute("describe select * from read_parquet($1)", [path]).fetchall()]
            for name in wanted:
                if name not in known:
                    refuse_column(whole, name, known)
            columns = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
            found = lab.execute(f"select {columns} from read_parquet($1)", [path])  # noqa: S608  names are those of the file
            number = 0
            while batch := found.fetchmany(_AT_ONCE):
                for values in batch:
                    number += 1
                    yield _row(Here(path=path, entry=number), dict(zip(wanted, values, strict=True)), data)
    except duckdb.Error as error:
        raise UsageError(f"{path}: can't be read as Parquet: {str(error).splitlines()[0]}") from error


def _row(here: Here, record: dict[str, Any], data: DataSpec) -> Row:
    column = data.prompt_column or PROMPT_COLUMN
    text = prompt_of(here, column, field_of(here, record, column))
    counted = data.output_tokens_column
    output = None if counted is None else count_of(here, counted, field_of(here, record, counted))
    return Row(text=text, input_tokens=text_tokens(text), output_tokens=output)
