"""Tables and views of `lab.duckdb`, and how a trial becomes rows.

A table is a mapping of column to type: the same mapping makes the table and types what goes in. `SCHEMA_TAG` is a hash of
all of it, so that any change here makes older databases be rebuilt from the shards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from bench.clock import iso_utc
from bench.records import BOARD_SCOPES, DeviceInfo, TrialRecord
from bench.store.views import view_statements

if TYPE_CHECKING:
    import duckdb
    import numpy as np

Row = tuple[Any, ...]
"""Cells in the order of a table's columns."""

_LIST = "VARCHAR[]"
TRIALS = {
    "trial_id": "VARCHAR",
    "run_id": "VARCHAR",
    "case_id": "VARCHAR",
    "workload_id": "VARCHAR",
    "series_id": "VARCHAR",
    "config_id": "VARCHAR",
    "role": "VARCHAR",
    "repeat": "BIGINT",
    "attempt": "BIGINT",
    "status": "VARCHAR",
    "reasons": _LIST,
    "error": "VARCHAR",
    "case_name": "VARCHAR",
    "suite": "VARCHAR",
    "labels": "VARCHAR",
    "profile": "VARCHAR",
    "model": "VARCHAR",
    "model_source": "VARCHAR",
    "weights_sha256": "VARCHAR",
    "precision": "VARCHAR",
    "engine": "VARCHAR",
    "engine_version": "VARCHAR",
    "engine_build": "VARCHAR",
    "vendor": "VARCHAR",
    "devices": _LIST,
    "device_uids": _LIST,
    "device_count": "BIGINT",
    "driver": "VARCHAR",
    "load": "VARCHAR",
    "batch_size": "BIGINT",
    "request_rate": "DOUBLE",
    "arrivals": "VARCHAR",
    "num_prompts": "BIGINT",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "dataset": "VARCHAR",
    "dataset_hash": "VARCHAR",
    "protocol": "VARCHAR",
    "seed": "BIGINT",
    "duration_s": "DOUBLE",
    "warmup_s": "DOUBLE",
    "window_kind": "VARCHAR",
    "window_s": "DOUBLE",
    "window_t0_ns": "BIGINT",
    "window_t1_ns": "BIGINT",
    "started_at": "TIMESTAMP",
    "ended_at": "TIMESTAMP",
    "host_id": "VARCHAR",
    "cpu_model": "VARCHAR",
    "energy_scope": "VARCHAR",
    "bench_version": "VARCHAR",
    "shard": "VARCHAR",
}
METRICS = {
    "trial_id": "VARCHAR",
    "name": "VARCHAR",
    "unit": "VARCHAR",
    "value": "DOUBLE",
    "mean": "DOUBLE",
    "p50": "DOUBLE",
    "p90": "DOUBLE",
    "p99": "DOUBLE",
    "p99_low": "DOUBLE",
    "p99_high": "DOUBLE",
    "low": "DOUBLE",
    "high": "DOUBLE",
    "n": "BIGINT",
    "reason": "VARCHAR",
    "source": "VARCHAR",
}
REASONS = {
    "trial_id": "VARCHAR",
    "code": "VARCHAR",
    "metric_group": "VARCHAR",
    "severity": "VARCHAR",
    "message": "VARCHAR",
}
SHARDS = {
    "shard": "VARCHAR",
    "trial_id": "VARCHAR",
    "sha256": "VARCHAR",
    "size_b": "BIGINT",
    "mtime_ns": "BIGINT",
}
REJECTED = {"shard": "VARCHAR", "reason": "VARCHAR"}
TABLES = {"trials": TRIALS, "metrics": METRICS, "reasons": REASONS, "shards": SHARDS, "rejected": REJECTED}

_metric_fields = attrgetter(*(name for name in METRICS if name != "trial_id"))


def ddl(schema: str) -> list[str]:
    """The statements that make every table and view in `schema`."""
    tables = [
        f"CREATE TABLE {schema}.{table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())})"
        for table, columns in TABLES.items()
    ]
    return [*tables, *view_statements(schema), f"CREATE TABLE {schema}.meta (schema_tag VARCHAR)"]


SCHEMA_TAG = hashlib.sha256("\n".join(ddl("lab")).encode()).hexdigest()[:16]


