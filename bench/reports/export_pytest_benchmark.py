"""Points in the JSON of pytest-benchmark, for `pytest-benchmark compare` and github-action-benchmark. Pure.

It knows seconds alone, less being better: a point is told as seconds an output token (its `ops` are tokens a second), TTFT and
TPOT, a round being a valid trial. Joules and memory are no seconds: they are in `extra_info`.

Source: pytest_benchmark/stats.py and session.py of pytest-benchmark 5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from bench import __version__
from bench.records import Status, TrialRecord
from bench.reports.rows import Row, rows
from bench.timing.columns import main_field
from bench.units import NS_PER_S

_EXTRA = ("j_per_output_tok", "memory_used_peak_b")
_MS_PER_S = 1e3


def pytest_benchmark_json(records: Sequence[TrialRecord]) -> bytes:
    """One object with a benchmark for each point and quantity; a quantity without a number in any valid trial has none."""
    found = rows(records)
    last = max((record.ended.wall_ns for record in records), default=0)
    told = {
        "machine_info": _machine(found),
        "commit_info": {"id": None, "project": "tokjoule", "dirty": False},
        "benchmarks": [benchmark for row in found for benchmark in _benchmarks(row)],
        "datetime": datetime.fromtimestamp(last / NS_PER_S, tz=UTC).isoformat(),
        "version": f"tokjoule {__version__}",
    }
    return (json.dumps(told, indent=2, allow_nan=False) + "\n").encode()


def _machine(found: Sequence[Row]) -> dict[str, Any]:
    """Of the first point's host; several hosts in one file are told in each benchmark's `extra_info`."""
    if not found:
        return {"node": None, "system": None, "release": None, "machine": None, "cpu": {"brand_raw": None, "count": None}}
    host = found[0].first.host
    cpu = {"brand_raw": host.cpu_model, "count": host.cpu_count}
    return {"node": host.host_id, "system": host.system, "release": host.release, "machine": host.machine, "cpu": cpu}


def _benchmarks(row: Row) -> Iterator[dict[str, Any]]:
    valid = [trial for trial in row.trials if trial.status is Status.VALID]
    for quantity, metric in (("s_per_output_tok", "output_tok_per_s"), ("ttft_p50_s", "ttft_ms"), ("tpot_p50_s", "tpot_ms")):
        values = [value for trial in valid if (value := _number(trial, metric))]
        if values:
            yield _benchmark(
                row, quantity, [1 / v for v in values] if metric == "output_tok_per_s" else [v / _MS_PER_S for v in values]
            )


def _number(trial: TrialRecord, name: str) -> float | None:
    metric = trial.metrics.get(name)
    value: float | None = None if metric is None else getattr(metric, main_field(name))
    return value


def _benchmark(row: Row, quantity: str, seconds: list[float]) -> dict[str, Any]:
    case, first = row.case, row.first
    params = {
        "model": case.model,
        "precision": row.precision,
        "engine": case.engine,
        "devices": row.devices,
        "load": row.load,
        "lengths": row.lengths,
    }
    told = {
        "run_id": first.key.run_id,
        "case_id": first.key.case_id,
        "host_id": first.host.host_id,
        "window": first.window and first.window.kind,
    }
    return {
        "group": quantity,
        "name": f"{case.name}[{quantity}]",
        "fullname": f"{case.suite}::{case.name}[{quantity}]",
        "params": params,
        "param": "-".join(params.values()),
        "extra_info": told | {name: [_number(trial, name) for trial in row.trials] for name in _EXTRA},
        "options": {},
        "stats": _stats(np.array(seconds)),
    }


def _stats(values: Any) -> dict[str, Any]:
    q1, median, q3 = (float(q) for q in np.percentile(values, (25, 50, 75)))
    iqr, mean, stddev = q3 - q1, float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    low, high = q1 - 1.5 * iqr, q3 + 1.5 * iqr
    outside = int(((values < low) | (values > high)).sum())
    far = int((abs(values - mean) > stddev).sum()) if len(values) > 1 else 0
    return {
        "min": float(values.min()),
        "max": float(values.max()),
        "mean": mean,
        "stddev": stddev,
        "rounds": len(values),
        "median": median,
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": float(values[values >= low].min()),
        "hd15iqr": float(values[values <= high].max()),
        "ops": 1 / mean,
        "total": float(values.sum()),
        "data": values.tolist(),
        "iterations": 1,
    }
