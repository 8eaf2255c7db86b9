"""What other tools measured, as a table and as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import codec
from bench.imported import ImportedResult
from bench.reports.rows import MISSING_TEXT
from bench.reports.text import number_text
from bench.timing.columns import main_field

HEADER = ("imported", "tool", "model", "device", "load", "in/out", "output_tok/s", "ttft_p50_ms", "tpot_p50_ms", "file")
_SHOWN = ("output_tok_per_s", "ttft_ms", "tpot_ms")
CAUTION = "numbers as their tools define them, not as bench does: docs/exchange.md says how each differs"


def imported_rows(found: Sequence[ImportedResult]) -> list[tuple[str, ...]]:
    """A line for each, under `HEADER`."""
    return [
        (
            one.import_id,
            one.tool,
            one.model or MISSING_TEXT,
            one.device or MISSING_TEXT,
            load_text(one),
            f"{_number(one.input_tokens)}/{_number(one.output_tokens)}",
            *(_metric(one, name) for name in _SHOWN),
            one.file,
        )
        for one in found
    ]


def imported_notes(found: Sequence[ImportedResult]) -> list[str]:
    """What must be said below the table: how far its numbers go, and each result that contradicts itself."""
    return [CAUTION, *(f"{one.import_id}: {note}" for one in found for note in one.notes if note.startswith("impossible"))]


def load_text(one: ImportedResult) -> str:
    """`batch 8`, `5/s`, else the tool's own word."""
    if one.request_rate is not None:
        return f"{one.request_rate:g}/s"
    return one.load or MISSING_TEXT if one.batch_size is None else f"batch {one.batch_size:g}"


def imported_json(found: Sequence[ImportedResult]) -> dict[str, Any]:
    """`imported[]`: whole records."""
    return {"imported": codec.to_builtins(list(found))}


def _number(value: float | None) -> str:
    return MISSING_TEXT if value is None else f"{value:.0f}"


def _metric(one: ImportedResult, name: str) -> str:
    value = next((getattr(metric, main_field(name)) for metric in one.metrics if metric.name == name), None)
    return MISSING_TEXT if value is None else number_text(value)
