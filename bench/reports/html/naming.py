"""What rows are called where there is little room: only what tells them apart, in one wording in every chart. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.reports.html.plot import Style, style_at
from bench.reports.rows import MISSING_TEXT, Row

SEPARATOR = " · "


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """`common`: what all rows share; `rows`: what each is beyond that; `settings`: engine, precision and devices of each, and how
    its marks look.
    """

    common: str
    rows: tuple[str, ...]
    settings: tuple[str, ...]
    styles: Mapping[str, Style]

    def style(self, at: int) -> Style:
        """Of the marks of a row."""
        return self.styles[self.settings[at]]


def names(table: Sequence[Row], cases: Sequence[str]) -> Names:
    """Names for the rows of one report; `cases`: their `differences`."""
    parts = [_parts(row, case) for row, case in zip(table, cases, strict=True)]
    first = parts[0] if parts else {}
    kept = [key for key in first if key in _ALWAYS or len({part[key] for part in parts}) > 1]
    settings = tuple(_joined(part[key] for key in kept if key in _SETTING) for part in parts)
    return Names(
        common=_joined(value for key, value in first.items() if key not in kept),
        rows=_told_apart([_joined(part[key] for key in kept) for part in parts], [row.first.key.run_id for row in table]),
        settings=settings,
        styles={name: style_at(at) for at, name in enumerate(dict.fromkeys(settings))},
    )


def _told_apart(rows: Sequence[str], runs: Sequence[str]) -> tuple[str, ...]:
    """The names, with the run behind those that another row has too."""
    times = Counter(rows)
    return tuple(_joined((row, run)) if times[row] > 1 else row for row, run in zip(rows, runs, strict=True))


_ALWAYS = ("engine", "load")
_SETTING = ("engine", "precision", "devices", "role")


def _parts(row: Row, case: str) -> dict[str, str]:
    key = row.first.key
    return {
        "engine": row.case.engine,
        "precision": row.precision,
        "devices": row.devices,
        "role": "" if key.role == "measure" else key.role,
        "model": row.case.model,
        "load": row.load,
        "lengths": row.lengths,
        "case": case,
    }


def _joined(parts: Iterable[str]) -> str:
    return SEPARATOR.join(part for part in parts if part not in ("", MISSING_TEXT))
