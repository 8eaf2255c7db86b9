"""Points in the JSON of pytest-benchmark, for `pytest-benchmark compare` and github-action-benchmark. Pure.

It knows seconds alone, less being better: a point is told as seconds an output token (its `ops` are tokens a second), TTFT and
TPOT, a round being a valid trial. Joules and memory are no seconds: they are in `extra_info`. `fullname`, by which files of two
runs are compared, is that of the same setting on the same host; within a file no two benchmarks share one.

Source: pytest_benchmark/stats.py and session.py of pytest-benchmark 5.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
        "benchmarks": [
            benchmark for row, place in zip(found, _places(found), strict=True) for benchmark in _benchmarks(row, place)
        ],
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


_APART: tuple[Callable[[TrialRecord], str | None], ...] = (
    lambda trial: trial.key.run_id,
    lambda trial: trial.key.role,
    lambda trial: trial.config_id,
)
"""What tells points of one setting and host apart where a file has several, the first that does."""


def _places(found: Sequence[Row]) -> list[str]:
    """What each point is, for people and for `fullname`: its setting and host, and more only where that is not enough."""
    places = [f"{'-'.join(_params(row).values())}@{row.first.host.host_id}" for row in found]
    names = [f"{row.case.suite}::{row.case.name}" for row in found]
    for told in _APART:
        often = Counter(zip(names, places, strict=True))
        places = [
            f"{place} {told(row.first)}" if often[(name, place)] > 1 else place
            for row, name, place in zip(found, names, places, strict=True)
        ]
    return places


def _params(row: Row) -> dict[str, str]:
    return {
        "model": row.case.model,
        "precision": row.precision,
        "engine": row.case.engine,
        "devices": row.devices,
        "load": row.load,
        "lengths": row.lengths,
    }


def _benchmarks(row: Row, place: str) -> Iterator[dict[str, Any]]:
    valid = [trial for trial in row.trials if trial.status is Status.VALID]
    for quantity, metric in (("s_per_output_tok", "output_tok_per_s"), ("ttft_p50_s", "ttft_ms"), ("tpot_p50_s", "tpot_ms")):
        values = [value for trial in valid if (value := _number(trial, metric))]
        if values:
            seconds = [1 / v for v in values] if metric == "output_tok_per_s" else [v / _MS_PER_S for v in values]
            yield _benchmark(row, place, quantity, seconds)


def _number(trial: TrialRecord, name: str) -> float | None:
    metric = trial.metrics.get(name)
    value: float | None = None if metric is None else getattr(metric, main_field(name))
    return value


def _benchmark(row: Row, place: str, quantity: str, seconds: list[float]) -> dict[str, Any]:
    case, first, params = row.case, row.first, _params(row)
    told = {
        "run_id": first.key.run_id,
        "case_id": first.key.case_id,
        "host_id": first.host.host_id,
        "window": first.window and first.window.kind,
    }
    return {
        "group": quantity,
        "name": f"{case.name}[{quantity}]",
        "fullname": f"{case.suite}::{case.name}[{quantity}] {place}",
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
