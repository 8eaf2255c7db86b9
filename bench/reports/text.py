"""Numbers and names as people read them. Pure."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable

from bench.reports.rows import MISSING_TEXT, Number
from bench.units import BYTES_PER_GIB

INVALID_MARK = "!"


def number_text(value: float) -> str:
    """Four significant digits and no exponent: `0.2503`, `12.50`, `401.2`, `12345`."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -6:
        return f"{value:.3e}"
    return f"{value:.{max(0, 3 - magnitude)}f}"


def in_table_unit(number: Number, value: float) -> str:
    """A number of a row in the unit that the table shows: memory in GiB, everything else as it is."""
    return number_text(value / BYTES_PER_GIB if number.metric.endswith("_b") else value)


def cell(number: Number) -> str:
    """`401.2 [398.1, 404.3]`, `-` where it is missing; `!` behind what must not be trusted."""
    if number.value is None:
        return MISSING_TEXT
    text = in_table_unit(number, number.value) + ("" if number.valid else INVALID_MARK)
    if number.low is None and number.high is None:
        return text
    ends = [MISSING_TEXT if end is None else in_table_unit(number, end) for end in (number.low, number.high)]
    return f"{text} [{', '.join(ends)}]"


def spread_text(number: Number) -> str:
    """The farther end of the interval as a share of the value: `±1.3%`; empty where there is none."""
    if not number.value or number.low is None or number.high is None:
        return ""
    share = max(number.high - number.value, number.value - number.low) / abs(number.value)
    return f"±{100 * share:.1f}%" if share < 9.995 else ">±999%"


def printable(text: str) -> str:
    """One line that can't move the cursor or change colours: control characters are written out."""
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text)


def csv_line(fields: Iterable[object]) -> str:
    """One CSV record with its `\\n`. The library's writer leaves a lone carriage return unquoted, which splits the record."""
    return ",".join(_csv_field("" if field is None else str(field)) for field in fields) + "\n"


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text
