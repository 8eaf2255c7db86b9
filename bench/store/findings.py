"""What `bench gate` told of, and the changes that are meant to be: one JSON object a line, appended to files beside the shards so
that a rebuild of the database keeps them, and the tables in which SQL finds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from bench import clock, codec
from bench.errors import StoreError
from bench.store import layout
from bench.store.database import temp_table
from bench.store.dates import check_day, check_moment
from bench.store.locks import exclusive

if TYPE_CHECKING:
    import duckdb

FINDINGS_FILE = "findings.jsonl"
ACCEPTED_FILE = "accepted.jsonl"
FINDING_TABLES = ("findings", "accepted")
QUIET = ("ok", "insufficient data")
"""States that are no news, but for a night that was told of before."""
_COLUMNS = {
    "findings": {
        "night": "DATE",
        "state": "VARCHAR",
        "series_id": "VARCHAR",
        "host_id": "VARCHAR",
        "profile": "VARCHAR",
        "metric": "VARCHAR",
        "scope": "VARCHAR",
        "label": "VARCHAR",
        "worse_percent": "DOUBLE",
        "z": "DOUBLE",
        "baseline_nights": "BIGINT",
        "since": "DATE",
        "pairs": "BIGINT",
        "pairs_p": "DOUBLE",
        "message": "VARCHAR",
        "judged_at": "TIMESTAMP",
    },
    "accepted": {"series_id": "VARCHAR", "metric": "VARCHAR", "night": "DATE", "reason": "VARCHAR"},
}


_Count = Annotated[int, Meta(ge=0, le=10**9)]


class Finding(Struct, frozen=True, kw_only=True):
    """What one night of one metric of a series was judged to be. `worse_percent` is negative for better; `since`: the night on
    which it began; `pairs`: how many confirm it or don't, with their one-sided `pairs_p`. `judged_at`: UTC, set when it is kept.
    """

    night: str
    state: str
    series_id: str
    host_id: str
    profile: str
    metric: str
    scope: str | None
    label: str
    worse_percent: float | None
    z: float | None
    baseline_nights: _Count | None
    since: str | None
    pairs: _Count | None
    pairs_p: float | None
    message: str
    judged_at: str = ""

    def check_dates(self) -> None:
        """Raises: ValueError."""
        check_day(self.night)
        if self.since is not None:
            check_day(self.since)
        if self.judged_at:
            check_moment(self.judged_at)


class Accepted(Struct, frozen=True, kw_only=True):
    """From `night` on a series is measured against itself alone. `metric` None: all of them."""

    series: str
    metric: str | None
    night: str
    reason: str

    def check_dates(self) -> None:
        """Raises: ValueError."""
        check_day(self.night)

    def about(self, series_id: str, metric: str) -> bool:
        """Whether it is about that metric of that series."""
        return series_id == self.series and self.metric in (None, metric)


_Line = TypeVar("_Line", Finding, Accepted)


def read_accepted(results: Path) -> list[Accepted]:
    """Every accepted change; none where there is no file. Raises: StoreError that names the line."""
    return _read(results / ACCEPTED_FILE, Accepted)


def add_accepted(results: Path, change: Accepted) -> None:
    """Write one more at the end of the file. Raises: StoreError."""
    _append(results / ACCEPTED_FILE, [change])


def read_findings(results: Path) -> list[Finding]:
    """What each night of each series was last judged to be, where the gate told of it. Raises: StoreError that names the line."""
    return [one for one in _last(results).values() if one.state not in QUIET]


def add_findings(results: Path, judged: Iterable[Finding], now: clock.Clock = clock.SYSTEM) -> None:
    """Write down what is news: what needs a look, and what was told of before and is judged otherwise now. Raises: StoreError."""
    known = _last(results)
    at = clock.iso_utc(now.wall_ns())
    news = []
    for one in judged:
        before = known.get(_place(one))
        same = one.state in QUIET if before is None else replace(before, judged_at="") == one
        news += [] if same else [replace(one, judged_at=at)]
    if news:
        _append(results / FINDINGS_FILE, news)


def finding_tables(con: duckdb.DuckDBPyConnection, results: Path) -> None:
    """`findings` and `accepted` for one connection. Raises: StoreError."""
    temp_table(con, "findings", _COLUMNS["findings"], read_findings(results))
    accepted = [{"series_id": one.series, **codec.to_builtins(one)} for one in read_accepted(results)]
    temp_table(con, "accepted", _COLUMNS["accepted"], accepted)


def _last(results: Path) -> dict[tuple[Any, ...], Finding]:
    return {_place(one): one for one in _read(results / FINDINGS_FILE, Finding)}


def _place(one: Finding) -> tuple[Any, ...]:
    return one.night, one.series_id, one.host_id, one.profile, one.metric, one.scope


def _read(path: Path, kind: type[_Line]) -> list[_Line]:
    try:
        lines = layout.read_plain(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path} can't be read: {error.strerror}", hint="mend it or move it away") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                one = codec.decode(line, kind)
                one.check_dates()
                found.append(one)
            except ValueError as error:
                raise StoreError(
                    f"{path}:{number}: no {kind.__name__.lower()} line: {error}", hint="mend or delete that line"
                ) from error
    return found


def _append(path: Path, lines: Sequence[Struct]) -> None:
    """All of them or none, on lines of their own, whoever else appends at the same time. Raises: StoreError."""
    data = b"".join(codec.encode(line) + b"\n" for line in lines)
    try:
        with exclusive(path, lambda _: None), path.open("r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            if file.read(1) not in (b"", b"\n"):  # edited by hand
                data = b"\n" + data
            try:
                layout.write_all(file.fileno(), data)
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise layout.write_error(path, error) from error
