"""What the numbers of one imported result contradict in each other, so that it is told and not only kept. Pure."""

from __future__ import annotations

from itertools import pairwise

from bench.imported import ImportedResult

_ROUNDED = 1 + 1e-6
"""Two numbers that a tool rounded each for itself may be so far apart."""


def contradictions(one: ImportedResult) -> tuple[str, ...]:
    """A note for each, which begins with `impossible`."""
    return (*_counts(one), *_orders(one), *_sums(one))


def _counts(one: ImportedResult) -> list[str]:
    ended = (one.requests_ok or 0) + (one.requests_failed or 0)
    if one.num_prompts is None or ended <= one.num_prompts:
        return []
    return [f"impossible: {ended} requests completed or failed, of {one.num_prompts} in all"]


def _orders(one: ImportedResult) -> list[str]:
    found = []
    for metric in one.metrics:
        known = [(name, value) for name in ("p50", "p90", "p99") if (value := getattr(metric, name)) is not None]
        for (low, small), (high, large) in pairwise(known):
            if small > large * _ROUNDED:
                found.append(f"impossible: {metric.name} has a {low} of {small:g} above its {high} of {large:g}")
    return found


def _sums(one: ImportedResult) -> list[str]:
    values = {metric.name: metric.value for metric in one.metrics}
    output, total = values.get("output_tok_per_s"), values.get("total_tok_per_s")
    if output is None or total is None or output <= total * _ROUNDED:
        return []
    return [f"impossible: {output:g} output tok/s of {total:g} tok/s in all"]
