"""Points that could be deployed as they were measured, and what they reach. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from bench.analysis.pool import PooledValue, PoolKey, pool_key, pooled_value
from bench.records import BOARD_SCOPES, DeviceInfo, Metric, Slo, Status, TrialRecord
from bench.timing.error_budget import GAIN
from bench.timing.normalise import running_precision

Objective = Literal["tok_per_j", "tok_per_s", "usd_per_mtok"]
Quantile = Literal["p50", "p90", "p99"]
QUANTILES: tuple[Quantile, ...] = ("p50", "p90", "p99")
TOP1, PPL = "top1_agreement", "ppl_delta"
UNITS: dict[Objective, str] = {"tok_per_j": "tok/J", "tok_per_s": "tok/s", "usd_per_mtok": "USD/Mtok"}
_ENERGY = "j_per_output_tok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one device costs [USD/h], since when and by whom."""

    usd_per_device_hour: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The valid repeats, one or more, of one configuration, host, case and run: what could be deployed as it was measured."""

    trials: tuple[TrialRecord, ...]
    price: Price | None = None

    @property
    def first(self) -> TrialRecord:
        """Stands for what the repeats share."""
        return self.trials[0]

    @property
    def precision(self) -> str | None:
        return running_precision(self.first.case, self.first.engine)

    @property
    def boards(self) -> tuple[DeviceInfo, ...]:
        return tuple(device for device in self.first.devices if device.scope in BOARD_SCOPES)

    @property
    def devices(self) -> tuple[str, ...]:
        """The name of each board; of a machine without any, of its CPU."""
        return tuple(sorted(board.name for board in self.boards)) or (self.first.host.cpu_model or "CPU",)


def candidates(records: Iterable[TrialRecord], prices: Mapping[PoolKey, Price] | None = None) -> list[Candidate]:
    """The valid trials of `records` by what repeats share, in order of first appearance."""
    groups: defaultdict[PoolKey, list[TrialRecord]] = defaultdict(list)
    for record in records:
        if record.status == Status.VALID:
            groups[pool_key(record)].append(record)
    return [Candidate(trials=tuple(group), price=(prices or {}).get(key)) for key, group in groups.items()]


def values(one: Candidate, objective: Objective) -> list[float]:
    """The objective of each repeat that has it."""
    if objective == "tok_per_j":
        return _numbers(one, "tok_per_j")
    tok_per_s = _numbers(one, "output_tok_per_s")
    if objective == "tok_per_s":
        return tok_per_s
    if one.price is None:
        return []
    usd_per_s = one.price.usd_per_device_hour * len(one.devices) / 3600
    return [usd_per_s * 1e6 / rate for rate in tok_per_s if rate > 0.0]


def pooled(one: Candidate, objective: Objective) -> PooledValue | None:
    """The objective over the repeats, with its interval where there are two or more."""
    found = values(one, objective)
    return pooled_value(found, UNITS[objective]) if found else None


def latency(one: Candidate, slo: Slo, quantile: Quantile) -> PooledValue | None:
    """What a limit is about, over the repeats [ms]; None where a repeat lacks it."""
    found = latencies(one, slo, quantile)
    return None if isinstance(found, str) else pooled_value(found, "ms")


def worst_figure(one: Candidate, name: str) -> float | None:
    """The worst of the repeats in `top1_agreement` or `ppl_delta`."""
    found = _numbers(one, name)
    return None if not found else min(found) if name == TOP1 else max(found)


def judged_against(one: Candidate) -> str | None:
    """What answers the correctness figures were made with."""
    return next((metric.source for name in (TOP1, PPL) for metric in _metrics(one, name) if metric.source), None)


def latencies(one: Candidate, slo: Slo, quantile: Quantile) -> list[float] | str:
    """The quantile of each repeat [ms], or why one has none."""
    name = _latency_name(slo, open_loop=one.first.case.load.kind == "open")
    found = []
    for trial in one.trials:
        metric = trial.metrics.get(name)
        value: float | None = getattr(metric, quantile) if metric is not None else None
        if value is None:
            told = metric.reason if metric is not None else None
            few = f"too few requests for a {quantile}" if metric is not None and metric.n else "not measured"
            return f"{name} {quantile}: {told or few}"
        found.append(value)
    return found


def _latency_name(slo: Slo, *, open_loop: bool) -> str:
    """The metric in which a request that failed takes for ever, and in open loop waits from the moment at which it was due."""
    if slo.metric == "tpot":
        return "tpot_ms"
    return "ttft_scheduled_adjusted_ms" if open_loop and slo.metric == "ttft" else f"{slo.metric}_adjusted_ms"


def _metrics(one: Candidate, name: str) -> list[Metric]:
    return [metric for trial in one.trials if (metric := trial.metrics.get(name)) is not None]


def _numbers(one: Candidate, name: str) -> list[float]:
    return [metric.value for metric in _metrics(one, name) if metric.value is not None]


def why(one: Candidate, name: str) -> str:
    """The reason for a metric that no repeat has."""
    return next((metric.reason for metric in _metrics(one, name) if metric.reason), "not measured")


def shared_gain(best: Candidate, other: Candidate) -> float | None:
    """What repeats can't show of two sensors, in logs: nothing on the same boards, None where it is not known."""
    uids = [sorted(board.uid for board in one.boards) for one in (best, other)]
    if uids[0] == uids[1] and best.first.host.host_id == other.first.host.host_id:
        return 0.0
    gains = [_gain(best), _gain(other)]
    return math.hypot(*(math.log1p(gain) for gain in gains if gain is not None)) if None not in gains else None


def _gain(one: Candidate) -> float | None:
    """95% half-width of the sensors' gain as a share; an absolute interval exists only where it is known."""
    known = [metric for metric in _metrics(one, _ENERGY) if metric.value]
    if not known or any(metric.high is None for metric in known):
        return None
    return max(max(metric.terms.get(GAIN, (0.0, 0.0))) / metric.value for metric in known if metric.value)
