"""Numbers and names as people read them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bench.reports.numbers import Number
from bench.reports.rows import MISSING_TEXT, Row
from bench.units import BYTES_PER_GIB

INVALID_MARK = "!"
MIXED_MARK = "(!)"
"""Behind the status of a row only some of whose repeats are valid."""
WIDE_MARK = "[wide]"
WIDE_SHARE = "±?"
WIDE_FACTOR = 10.0
"""An interval whose ends are further apart than this says only that there is none worth showing."""


def number_text(value: float) -> str:
    """Four significant digits and no exponent: `0.2503`, `12.50`, `401.2`, `12345`."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -6:
        return f"{value:.3e}"
    return f"{value:.{max(0, 3 - magnitude)}f}"


def is_bytes(metric: str) -> bool:
    """Whether tables show a metric in GiB; everything else they show in its own unit."""
    return metric.endswith("_b")


def in_table_unit(metric: str, value: float) -> str:
    """A number of `metric` in the unit that tables show."""
    return number_text(value / BYTES_PER_GIB if is_bytes(metric) else value)


def cell(row: Row, key: str) -> str:
    """`401.2 [398.1, 404.3]`, `-` where it is missing; `!` behind what must not be trusted, `(p90)` behind a stand-in."""
    number = shown(row, key)
    if number.value is None:
        return MISSING_TEXT
    below = interval_text(number)
    return value_text(row, key) + (f" {below}" if below else "")


def shown(row: Row, key: str) -> Number:
    """The number of a row, or what stands in for it."""
    return row.stand_ins.get(key, row.numbers[key])


def value_text(row: Row, key: str) -> str:
    """A number without its interval: `401.2`, `401.2!`, `412.0 (p90)`."""
    number = shown(row, key)
    if number.value is None:
        return MISSING_TEXT
    mark = "" if number.valid else INVALID_MARK
    return in_table_unit(number.metric, number.value) + mark + (f" ({number.field})" if key in row.stand_ins else "")


def interval_text(number: Number) -> str:
    """`[398.1, 404.3]`, empty where there is none. None of these numbers can be negative, so no end is shown below 0."""
    if number.low is None and number.high is None:
        return ""
    if is_wide(number):
        return WIDE_MARK
    ends = [MISSING_TEXT if end is None else in_table_unit(number.metric, max(end, 0.0)) for end in (number.low, number.high)]
    return f"[{', '.join(ends)}]"


def spread_text(number: Number) -> str:
    """The farther end of the interval as a share of the value: `±1.3%`; empty where there is none."""
    if not number.value or number.low is None or number.high is None:
        return ""
    if is_wide(number):
        return WIDE_SHARE
    share = max(number.high - number.value, number.value - number.low) / abs(number.value)
    return f"±{100 * share:.1f}%"


def is_wide(number: Number) -> bool:
    """Whether the ends of the interval are further apart than `WIDE_FACTOR`; so is one that reaches to 0 or below."""
    if number.low is None or number.high is None:
        return False
    return number.high > WIDE_FACTOR * max(number.low, 0.0)


def status_text(row: Row) -> str:
    """`valid x3`; marked where some repeats are valid and some are not."""
    return f"{row.status} {MIXED_MARK}" if is_mixed(row) else row.status


def is_mixed(row: Row) -> bool:
    """Whether some of its repeats are valid, and others not."""
    return 0 < row.valid < len(row.trials)


def csv_line(fields: Iterable[object]) -> str:
    """One CSV record with its `\\n`. The library's writer leaves a lone carriage return unquoted, which splits the record."""
    return ",".join(_csv_field("" if field is None else str(field)) for field in fields) + "\n"


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text
