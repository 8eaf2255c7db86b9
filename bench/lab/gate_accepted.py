"""Changes that are meant to be: one JSON object a line, kept beside the results so that a rebuild of the database keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from bench import codec
from bench.errors import StoreError, UsageError

FILE = "accepted.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """From `night` on a series is measured against itself alone. `metric` None: all of them."""

    series: str
    metric: str | None
    night: str
    reason: str

    def about(self, series_id: str, metric: str) -> bool:
        """Whether it is about that metric of that series."""
        return series_id == self.series and self.metric in (None, metric)


def read_accepted(results: Path) -> list[Accepted]:
    """Every accepted change; none where there is no file. Raises: StoreError that names the line."""
    path = results / FILE
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(codec.decode(line, Accepted))
            except ValueError as error:
                raise StoreError(f"{path}:{number}: no accepted change: {error}", hint="mend or delete that line") from error
    return found


def add_accepted(results: Path, change: Accepted) -> None:
    """Write one more at the end of the file. Raises: UsageError (a night that is no date), StoreError."""
    try:
        date.fromisoformat(change.night)
    except ValueError as error:
        raise UsageError(f"{change.night!r} is no date", hint="YYYY-MM-DD") from error
    path = results / FILE
    try:
        with path.open("ab") as file:
            file.write(codec.encode(change) + b"\n")
    except OSError as error:
        raise StoreError(f"{path} can't be written: {error.strerror}") from error
