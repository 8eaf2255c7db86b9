"""The whole way of a number: a server, the load generator in its own processes, the timing core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.records import Case, EventLog, LoadProgress, LoadResult, LoadSpec, Measured, Metric, Target, Telemetry, Window
from bench.timing import measure
from tests.load.scripted import drive, make_case, make_target
from tests.mock.wire import LocalMock

OnProgress = Callable[[LoadProgress], None]


@dataclass(frozen=True)
class Trial:
    """What came out of one load."""

    case: Case
    result: LoadResult
    measured: Measured

    @property
    def log(self) -> EventLog:
        return self.result.log

    @property
    def window(self) -> Window:
        assert self.result.window is not None
        return self.result.window

    @property
    def codes(self) -> set[tuple[str, str, str]]:
        return {(reason.code, reason.group, reason.severity) for reason in self.measured.reasons}

    def __getitem__(self, name: str) -> Metric:
        return self.measured.metrics[name]

    def members(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Requests sent in the window."""
        return (self.log.sent_ns >= self.window.t0_ns) & (self.log.sent_ns < self.window.t1_ns)


def measured(url: str, folder: Path, *, target: Target | None = None, told: OnProgress | None = None, **case: Any) -> Trial:
    """Load on `url`, and what the timing core makes of it."""
    folder.mkdir(parents=True, exist_ok=True)
    result = drive(url, folder, target=target, on_progress=told or (lambda _: None), **case)
    made = make_case(**case)
    return Trial(made, result, measure(made, result, Telemetry(), {}, {}))


def on_mock(server: LocalMock, folder: Path, *, told: OnProgress | None = None, **case: Any) -> Trial:
    """Load on a mock engine in this process."""
    url = f"http://127.0.0.1:{server.port}"
    return measured(url, folder, target=make_target(url, model="mock"), told=told, **case)


def truth_of(server: LocalMock, trial: Trial) -> dict[str, Any]:
    """What the mock engine says that it sent in the trial's window."""
    return server.truth(trial.window.t0_ns, trial.window.t1_ns)


def one_at_a_time(count: int) -> LoadSpec:
    """So many requests, each after the other."""
    return LoadSpec(kind="closed", batch_size=1, num_prompts=count)


def middle(metric: Metric) -> float:
    """The p50, which must be there."""
    assert metric.p50 is not None, metric
    return metric.p50


def number(metric: Metric) -> float:
    """The value, which must be there."""
    assert metric.value is not None, metric
    return metric.value
