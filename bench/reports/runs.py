"""The one JSON object that `bench run --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import codec
from bench.clock import iso_utc
from bench.records import Metric, TrialRecord
from bench.reports.searches import SearchResult, search_json

_NUMBERS = ("value", "mean", "p50", "p90", "p99", "p99_low", "p99_high", "low", "high")


def run_json(run_id: str, records: Sequence[TrialRecord], searches: Sequence[SearchResult] = ()) -> dict[str, Any]:
    """`run_id`, `searches[]` (see `search_json`) and `trials[]`, each with ids, `status`, `reasons[]`, `case`, `engine`,
    `metrics{}`, `window`, `shard` (its folder relative to the results) and `error`. A metric's numbers that it has none of are
    left out, but `n`, `unit` and where it is undefined `reason` are always there.
    """
    return {
        "run_id": run_id,
        "trials": [_trial(record) for record in records],
        "searches": [search_json(search) for search in searches],
    }


def _trial(record: TrialRecord) -> dict[str, Any]:
    key, window = record.key, record.window
    return {
        "trial_id": key.trial_id,
        "case_id": key.case_id,
        "workload_id": key.workload_id,
        "series_id": record.series_id,
        "config_id": record.config_id,
        "repeat": key.repeat,
        "role": key.role,
        "attempt": key.attempt,
        "status": record.status.value,
        "reasons": codec.to_builtins(record.reasons),
        "error": record.error,
        "case": codec.to_builtins(record.case),
        "engine": codec.to_builtins(record.engine),
        "energy_scope": record.energy_scope,
        "metrics": {name: _metric(metric) for name, metric in record.metrics.items()},
        "window": None if window is None else {"t0_ns": window.t0_ns, "t1_ns": window.t1_ns, "kind": window.kind},
        "shard": f"shards/date={iso_utc(record.started.wall_ns)[:10]}/{key.run_id}/{key.trial_id}",
    }


def _metric(metric: Metric) -> dict[str, Any]:
    plain: dict[str, Any] = codec.to_builtins(metric)
    numbers = {name: plain[name] for name in _NUMBERS if plain[name] is not None}
    texts = {name: plain[name] for name in ("reason", "source") if plain[name] is not None}
    return {**numbers, "n": plain["n"], "unit": plain["unit"], **texts}
