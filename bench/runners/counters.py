"""An engine's own counters, fetched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from bench.records import Window
from bench.runners.http import Answer, get
from bench.runners.metric_names import ENGINES, Names
from bench.runners.prometheus import parse, project_metrics

Counters = Callable[[Window | None], dict[str, float]]
"""An engine's counters right now, under the project's names; with a window also what only a window has."""

MOCK_OWNER = "tokjoule"
"""`owned_by` of the mock engine's model: only such a server is asked for its truth."""
_METRICS_LIMIT_S = 5.0
_TRUTH_LIMIT_S = 120.0


def read_metrics(
    base_url: str,
    window: Window | None = None,
    *,
    mock: bool = False,
    headers: Mapping[str, str] | None = None,
    tables: Iterable[Names] = tuple(ENGINES.values()),
    path: str = "/metrics",
) -> dict[str, float]:
    """The counters at `base_url` under the project's names, by the `tables` of the engines that it may be; empty where there are
    none. The mock engine also tells `mock_lag_p99_ms`, how late it was by its own schedule in `window` [ms].
    """
    answer = get(base_url + path, timeout_s=_METRICS_LIMIT_S, headers=headers)
    found: dict[str, float] = {}
    if isinstance(answer, Answer) and answer.status == 200:
        found = project_metrics(parse(answer.body.decode("utf-8", "replace")), tables)
    return found | _mock_lag(base_url, window, headers) if mock and window is not None else found


def prometheus_counters(base_url: str, names: Names, *, path: str = "/metrics") -> Counters:
    """Counters of an engine of which it is known what it calls them."""
    return lambda _: read_metrics(base_url, tables=(names,), path=path)


def _mock_lag(base_url: str, window: Window, headers: Mapping[str, str] | None) -> dict[str, float]:
    url = f"{base_url}/truth?from_ns={window.t0_ns}&to_ns={window.t1_ns}"
    answer = get(url, timeout_s=_TRUTH_LIMIT_S, headers=headers)
    lag = answer.json_object().get("lag_ms") if isinstance(answer, Answer) else None
    lag_p99_ms = lag.get("p99") if isinstance(lag, dict) else None
    if isinstance(lag_p99_ms, bool) or not isinstance(lag_p99_ms, int | float) or not 0 <= lag_p99_ms < math.inf:
        return {}
    try:
        return {"mock_lag_p99_ms": float(lag_p99_ms)}
    except OverflowError:
        return {}
