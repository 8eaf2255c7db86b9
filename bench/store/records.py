"""Which trials a table or an export is about."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from bench.errors import StoreError, UsageError
from bench.records import TrialRecord
from bench.store import layout
from bench.store.lab import Lab
from bench.store.validation import BadShard, read_record

LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Exact matches; None lets everything through. `run_id` may be `latest`: the run that started last."""

    run_id: str | None = None
    suite: str | None = None
    model: str | None = None
    engine: str | None = None
    status: str | None = None


def records(lab: Lab, wanted: TrialFilter | None = None, *, last_runs: bool = False) -> list[TrialRecord]:
    """The trials that pass, oldest first, as the database (not the folder) lists them. `last_runs`: only those of each case's
    last run with a valid trial on its host, and of its last run without one there: no other record is read.

    Raises: UsageError (no such run), StoreError (a shard vanished since the last ingest).
    """
    import duckdb

    try:
        shards = _shards(lab, wanted or TrialFilter(), last_runs=last_runs)
    except duckdb.Error as error:
        raise StoreError(
            f"{lab.database} is damaged: {str(error).splitlines()[0]}",
            hint=f"delete {lab.database}: it is rebuilt from the shards",
        ) from error
    return [_record(lab.results, shard) for shard in shards]


def run_records(results: Path, run_id: str) -> list[TrialRecord]:
    """The trials of one run as their shards tell, oldest first; none where it has none yet.

    Raises: StoreError (a shard that can't be read).
    """
    shards = [folder for folder in layout.shard_folders(results) if folder.parent.name == run_id]
    found = [_record(results, folder.relative_to(results).as_posix()) for folder in shards]
    return sorted(found, key=lambda record: record.started.wall_ns)


_LAST_RUNS = """
SELECT shard FROM (
  SELECT *, max(started_at) OVER run AS run_at, bool_or(status = 'valid') OVER run AS good FROM trials WHERE {where}
  WINDOW run AS (PARTITION BY case_id, host_id, run_id)
) QUALIFY run_at = max(run_at) OVER (PARTITION BY case_id, host_id, good)
"""


def _shards(lab: Lab, wanted: TrialFilter, *, last_runs: bool) -> list[str]:
    with lab.connect() as con:
        run_id = wanted.run_id
        if run_id == LATEST:
            row = con.execute("SELECT run_id FROM trials ORDER BY started_at DESC, run_id DESC LIMIT 1").fetchone()
            run_id = None if row is None else row[0]
        elif run_id is not None and not con.execute("SELECT 1 FROM trials WHERE run_id = $1 LIMIT 1", [run_id]).fetchone():
            raise UsageError(f"no run {run_id!r} in {lab.results}", hint="bench sql 'SELECT DISTINCT run_id FROM trials'")
        matches = {f.name: getattr(wanted, f.name) for f in fields(wanted)} | {"run_id": run_id}
        given = {name: value for name, value in matches.items() if value is not None}
        where = " AND ".join(f"{name} = ${name}" for name in given) or "true"
        chosen = _LAST_RUNS if last_runs else "SELECT shard FROM trials WHERE {where}"
        query = f"{chosen.format(where=where)} ORDER BY started_at, run_id, case_id, repeat, trial_id"
        return [row[0] for row in con.execute(query, given).fetchall()]


def _record(results: Path, shard: str) -> TrialRecord:
    try:
        return read_record(results / shard)
    except BadShard as error:
        raise StoreError(f"{shard}: {error}", hint="run: bench ingest --verify") from error