def insert(con: duckdb.DuckDBPyConnection, schema: str, table: str, rows: Sequence[Row]) -> None:
    """Add rows to `table`. They are handed over by column, as arrays that DuckDB reads where they lie. Raises: duckdb.Error."""
    columns = TABLES[table]
    con.register(
        "added", {name: _array(columns[name], cells) for name, cells in zip(columns, zip(*rows, strict=True), strict=True)}
    )
    picked = ", ".join(f"CAST({name} AS JSON)" if kind == _LIST else name for name, kind in columns.items())
    con.execute(f"INSERT INTO {schema}.{table} SELECT {picked} FROM added")  # noqa: S608 - names of our own
    con.unregister("added")


def _array(kind: str, cells: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Numbers with NaN for NULL, since no record holds a NaN; what else there is as objects, which DuckDB takes for text."""
    import numpy as np

    if kind == _LIST:
        cells = [json.dumps(cell) for cell in cells]
    return np.array(cells, dtype=np.float64 if kind == "DOUBLE" else object)


def rows_of(record: TrialRecord, shard: str) -> dict[str, list[Row]]:
    """A trial as rows of `trials`, `metrics` and `reasons`."""
    trial_id = record.key.trial_id
    told = _identity(record) | _setting(record) | _load(record) | _when(record) | {"shard": shard}
    return {
        "trials": [tuple(told[name] for name in TRIALS)],
        "metrics": [(trial_id, *_metric_fields(metric)) for metric in record.metrics.values()],
        "reasons": [(trial_id, r.code, r.group, r.severity, r.message) for r in record.reasons],
    }


def _identity(record: TrialRecord) -> dict[str, Any]:
    key = record.key
    return {
        "trial_id": key.trial_id,
        "run_id": key.run_id,
        "case_id": key.case_id,
        "workload_id": key.workload_id,
        "series_id": record.series_id,
        "config_id": record.config_id,
        "role": key.role,
        "repeat": key.repeat,
        "attempt": key.attempt,
        "status": record.status.value,
        "reasons": [r.code for r in record.reasons],
        "error": record.error,
        "bench_version": record.bench_version,
    }


def _setting(record: TrialRecord) -> dict[str, Any]:
    case, engine, boards = record.case, record.engine, measured_boards(record)
    return {
        "case_name": case.name,
        "suite": case.suite,
        "labels": json.dumps(case.labels, sort_keys=True),
        "profile": case.profile.value,
        "model": case.model,
        "model_source": record.model.source if record.model else case.model_source,
        "weights_sha256": record.model.weights_sha256 if record.model else None,
        "precision": (engine.precision if engine else None) or case.precision,
        "engine": engine.name if engine else case.engine,
        "engine_version": engine.version if engine else None,
        "engine_build": engine.build if engine else None,
        "devices": [d.name for d in boards],
        "device_uids": [d.uid for d in boards],
        "vendor": _each(d.vendor for d in boards),
        "device_count": len(boards),
        "driver": _each(d.driver for d in boards),
        "host_id": record.host.host_id,
        "cpu_model": record.host.cpu_model,
        "energy_scope": record.energy_scope,
    }


def _each(names: Iterable[str | None]) -> str | None:
    """What boards have in common, or each of it once."""
    return ", ".join(sorted({name for name in names if name})) or None


def measured_boards(record: TrialRecord) -> tuple[DeviceInfo, ...]:
    """The accelerator boards of a trial, or where it has none its CPU packages."""
    boards = tuple(d for d in record.devices if d.scope in BOARD_SCOPES)
    return boards or tuple(d for d in record.devices if d.scope == "cpu_package")


def _load(record: TrialRecord) -> dict[str, Any]:
    case, load = record.case, record.case.load
    return {
        "load": load.kind,
        "batch_size": load.batch_size,
        "request_rate": load.request_rate,
        "arrivals": load.arrivals,
        "num_prompts": load.num_prompts,
        "input_tokens": case.input_tokens.mean,
        "output_tokens": case.output_tokens.mean,
        "dataset": case.dataset,
        "dataset_hash": record.dataset_hash,
        "protocol": case.protocol,
        "seed": case.seed,
        "duration_s": case.duration_s,
        "warmup_s": case.warmup_s,
    }


def _when(record: TrialRecord) -> dict[str, Any]:
    window = record.window
    return {
        "window_kind": window.kind if window else None,
        "window_s": window.seconds if window else None,
        "window_t0_ns": window.t0_ns if window else None,
        "window_t1_ns": window.t1_ns if window else None,
        "started_at": iso_utc(record.started.wall_ns).removesuffix("Z"),
        "ended_at": iso_utc(record.ended.wall_ns).removesuffix("Z"),
    }
