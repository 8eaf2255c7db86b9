"""The table of `gpustack benchmark`: hardware combination | QPS | memory utilisation | J per token, and our columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.reports.footer import footer
from bench.reports.notes import PLAIN
from bench.reports.numbers import Number, NumberColumn, pooled_number
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.table import aligned, table_json, text_cells
from bench.reports.text import INVALID_MARK

HEADER = ("hardware combination", "QPS", "memory utilisation", "J per token")
_OURS = ("devices", "qps", None, "j_per_output_tok")
"""Our column of each of those; the table of all runs has none of memory utilisation."""
_MEMORY = NumberColumn(
    key="memory_util", title="Memory", plain="memory", metric="memory_reserved_util", field="value", group="memory"
)


def hardware_table(table: Sequence[Row]) -> str:
    """Rows with their columns apart by `|`, then the notes."""
    names, lines = text_cells(table)
    first = [None if name is None else names.index(name) for name in _OURS]
    rest = [index for index in range(len(names)) if index not in first]
    told = [
        [*(_utilisation(row) if index is None else line[index] for index in first), *(line[index] for index in rest)]
        for row, line in zip(table, lines, strict=True)
    ]
    grid = [[*HEADER, *(names[index] for index in rest)], *told]
    return "\n".join([*aligned(grid, " | "), *footer(table, PLAIN).lines])


def hardware_json(table: Sequence[Row]) -> list[dict[str, Any]]:
    """The four as numbers, each with what the table of all runs says of the row. A share, not per cent; None where missing."""
    return [
        {
            "hardware_combination": told["devices"],
            "qps": told["numbers"]["qps"]["value"],
            "memory_utilisation": _memory(row).value,
            "j_per_token": told["numbers"]["energy"]["value"],
            "row": told,
        }
        for row, told in zip(table, table_json(table)["rows"], strict=True)
    ]


def _memory(row: Row) -> Number:
    return pooled_number(_MEMORY, row.trials)


def _utilisation(row: Row) -> str:
    number = _memory(row)
    if number.value is None:
        return MISSING_TEXT
    return f"{number.value:.1%}" + ("" if number.valid else INVALID_MARK)
