"""Rows out of traces: when requests came to a real service and how long they were. There is no text in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bench.load.data.rows import Here, Row, count_of, field_of, objects
from bench.load.data.tables import csv_records

BLOCK_TOKENS = 512
"""Tokens that each entry of `hash_ids` stands for. Source: the Mooncake trace's own description."""
MOONCAKE_FIELDS = frozenset({"timestamp", "input_length", "output_length"})
AZURE_FIELDS = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})


def mooncake_rows(path: str) -> Iterator[Row]:
    """`timestamp` [ms], `input_length`, `output_length`, and `hash_ids`: prompts begin alike as far as these are equal.

    Raises: UsageError with the line.
    """
    for here, record in objects(path):
        hashes = record.get("hash_ids", [])
        if not isinstance(hashes, list) or not all(isinstance(h, int) and not isinstance(h, bool) and h >= 0 for h in hashes):
            here.refuse("hash_ids must be a list of whole numbers")
        yield Row(
            text=None,
            input_tokens=count_of(here, "input_length", field_of(here, record, "input_length"), least=0),
            output_tokens=count_of(here, "output_length", field_of(here, record, "output_length"), least=0),
            stamp_s=_milliseconds(here, field_of(here, record, "timestamp")),
            blocks=tuple(hashes),
        )


def azure_rows(path: str) -> Iterator[Row]:
    """`TIMESTAMP` (a date and time, or seconds), `ContextTokens`, `GeneratedTokens`, as CSV or JSON Lines.

    Raises: UsageError with the line.
    """
    records = csv_records(path) if path.lower().endswith(".csv") else objects(path)
    for here, record in records:
        yield Row(
            text=None,
            input_tokens=count_of(here, "ContextTokens", field_of(here, record, "ContextTokens"), least=0),
            output_tokens=count_of(here, "GeneratedTokens", field_of(here, record, "GeneratedTokens"), least=0),
            stamp_s=_moment_s(here, field_of(here, record, "TIMESTAMP")),
        )


def _milliseconds(here: Here, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        here.refuse(f"timestamp must be milliseconds, got {value!r}")
    return value / 1000.0


def _moment_s(here: Here, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        moment = datetime.fromisoformat(value.strip())
    except (ValueError, AttributeError):
        here.refuse(f"TIMESTAMP must be a date and time, or seconds; got {value!r}")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
