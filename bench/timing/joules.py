"""Energy metrics of the headline scope: joules, watts, J per token and per request, each with its interval. Pure.

An interval of J/token combines, in quadrature: the spread between blocks (block bootstrap of joules over tokens), the timing
of the window's ends, what no sensor saw, where tokens of a chunk fall at the window's edges, and the sensor's gain. The
same-board interval leaves the gain out: it cancels when one board is compared with itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from bench.records import FloatArray, Metric
from bench.stats import bootstrap_ratio
from bench.timing.scopes import ScopeEnergy
from bench.timing.spec import scalar, undefined

_FIT_FOR_A_MEAN = frozenset({"part_time_sensor", "counter_stuck", "below_sensor_resolution"})
"""Faults that a mean over an idle window survives: nothing moves there, so its ends matter little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the joules were spent on, per block of the window: None with a reason when it can't be told."""

    output_tokens: FloatArray | None
    total_tokens: FloatArray | None
    completed: FloatArray
    edge_tokens: float
    """Tokens that may lie on either side of the window's edges because their chunk's tokens were spread."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Mean power of the headline scope while nothing was served [W], None with the reason."""

    power_w: float | None
    reason: str | None


def baseline(energy: ScopeEnergy | None, seconds: float, missing: str) -> Baseline:
    """Mean power of an idle window from its energy [W]."""
    if energy is None:
        return Baseline(power_w=None, reason=missing)
    broken = next((fault.message for fault in energy.faults if fault.code not in _FIT_FOR_A_MEAN), None)
    if energy.energy_j is None or broken:
        return Baseline(power_w=None, reason=energy.reason or broken)
    return Baseline(power_w=energy.energy_j / seconds, reason=None)


def energy_metrics(
    energy: ScopeEnergy, seconds: float, work: Work, *, idle: Baseline, resident: Baseline, rng: np.random.Generator
) -> dict[str, Metric]:
    """All metrics of the headline scope whose energy is known."""
    assert energy.energy_j is not None
    found = [
        energy_total("energy_j", energy),
        energy_total("power_mean_w", energy, 1.0 / seconds),
        *_per("j_per_output_tok", energy, work.output_tokens, work, rng),
        *_per("j_per_total_tok", energy, work.total_tokens, work, rng),
        *_per("j_per_request", energy, work.completed, work, rng),
        *_net(energy, seconds, work, resident, rng),
        *baseline_metrics(idle, resident),
    ]
    metrics = {metric.name: metric for metric in found}
    metrics["tok_per_j"] = _inverse(metrics["j_per_output_tok"])
    return metrics


def baseline_metrics(idle: Baseline, resident: Baseline) -> tuple[Metric, Metric]:
    """`idle_power_w` and `resident_power_w` [W]."""
    return _watts("idle_power_w", idle), _watts("resident_power_w", resident)


def _watts(name: str, of: Baseline) -> Metric:
    return undefined(name, of.reason or "not measured") if of.power_w is None else scalar(name, of.power_w)


def _source(energy: ScopeEnergy) -> str:
    return f"{energy.source}; gain error unknown" if energy.gain_j is None else energy.source or ""


def energy_total(name: str, energy: ScopeEnergy, factor: float = 1.0) -> Metric:
    """Joules (or watts) with the absolute interval of the energy itself; none where the gain error is unknown."""
    assert energy.energy_j is not None
    source, value = _source(energy), energy.energy_j * factor
    if energy.gain_j is None:
        return scalar(name, value, source=source)
    below, above = _halves(energy, energy.gain_j)
    return scalar(name, value, low=value - below * factor, high=value + above * factor, source=source)


def _halves(energy: ScopeEnergy, gain_j: float) -> tuple[float, float]:
    """Half-widths below and above the energy [J] from ends, unseen time and gain."""
    assert energy.energy_j is not None
    unseen_below = max(0.0, energy.energy_j - (energy.low_j if energy.low_j is not None else energy.energy_j))
    unseen_above = max(0.0, (energy.high_j if energy.high_j is not None else energy.energy_j) - energy.energy_j)
    return (math.hypot(energy.endpoint_j, unseen_below, gain_j), math.hypot(energy.endpoint_j, unseen_above, gain_j))


