"""A metric of one stored trial: its value, its interval, and what the interval is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.cli.choosing import one_trial
from bench.cli.columns import plain_lines
from bench.cli.results import current_lab
from bench.errors import UsageError
from bench.records import Metric, TrialRecord
from bench.store import TrialFilter, records
from bench.store.plans import LATEST
from bench.timing.error_budget import MEANINGS, halves

_SIZES = ("value", "mean", "p50", "p90", "p99", "low", "high")


def stored_trial(results: Path, trial_id: str) -> TrialRecord:
    """The trial whose id begins with `trial_id`; `latest`: the one that started last. Raises: UsageError, StoreError."""
    with current_lab(results) as lab:
        if trial_id != LATEST:
            return one_trial(records(lab, TrialFilter()), trial_id)
        found = records(lab, TrialFilter(run_id=LATEST))
    if not found:
        raise UsageError(f"there is no trial in {results}", hint="bench run quickstart")
    return found[-1]


def trial_lines(record: TrialRecord, name: str) -> Iterator[str]:
    """What this trial says of the metric `name`."""
    metric = record.metrics.get(name)
    yield f"in trial {record.key.trial_id} ({record.case.name}, repeat {record.key.repeat})"
    if metric is None:
        yield f"  none: {(record.error or 'not recorded').splitlines()[0]}"
        return
    told = [f"{size} {number:.5g}" for size in _SIZES if (number := getattr(metric, size)) is not None]
    if told:
        yield f"  {', '.join(told)} {metric.unit}" + (f" ({metric.source})" if metric.source else "")
    if metric.reason:
        yield f"  {metric.reason}"
    if metric.terms:
        yield from (f"  {line}" for line in _budget(metric))


def _budget(metric: Metric) -> list[str]:
    """The error budget: 95% half-widths by cause, the largest first."""
    by_size = sorted(metric.terms.items(), key=lambda term: -max(term[1]))
    together = f"all together{'' if metric.low is not None else ', without the gain, which no source gives'}"
    rows = [(cause, *_widths(metric, width), MEANINGS[cause]) for cause, width in by_size]
    rows.append(("together", *_widths(metric, halves(metric.terms)), together))
    return plain_lines(("term", "below", "above", "share", "what it is"), rows)


def _widths(metric: Metric, width: tuple[float, float]) -> tuple[str, str, str]:
    below, above = width
    share = f"{max(width) / abs(metric.value):.2%}" if metric.value else "-"
    return f"{below:.4g}", f"{above:.4g}", share


def trial_json(record: TrialRecord, name: str) -> dict[str, Any]:
    """The same for machines."""
    metric = record.metrics.get(name)
    terms = {} if metric is None else metric.terms
    return {
        "trial_id": record.key.trial_id,
        **{size: getattr(metric, size, None) for size in _SIZES},
        "reason": record.error or "not recorded" if metric is None else metric.reason,
        "source": getattr(metric, "source", None),
        "terms": {cause: {"below": below, "above": above} for cause, (below, above) in terms.items()},
    }
