"""How many chips of a kind a result is worth on its workload: beside what was measured on such chips, and beside their roofline.
Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.analysis.compare import Point, Ratio, mean_ratio
from bench.catalog.chips import Chip
from bench.records import TrialRecord
from bench.timing.normalise import Hardware, Rates
from bench.timing.roofline import By, Costs, may_be_cached, output_bound, peaks

OUTPUT = "output_tok_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """`ratio` in chips, beside the best of `candidates` points measured on such chips, `reference`: `chips` of them."""

    ratio: Ratio
    reference: Point
    chips: int
    tok_per_s_per_chip: float
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """From the roofline alone: `least` chips would do, if they reached the bound of `tok_per_s` each; `alike` if they came as
    near to theirs as this result to its own, None where its own isn't known. `fits`: chips that the weights need. `cached`: the
    bound is that of their memory, and they may do more, as so few weights may come out of their caches.
    """

    least: float
    alike: float | None
    tok_per_s: float
    by: By
    fits: int
    cached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalents:
    """What a result is worth in chips: the mean of its `repeats` is `tok_per_s`. Where a figure is None its reason says why."""

    record: TrialRecord
    tok_per_s: float
    repeats: int
    hardware: Hardware
    chip: Chip
    measured: Measured | None
    measured_reason: str | None
    modelled: Modelled | None
    modelled_reason: str | None


def against_measured(own: Point, others: Sequence[tuple[Point, int]]) -> Measured | None:
    """Beside the best of `others` (a point, and how many of the chips it ran on) per chip; None where there is none."""
    rated = [(math.exp(_mean_log(point) - math.log(count)), point, count) for point, count in others if _positive(point)]
    if not rated or not _positive(own):
        return None
    best, reference, count = max(rated, key=lambda one: one[0])
    each = [value / count for value in reference.samples[OUTPUT].values]
    return Measured(
        ratio=mean_ratio(each, own.samples[OUTPUT].values),
        reference=reference,
        chips=count,
        tok_per_s_per_chip=best,
        candidates=len(rated),
    )


def _positive(point: Point) -> bool:
    values = point.samples[OUTPUT].values if OUTPUT in point.samples else ()
    return bool(values) and min(values) > 0.0


def _mean_log(point: Point) -> float:
    values = point.samples[OUTPUT].values
    return sum(math.log(value) for value in values) / len(values)


def against_roofline(
    done: Rates, cost: Costs, chip: Chip, own: Sequence[Chip], *, tok_per_s: float, precision: str | None
) -> Modelled | str:
    """Beside the bound of one `chip`, with as many sequences at once as here; or why there is none. Chips are taken to share the
    work without loss, so that n of them have n times the bound.
    """
    bound = _bound_s(done, cost, [chip], precision)
    if isinstance(bound, str):
        return bound
    seconds, by = bound
    here = _bound_s(done, cost, own, precision) if own else "no chip"
    least = tok_per_s * seconds
    return Modelled(
        least=least,
        alike=None if isinstance(here, str) else seconds / here[0],
        tok_per_s=1.0 / seconds,
        by=by,
        fits=math.ceil(cost.parameters * cost.weight_b / (max(chip.memory_gb) * 1e9)),
        cached=by == "memory" and may_be_cached(cost, max(math.ceil(least), 1)),
    )


def _bound_s(done: Rates, cost: Costs, chips: Sequence[Chip], precision: str | None) -> tuple[float, By] | str:
    """Least time per output token [s], and what bounds it."""
    able = peaks(chips, precision)
    if able.flop_per_s is None or able.bytes_per_s is None:
        return able.flop_reason or able.bytes_reason or "no peak"
    sequences = done.sequences * done.replicas
    bound = output_bound(
        cost,
        able.flop_per_s,
        able.bytes_per_s,
        sequences=sequences,
        input_tokens=done.input_tokens,
        output_tokens=done.output_tokens,
    )
    return bound.seconds, bound.by