def _per(name: str, energy: ScopeEnergy, units: FloatArray | None, work: Work, rng: np.random.Generator) -> list[Metric]:
    """`name` = joules per unit with its absolute interval, and the same-board companion where the table has one."""
    companion = f"{name}_same_board" if name == "j_per_output_tok" else None
    names = [name] if companion is None else [name, companion]
    if units is None:
        return [undefined(each, work.reason) for each in names]
    if float(units.sum()) <= 0.0:
        return [undefined(each, "nothing was completed in the window to spend energy on") for each in names]
    edge = 0.0 if units is work.completed else work.edge_tokens
    same_board = _ratio(name, energy, units, edge=edge, less_j=0.0, rng=rng)
    absolute = _with_gain(same_board, None if energy.gain_j is None else energy.gain_j / float(units.sum()))
    return [absolute] if companion is None else [absolute, replace(same_board, name=companion, source=energy.source)]


def _ratio(name: str, energy: ScopeEnergy, units: FloatArray, *, edge: float, less_j: float, rng: np.random.Generator) -> Metric:
    """(E - `less_j`) / units with every term but the gain."""
    assert energy.energy_j is not None
    assert energy.block_j is not None
    count = float(units.sum())
    value = (energy.energy_j - less_j) / count
    spread = bootstrap_ratio(energy.block_j - less_j / len(units), units, rng)
    assert spread is not None
    assert spread.low is not None
    assert spread.high is not None
    below_j, above_j = _halves(energy, 0.0)
    counted = abs(value) * edge / count
    below = math.hypot(spread.value - spread.low, below_j / count, counted)
    above = math.hypot(spread.high - spread.value, above_j / count, counted)
    return scalar(name, value, low=value - below, high=value + above, n=spread.n, source=_source(energy))


def _with_gain(metric: Metric, gain: float | None) -> Metric:
    """`metric` with a symmetric half-width `gain` added in quadrature; no interval where the gain is unknown."""
    assert metric.value is not None
    assert metric.low is not None
    assert metric.high is not None
    if gain is None:
        return replace(metric, low=None, high=None)
    return replace(
        metric,
        low=metric.value - math.hypot(metric.value - metric.low, gain),
        high=metric.value + math.hypot(metric.high - metric.value, gain),
    )


def _net(energy: ScopeEnergy, seconds: float, work: Work, resident: Baseline, rng: np.random.Generator) -> list[Metric]:
    names = ("energy_net_j", "j_per_output_tok_net")
    if resident.power_w is None:
        return [undefined(name, resident.reason or "no resident window") for name in names]
    assert energy.energy_j is not None
    idle_j = resident.power_w * seconds
    net_j = energy.energy_j - idle_j
    if net_j <= 0.0:
        return [undefined(name, f"{energy.energy_j:.4g} J is not above the resident idle's {idle_j:.4g} J") for name in names]
    total = scalar("energy_net_j", net_j, source=energy.source)
    if work.output_tokens is None:
        return [total, undefined("j_per_output_tok_net", work.reason)]
    if float(work.output_tokens.sum()) <= 0.0:
        return [total, undefined("j_per_output_tok_net", "no token arrived in the window")]
    ratio = _ratio("j_per_output_tok_net", energy, work.output_tokens, edge=work.edge_tokens, less_j=idle_j, rng=rng)
    # the same gain error sits in both terms of the difference, so what is left of it scales with the net energy
    gain = None if energy.gain_j is None else energy.gain_j / energy.energy_j * (ratio.value or 0.0)
    return [total, _with_gain(ratio, gain)]


def _inverse(metric: Metric) -> Metric:
    """tok/J from J/tok: the ends of the interval change places."""
    if metric.value is None or metric.value <= 0.0:
        return undefined("tok_per_j", metric.reason or "no energy was drawn")
    high = 1.0 / metric.low if metric.low is not None and metric.low > 0.0 else None
    low = 1.0 / metric.high if metric.high is not None else None
    return scalar("tok_per_j", 1.0 / metric.value, low=low, high=high, n=metric.n, source=metric.source)
