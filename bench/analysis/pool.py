"""Repeats of one point as one number with its interval. Pure; works on records, knows no database.

Repeats pool only within one configuration, host, case and run. Ratios vary by factors, so the mean is geometric with a
t-interval on the logs; where a value isn't positive (an error share of 0) there is no logarithm and the mean is arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.records import Metric, Status, TrialRecord
from bench.stats import geometric_mean, mean_interval

_QUANTILES = ("p50", "p90", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKey:
    """What repeats must share to be pooled."""

    config_id: str | None
    host_id: str
    case_id: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledValue:
    """Mean over `n` repeats with its 95% t-interval; `low`, `high` are None for a single repeat."""

    value: float
    low: float | None
    high: float | None
    n: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """What `trials` valid repeats say together. Scalars by name (`output_tok_per_s`), distributions by quantile
    (`ttft_ms.p50`, `ttft_ms.p99`). A number that no repeat has is not there.
    """

    trials: int
    values: dict[str, PooledValue]


def pool_key(record: TrialRecord) -> PoolKey:
    """The group that a trial belongs to."""
    return PoolKey(
        config_id=record.config_id,
        host_id=record.host.host_id,
        case_id=record.key.case_id,
        run_id=record.key.run_id,
    )


def pool_records(records: Iterable[TrialRecord]) -> dict[PoolKey, Pooled]:
    """Pool the valid trials of each group, in order of first appearance. A group without a valid trial has none pooled."""
    groups: defaultdict[PoolKey, list[Mapping[str, Metric]]] = defaultdict(list)
    for record in records:
        members = groups[pool_key(record)]
        if record.status == Status.VALID:
            members.append(record.metrics)
    return {key: pool(members) for key, members in groups.items()}


def pool(trials: Sequence[Mapping[str, Metric]]) -> Pooled:
    """Pool the metrics of valid repeats. A metric is pooled over the repeats in which it is defined; `n` says how many."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    units: dict[str, str] = {}
    for metrics in trials:
        for name, metric in metrics.items():
            for label, number in _numbers(name, metric):
                found[label].append(number)
                units[label] = metric.unit
    return Pooled(trials=len(trials), values={label: pooled_value(numbers, units[label]) for label, numbers in found.items()})


def _numbers(name: str, metric: Metric) -> Iterable[tuple[str, float]]:
    if metric.value is not None:
        yield name, metric.value
    for quantile in _QUANTILES:
        number = getattr(metric, quantile)
        if number is not None:
            yield f"{name}.{quantile}", number


def pooled_value(numbers: Sequence[float], unit: str) -> PooledValue:
    """Mean of `numbers` with its interval. Raises: ValueError when there are none."""
    values = np.asarray(numbers, dtype=np.float64)
    estimate = geometric_mean(values) if bool((values > 0).all()) else mean_interval(values)
    return PooledValue(value=estimate.value, low=estimate.low, high=estimate.high, n=estimate.n, unit=unit)
