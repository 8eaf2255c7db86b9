"""Small data files, written where a test wants them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def jsonl(path: Path, rows: Iterable[Any]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return str(path)


def parquet(path: Path, columns: str) -> str:
    import duckdb

    with duckdb.connect() as lab:
        lab.execute(f"copy (select {columns} from range(20) t(i) order by i) to '{path}' (format parquet)")
    return str(path)


def conversation(question: str, answer: str, **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}], **more}


def sharegpt(path: Path, entries: Sequence[Any], *, indent: int | None = None) -> str:
    path.write_text(json.dumps(entries, ensure_ascii=False, indent=indent), encoding="utf-8")
    return str(path)


def mooncake(path: Path, rows: Iterable[tuple[float, int, int, list[int]]]) -> str:
    return jsonl(path, ({"timestamp": t, "input_length": i, "output_length": o, "hash_ids": h} for t, i, o, h in rows))


def azure(path: Path, rows: Iterable[tuple[str, int, int]]) -> str:
    header = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    if path.suffix == ".csv":
        return table(path, header, rows)
    return jsonl(path, (dict(zip(header, row, strict=True)) for row in rows))


def said(record: Mapping[str, Any]) -> str:
    """The prompt of a request's JSON."""
    content = record["messages"][0]["content"]
    assert isinstance(content, str)
    return content
