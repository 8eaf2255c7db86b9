"""Values per request, or per gap, to one `Metric` with percentiles and their intervals. Pure."""

from __future__ import annotations

import math

import numpy as np

from bench.records import FloatArray, IntArray, Metric
from bench.stats import Bounds, effective_size, quantile_interval, quantile_inverted_cdf, quantile_linear
from bench.timing.spec import SPECS, undefined

P99_MIN = 100
"""Fewer values than this say nothing about one in a hundred: p99 is withheld."""


def distribution(
    name: str,
    values: FloatArray,
    missing: str,
    *,
    cluster: IntArray | None = None,
    source: str | None = None,
) -> Metric:
    """`name` over `values` (NaN = undefined, left out): mean, linear percentiles, order-statistic intervals at 95%.

    `missing` is the reason when nothing is left. `cluster`: the request of each value where a request gives many.
    """
    defined = ~np.isnan(values)
    kept = values[defined]
    if len(kept) == 0:
        return undefined(name, missing)
    ordered = np.sort(kept)
    p50, p99 = quantile_linear(ordered, 0.5), quantile_linear(ordered, 0.99)
    middle = _interval(ordered, 0.5, p50, kept, None if cluster is None else cluster[defined])
    enough = len(kept) >= P99_MIN
    tail = _interval(ordered, 0.99, p99, kept, None if cluster is None else cluster[defined]) if enough else _OPEN
    return Metric(
        name=name,
        unit=SPECS[name].unit,
        mean=float(kept.mean()),
        p50=p50,
        p90=quantile_linear(ordered, 0.9),
        p99=p99 if enough else None,
        p99_low=tail.low,
        p99_high=tail.high,
        low=middle.low,
        high=middle.high,
        n=len(kept),
        source=source,
    )


_OPEN = Bounds(low=None, high=None)


def _interval(ordered: FloatArray, p: float, at: float, values: FloatArray, cluster: IntArray | None) -> Bounds:
    worth = None if cluster is None else effective_size(values <= at, cluster)
    return quantile_interval(ordered, p, effective_n=worth)


def adjusted(name: str, values: FloatArray, missing: str, *, source: str | None = None) -> Metric:
    """`name` over a whole population in which failures stand at +inf: `inverted_cdf` percentiles, never interpolated.

    A percentile that falls on a failure is None, and `reason` says which share failed. There is no mean: it would be
    infinite, or leave the failures out.
    """
    n = len(values)
    if n == 0:
        return undefined(name, missing)
    ordered = np.sort(values)
    failed = int(np.isinf(ordered).sum())
    quantiles = {p: _finite(quantile_inverted_cdf(ordered, p)) for p in (0.5, 0.9, 0.99)}
    middle, tail = quantile_interval(ordered, 0.5), quantile_interval(ordered, 0.99)
    enough = n >= P99_MIN
    on_failure = [f"p{round(100 * p)}" for p, value in quantiles.items() if value is None and (p < 0.99 or enough)]
    return Metric(
        name=name,
        unit=SPECS[name].unit,
        p50=quantiles[0.5],
        p90=quantiles[0.9],
        p99=quantiles[0.99] if enough else None,
        p99_low=_finite(tail.low) if enough else None,
        p99_high=_finite(tail.high) if enough else None,
        low=_finite(middle.low),
        high=_finite(middle.high),
        n=n,
        reason=f"{', '.join(on_failure)}: {failed} of {n} requests ({failed / n:.1%}) never succeeded" if on_failure else None,
        source=source,
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
