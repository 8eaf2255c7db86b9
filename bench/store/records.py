"""Which trials a table or an export is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bench.errors import StoreError, UsageError
from bench.records import TrialRecord
from bench.store import layout
from bench.store.lab import Lab
from bench.store.plans import LATEST
from bench.store.validation import BadShard, check_place, read_record, read_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Exact matches; None lets everything through. `run_id` may be `latest`: the run that started last."""

    run_id: str | None = None
    suite: str | None = None
    model: str | None = None
    engine: str | None = None
    status: str | None = None
    trial_id: str | None = None


def records(
    lab: Lab, wanted: TrialFilter | None = None, *, last_runs: bool = False, most_cases: int | None = None
) -> list[TrialRecord]:
    """The trials that pass, oldest first, as the database (not the folder) lists them. `last_runs`: only those of each case's
    last run with a valid trial on its host, and of its last run without one there. `most_cases`: only those of so many cases, the
    ones that were measured last. No other record is read.

    Raises: UsageError (no such run), StoreError (a shard vanished since the last ingest).
    """
    where, given = _condition(lab, wanted or TrialFilter())
    if most_cases is not None:
        where += f" AND case_id IN ({_LAST_CASES.format(where=where)} LIMIT {most_cases})"
    chosen = (_LAST_RUNS if last_runs else "SELECT shard FROM trials WHERE {where}").format(where=where)
    shards = _asked(lab, f"{chosen} ORDER BY started_at, run_id, case_id, repeat, trial_id", given)
    return records_in(lab.results, (shard for (shard,) in shards))


def count_cases(lab: Lab, wanted: TrialFilter) -> int:
    """Of how many cases there are trials that pass. Raises: as `records`."""
    where, given = _condition(lab, wanted)
    ((count,),) = _asked(lab, f"SELECT count(DISTINCT case_id) FROM trials WHERE {where}", given)  # noqa: S608 - our own names
    return int(count)


def run_records(results: Path, run_id: str) -> list[TrialRecord]:
    """The trials of one run as their shards tell, oldest first; none where it has none yet.

    Raises: StoreError (a shard that can't be read).
    """
    return sorted(records_in(results, _shards_of(results, run_id)), key=lambda record: record.started.wall_ns)


def check_run(results: Path, run_id: str) -> None:
    """Refuse a run of which a shard would not be taken into a database. Raises: StoreError."""
    for shard in _shards_of(results, run_id):
        try:
            check_place(results, read_shard(results / shard, verify=True))
        except BadShard as error:
            raise StoreError(f"{shard}: {error}", hint=f"move {results / shard} away") from error


def _shards_of(results: Path, run_id: str) -> list[str]:
    runs = [run for run in layout.runs_in(results) if run.endswith(f"/{run_id}")]
    return [shard for run in runs for shard in layout.shards_in(results, run)]


_LAST_RUNS = """
SELECT shard FROM (
  SELECT *, max(started_at) OVER run AS run_at, bool_or(status = 'valid') OVER run AS good FROM trials WHERE {where}
  WINDOW run AS (PARTITION BY case_id, host_id, run_id)
) QUALIFY run_at = max(run_at) OVER (PARTITION BY case_id, host_id, good)
"""


_LAST_CASES = "SELECT case_id FROM trials WHERE {where} GROUP BY case_id ORDER BY max(started_at) DESC, case_id"


def _condition(lab: Lab, wanted: TrialFilter) -> tuple[str, dict[str, str]]:
    """A filter as SQL with its parameters. Raises: UsageError, StoreError."""
    run_id = wanted.run_id
    if run_id == LATEST:
        run_id = next(
            (row[0] for row in _asked(lab, "SELECT run_id FROM trials ORDER BY started_at DESC, run_id DESC LIMIT 1")), None
        )
    elif run_id is not None and not _asked(lab, "SELECT 1 FROM trials WHERE run_id = $run_id LIMIT 1", {"run_id": run_id}):
        raise UsageError(f"no run {run_id!r} in {lab.results}", hint="bench sql 'SELECT DISTINCT run_id FROM trials'")
    matches = {f.name: getattr(wanted, f.name) for f in fields(wanted)} | {"run_id": run_id}
    given = {name: value for name, value in matches.items() if value is not None}
    return " AND ".join(f"{name} = ${name}" for name in given) or "true", given


def _asked(lab: Lab, query: str, given: dict[str, str] | None = None) -> list[tuple[Any, ...]]:
    """Raises: StoreError."""
    import duckdb

    try:
        with lab.connect() as con:
            return con.execute(query, given or {}).fetchall()
    except duckdb.Error as error:
        raise StoreError(
            f"{lab.database} is damaged: {str(error).splitlines()[0]}",
            hint=f"delete {lab.database}: it is rebuilt from the shards",
        ) from error


def records_in(results: Path, shards: Iterable[str]) -> list[TrialRecord]:
    """The record of each of these shards, named as the database does. Raises: StoreError (one can't be read)."""
    return [_record(results, shard) for shard in shards]


def _record(results: Path, shard: str) -> TrialRecord:
    try:
        return read_record(results / shard)
    except BadShard as error:
        raise StoreError(f"{shard}: {error}", hint="run: bench ingest --verify") from error
