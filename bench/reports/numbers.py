"""The numbers that people choose by, pooled over the repeats of a row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.analysis.pool import pooled_value
from bench.records import Group, Metric, Status, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberColumn:
    """A number of the table. `title` heads it on a terminal, `plain` (with the unit) in text and Markdown."""

    key: str
    title: str
    plain: str
    metric: str
    field: str
    group: Group
    open_metric: str | None = None
    """Taken instead in open loop."""
    stand_in: str | None = None
    """Field shown instead, and marked so, where there is none of `field`."""


COLUMNS = (
    NumberColumn(key="qps", title="QPS", plain="qps", metric="requests_per_s", field="value", group="throughput"),
    NumberColumn(
        key="output", title="Output\ntok/s", plain="output_tok/s", metric="output_tok_per_s", field="value", group="throughput"
    ),
    NumberColumn(
        key="ttft_p50",
        title="TTFT\np50 ms",
        plain="ttft_p50_ms",
        metric="ttft_ms",
        field="p50",
        group="latency",
        open_metric="ttft_scheduled_ms",
    ),
    NumberColumn(
        key="ttft_p99",
        title="TTFT\np99 ms",
        plain="ttft_p99_ms",
        metric="ttft_ms",
        field="p99",
        group="latency",
        open_metric="ttft_scheduled_ms",
        stand_in="p90",
    ),
    NumberColumn(key="tpot_p50", title="TPOT\np50 ms", plain="tpot_p50_ms", metric="tpot_ms", field="p50", group="latency"),
    NumberColumn(
        key="memory", title="Memory\nGiB", plain="memory_GiB", metric="memory_used_peak_b", field="value", group="memory"
    ),
    NumberColumn(
        key="energy", title="J/token", plain="j_per_output_tok", metric="j_per_output_tok", field="value", group="energy"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number of a row, in its metric's unit. `low`, `high`: 95% over `n` repeats; with a single trial only J/token has
    one, that of its measurement. None with its reason where it is missing; `valid` is False where it must not be trusted.
    """

    metric: str
    field: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    valid: bool = True
    reason: str | None = None


def pooled_number(column: NumberColumn, trials: Sequence[TrialRecord]) -> Number:
    """`column` over the valid ones of `trials`; over all of them, marked as not valid, where none is."""
    open_loop = trials[0].case.load.kind == "open"
    name = column.open_metric if open_loop and column.open_metric else column.metric
    trusted = [trial for trial in trials if is_valid(trial, column.group)]
    found = [metric for trial in trusted or trials if (metric := trial.metrics.get(name)) is not None]
    given = [metric for metric in found if getattr(metric, column.field) is not None]
    if not given:
        told = bool(found) or bool(trusted)  # else the trial's own failure says why
        reason = _why_missing(found, column.field) if told else None
        return Number(metric=name, field=column.field, value=None, valid=bool(trusted), reason=reason)
    estimate = pooled_value([getattr(metric, column.field) for metric in given], given[0].unit)
    low, high = estimate.low, estimate.high
    if len(given) == 1 and column.group == "energy":
        low, high = given[0].low, given[0].high
    return Number(
        metric=name,
        field=column.field,
        value=estimate.value,
        low=low,
        high=high,
        n=len(given),
        valid=bool(trusted),
        reason=None if len(given) == len(trusted or trials) else _why_missing(found, column.field),
    )


def stand_in(column: NumberColumn, trials: Sequence[TrialRecord]) -> Number | None:
    """What is shown for a `column` that the sizes of the samples withhold; None where there is nothing either, or where it is
    missing for another reason.
    """
    if column.stand_in is None:
        return None
    number = pooled_number(replace(column, field=column.stand_in), trials)
    metrics = [metric for trial in trials if (metric := trial.metrics.get(number.metric)) is not None]
    return None if number.value is None or any(metric.reason for metric in metrics) else number


def is_valid(record: TrialRecord, group: Group) -> bool:
    """Whether a trial's numbers of `group` may be trusted: the trial is valid, and nothing speaks against the group."""
    against = any(r.severity == "invalid" and r.group in ("all", group) for r in record.reasons)
    return record.status is Status.VALID and not against


def _why_missing(found: Sequence[Metric], field: str) -> str:
    reasons = list(dict.fromkeys(metric.reason for metric in found if metric.reason))
    if reasons:
        return "; ".join(reasons)
    if field == "p99" and found:
        return f"{max(metric.n for metric in found)} samples are too few for a p99"
    return "not recorded"
