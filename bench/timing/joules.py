"""Energy metrics of the headline scope: joules, watts, J per token and per request, each with its interval. Pure.

The absolute interval combines every term of `error_budget`; the `_same_board` one leaves the sensor's gain out, because it
cancels when one board is compared with itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from bench.records import FloatArray, Metric
from bench.stats import bootstrap_ratio
from bench.timing.error_budget import GAIN, Terms, bounded, energy_terms, same_board, scaled
from bench.timing.scopes import ScopeEnergy
from bench.timing.slow_noise import half_width, reach
from bench.timing.spec import PER_UNIT, SPECS, scalar, undefined

_FIT_FOR_A_MEAN = frozenset({"power_gap", "part_time_sensor", "counter_stuck", "below_sensor_resolution", "aliased"})
"""Faults that a mean over an idle window survives: nothing moves there, so its ends matter little."""
WH_PER_1000_REQUESTS = 1000.0 / 3600.0
"""Watt-hours for a thousand requests in one joule a request."""


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
    """Mean power of the headline scope while nothing was served [W], None with the reason.

    `half_w`: 95% half-width from its blocks and ends. `gain_w`: half-width from the sensor's gain, None where unknown.
    """

    power_w: float | None
    reason: str | None
    half_w: float = 0.0
    gain_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Joules to be shared out: all of them, or those above the resident idle."""

    value_j: float
    block_j: FloatArray
    block_s: float
    terms: Terms
    source: str
    bare_source: str


def baseline(energy: ScopeEnergy | None, seconds: float, missing: str) -> Baseline:
    """Mean power of an idle window from its energy [W]."""
    if energy is None:
        return Baseline(power_w=None, reason=missing)
    broken = next((fault.message for fault in energy.faults if fault.code not in _FIT_FOR_A_MEAN), None)
    if energy.energy_j is None or energy.block_j is None or broken:
        return Baseline(power_w=None, reason=energy.reason or broken)
    n = len(energy.block_j)
    block_w = energy.block_j * n / seconds
    spread_w = half_width(block_w, seconds / n)
    return Baseline(
        power_w=energy.energy_j / seconds,
        reason=None,
        half_w=math.hypot(spread_w, energy.endpoint_j / seconds),
        gain_w=None if energy.gain_j is None else energy.gain_j / seconds,
    )


def energy_metrics(
    energy: ScopeEnergy, seconds: float, work: Work, *, idle: Baseline, resident: Baseline, rng: np.random.Generator
) -> dict[str, Metric]:
    """All metrics of the headline scope whose energy is known."""
    gross = _gross(energy, seconds)
    net = _net(energy, gross, seconds, resident)
    found = [
        energy_total("energy_j", energy),
        energy_total("power_mean_w", energy, 1.0 / seconds),
        _other(energy),
        undefined("energy_net_j", net) if isinstance(net, str) else _of("energy_net_j", net),
        *_shared_out("j_per_output_tok", (gross, net), work.output_tokens, work, rng),
        *_shared_out("j_per_total_tok", (gross, net), work.total_tokens, work, rng),
        *_shared_out("j_per_request", (gross, net), work.completed, work, rng),
        *baseline_metrics(idle, resident),
    ]
    metrics = {metric.name: metric for metric in found}
    for ending in ("", "_same_board"):
        metrics[f"tok_per_j{ending}"] = _inverse(f"tok_per_j{ending}", metrics[f"j_per_output_tok{ending}"])
    metrics["wh_per_1000_requests"] = _times("wh_per_1000_requests", metrics["j_per_request"], WH_PER_1000_REQUESTS)
    return metrics


def baseline_metrics(idle: Baseline, resident: Baseline) -> tuple[Metric, Metric]:
    """`idle_power_w` and `resident_power_w` [W]."""
    return _watts("idle_power_w", idle), _watts("resident_power_w", resident)


def _watts(name: str, of: Baseline) -> Metric:
    if of.power_w is None:
        return undefined(name, of.reason or "not measured")
    terms: Terms = {"blocks": (of.half_w, of.half_w)}
    return bounded(name, of.power_w, terms if of.gain_w is None else terms | {GAIN: (of.gain_w, of.gain_w)})


def _source(energy: ScopeEnergy) -> str:
    return f"{energy.source}; gain error unknown" if energy.gain_j is None else energy.source or ""


def energy_total(name: str, energy: ScopeEnergy, factor: float = 1.0) -> Metric:
    """Joules (or watts) with the absolute interval of the energy itself; none where the gain error is unknown."""
    assert energy.energy_j is not None
    terms = energy_terms(energy, energy.gain_j)
    return bounded(name, energy.energy_j * factor, scaled(terms, factor), source=_source(energy))


