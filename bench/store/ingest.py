"""One pass over all shards: what is new goes in, what is gone goes out, what is bad is refused with its reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import clock
from bench.store import layout, schema
from bench.store.database import attach, close_copy, memory, open_copy
from bench.store.validation import BadShard, check_clock, check_place, read_shard

if TYPE_CHECKING:
    import duckdb

_BATCH_SHARDS = 1000

Progress = Callable[[int, int], None]
"""Called with (shards read, shards to read)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A shard that was refused: its folder (relative to the results where it lies there) and why."""

    shard: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What an ingest did. `removed` are trials whose shard is gone. `rejected` are all shards that are refused now."""

    added: int = 0
    unchanged: int = 0
    removed: int = 0
    rejected: tuple[Rejection, ...] = ()


class _Known(NamedTuple):
    """A row of `shards`, but for the shard."""

    trial_id: str
    sha256: str
    size_b: int
    mtime_ns: int


class Ingest:
    """One pass over the shards of all runs, or of the folders in `runs`: what is new, what is gone, what is refused."""

    def __init__(self, results: Path, base: Path | None, copy: Path, runs: Collection[str] | None, *, verify: bool) -> None:
        self._results = results
        self._base = base
        self._copy = copy
        self._verify = verify
        self._now_ns = clock.SYSTEM.wall_ns()
        self._runs = layout.runs_in(results) if runs is None else runs
        self._known, self._taken, self._rejected_before = _contents(base, runs)
        self._con: duckdb.DuckDBPyConnection | None = None
        self._rows: dict[str, list[schema.Row]] = {table: [] for table in schema.TABLES}
        self._stale: list[str] = []

    def run(self, publish: Callable[[Path], None], progress: Progress | None) -> IngestReport:
        """Do it; `publish` is called with the changed copy where anything changed."""
        shards = [shard for run in self._runs for shard in layout.shards_in(self._results, run)]
        elsewhere = len(self._taken) - len(self._known)
        gone = self._known.keys() - shards
        fresh = [shard for shard in shards if not self._is_unchanged(shard)]
        self._stale += gone
        for shard in gone.union(fresh) & self._known.keys():
            self._taken.pop(self._known[shard].trial_id, None)
        rejected: list[Rejection] = []
        added = 0
        for done, shard in enumerate(fresh, start=1):
            try:
                added += self._take(shard)
            except BadShard as error:
                rejected.append(Rejection(shard=shard, reason=str(error)))
                self._stale += [shard] if shard in self._known else []
            if done % _BATCH_SHARDS == 0:
                self._flush()
            if progress is not None:
                progress(done, len(fresh))
        self._finish(rejected, publish)
        unchanged = elsewhere + len(shards) - added - len(rejected)
        return IngestReport(added=added, unchanged=unchanged, removed=len(gone), rejected=tuple(rejected))

    def _is_unchanged(self, shard: str) -> bool:
        known = self._known.get(shard)
        if known is None or self._verify:
            return False
        try:
            path = f"{self._results}/{shard}/{layout.TRIAL_JSON}"
            stat = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of a hundred thousand, a Path takes three times as long
        except OSError:
            return False
        return (stat.st_size, stat.st_mtime_ns) == (known.size_b, known.mtime_ns)

    def _take(self, shard: str) -> bool:
        """Queue a shard's rows; False where it is what the database has. Raises: BadShard."""
        folder = self._results / shard
        found = read_shard(folder, verify=self._verify)
        check_place(self._results, found)
        check_clock(found.record, self._now_ns)
        trial_id = found.record.key.trial_id
        holder = self._taken.setdefault(trial_id, shard)
        if holder != shard:
            raise BadShard(f"trial_id {trial_id} is already that of {holder}, with other content")
        known = self._known.get(shard)
        stat = (folder / layout.TRIAL_JSON).stat()
        now = _Known(trial_id=trial_id, sha256=found.sha256, size_b=stat.st_size, mtime_ns=stat.st_mtime_ns)
        if known == now:
            return False
        if known is not None:
            self._stale.append(shard)
        for table, rows in schema.rows_of(found.record, shard).items():
            self._rows[table] += rows
        self._rows["shards"].append((shard, *now))
        return known is None or known.sha256 != now.sha256

    def _target(self) -> duckdb.DuckDBPyConnection:
        if self._con is None:
            self._con = open_copy(self._base, self._copy)
            self._con.execute("BEGIN")
        return self._con

    def _flush(self) -> None:
        """Write what is queued into the copy. What is stale goes first: a changed shard has the same name."""
        if self._stale:
            _delete(self._target(), self._stale)
            self._stale = []
        for table, rows in self._rows.items():
            if rows:
                schema.insert(self._target(), "lab", table, rows)
                rows.clear()

    def _finish(self, rejected: list[Rejection], publish: Callable[[Path], None]) -> None:
        try:
            self._flush()
            listed = {r.shard: r.reason for r in rejected}
            if listed != self._rejected_before or self._base is None:
                con = self._target()
                con.execute("DELETE FROM lab.rejected")
                self._rows["rejected"] = list(listed.items())
                self._flush()
            if self._con is not None:
                self._con.execute("COMMIT")
                close_copy(self._con)
                publish(self._copy)
        finally:
            if self._con is not None:
                self._con.close()


def run_of(shard: str) -> str:
    """The folder of the run that a shard belongs to."""
    return shard.rpartition("/")[0]


def _contents(base: Path | None, runs: Collection[str] | None) -> tuple[Mapping[str, _Known], dict[str, str], Mapping[str, str]]:
    """The shards that a database holds, all or those of some runs; the shard of every trial; the shards that it refuses."""
    if base is None:
        return {}, {}, {}
    within = "true" if runs is None else "parse_dirpath(shard) IN (SELECT unnest($1))"
    given = [] if runs is None else [list(runs)]
    with memory() as con:
        attach(con, base, read_only=True)
        query = f"SELECT shard, trial_id, sha256, size_b, mtime_ns FROM lab.shards WHERE {within}"  # noqa: S608 - ours
        known = {shard: _Known(*row) for shard, *row in con.execute(query, given).fetchall()}
        taken = dict(con.execute("SELECT trial_id, shard FROM lab.shards").fetchall())
        rejected = dict(con.execute("SELECT shard, reason FROM lab.rejected").fetchall())
    return known, taken, rejected


def _delete(con: duckdb.DuckDBPyConnection, shards: list[str]) -> None:
    for table in ("metrics", "reasons", "trials"):
        con.execute(
            f"DELETE FROM lab.{table} WHERE trial_id IN (SELECT trial_id FROM lab.shards WHERE shard IN (SELECT unnest($1)))",  # noqa: S608
            [shards],
        )
    con.execute("DELETE FROM lab.shards WHERE shard IN (SELECT unnest($1))", [shards])