def _other(energy: ScopeEnergy) -> Metric:
    """What the method that was not used says, for comparison."""
    if energy.other_j is None:
        return undefined("energy_other_j", "there is one method only")
    return scalar("energy_other_j", energy.other_j, source="integral" if energy.source == "counter" else "the other method")


# --- gross and net ----------------------------------------------------------------------------------------------------


def _gross(energy: ScopeEnergy, seconds: float) -> _Cost:
    assert energy.energy_j is not None
    assert energy.block_j is not None
    return _Cost(
        value_j=energy.energy_j,
        block_j=energy.block_j,
        block_s=seconds / len(energy.block_j),
        terms=energy_terms(energy, energy.gain_j),
        source=_source(energy),
        bare_source=energy.source or "",
    )


def _net(energy: ScopeEnergy, gross: _Cost, seconds: float, resident: Baseline) -> _Cost | str:
    """What is above the resident idle, or why that has no value."""
    if resident.power_w is None:
        return resident.reason or "no resident window"
    idle_j, idle_half_j = resident.power_w * seconds, resident.half_w * seconds
    net_j = gross.value_j - idle_j
    if net_j <= 0.0:
        return f"{gross.value_j:.4g} J is not above the resident idle's {idle_j:.4g} J"
    # the same gain error sits in both terms of the difference, so what is left of it scales with the net energy
    gain_j = None if energy.gain_j is None else energy.gain_j / gross.value_j * net_j
    terms = energy_terms(energy, gain_j) | {"idle": (idle_half_j, idle_half_j)}
    return replace(gross, value_j=net_j, block_j=gross.block_j - idle_j / len(gross.block_j), terms=terms)


def _of(name: str, cost: _Cost) -> Metric:
    return bounded(name, cost.value_j, cost.terms, source=cost.source)


# --- per unit ---------------------------------------------------------------------------------------------------------


def _shared_out(
    base: str, costs: tuple[_Cost, _Cost | str], units: FloatArray | None, work: Work, rng: np.random.Generator
) -> list[Metric]:
    """`base` gross and net, each with its absolute interval and its `_same_board` companion."""
    if units is None or float(units.sum()) <= 0.0:
        reason = work.reason if units is None else "nothing was completed in the window to spend energy on"
        return [undefined(f"{base}{ending}", reason) for ending in PER_UNIT]
    edge = 0.0 if units is work.completed else work.edge_tokens
    found: list[Metric] = []
    for name, cost in zip((base, f"{base}_net"), costs, strict=True):
        if isinstance(cost, str):
            found += [undefined(name, cost), undefined(f"{name}_same_board", cost)]
            continue
        absolute = _per_unit(name, cost, units, edge, rng)
        found += [absolute, same_board(f"{name}_same_board", absolute, cost.bare_source)]
    return found


def _per_unit(name: str, cost: _Cost, units: FloatArray, edge: float, rng: np.random.Generator) -> Metric:
    count = float(units.sum())
    value = cost.value_j / count
    spread = bootstrap_ratio(cost.block_j, units, rng, reach=reach(cost.block_j - value * units, cost.block_s))
    assert spread is not None
    assert spread.low is not None
    assert spread.high is not None
    counted = abs(value) * edge / count
    terms = {"blocks": (spread.value - spread.low, spread.high - spread.value), "token_count": (counted, counted)}
    return bounded(name, value, terms | scaled(cost.terms, 1.0 / count), n=spread.n, source=cost.source)


def _inverse(name: str, metric: Metric) -> Metric:
    """tok/J from J/tok: the ends of the interval change places."""
    if metric.value is None or metric.value <= 0.0:
        return undefined(name, metric.reason or "no energy was drawn")
    high = 1.0 / metric.low if metric.low is not None and metric.low > 0.0 else None
    low = 1.0 / metric.high if metric.high is not None else None
    return scalar(name, 1.0 / metric.value, low=low, high=high, n=metric.n, source=metric.source)


def _times(name: str, metric: Metric, factor: float) -> Metric:
    """`metric` in another unit, under another name."""
    if metric.value is None:
        return undefined(name, metric.reason or "not measured")
    ends = [None if end is None else end * factor for end in (metric.low, metric.high)]
    terms = scaled(metric.terms, factor)
    unit = SPECS[name].unit
    return structs.replace(metric, name=name, unit=unit, value=metric.value * factor, low=ends[0], high=ends[1], terms=terms)
