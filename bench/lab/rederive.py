"""Stored trials worked out again from their shards: the same events and readings must give the same numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from bench import codec, timing
from bench.errors import StoreError
from bench.records import LoadResult, Measured, Metric, Reason, Status, Telemetry, TrialRecord
from bench.store import parquet
from bench.store.shards import encode_record
from bench.timing.spec import REQUIRED

TOLERANCE = 1e-12
"""Two floats are the same number within this share: sums of another machine may round another way."""

_JUDGED = (Status.VALID, Status.INVALID)
"""States that come from the numbers; the others (an engine died, the run was stopped) come from outside."""

Told = str | int | float | dict[str, tuple[float, float]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One stored value that the shard does not give again. `what` is `METRIC.FIELD`, `status`, `energy_scope` or
    `reasons.CODE.GROUP`; None where a side has no such value.
    """

    what: str
    stored: Told
    recomputed: Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Rederived:
    """What became of one trial. `new`: metrics that the `bench` which measured it did not know. `problem`: why it could not be
    worked out though it has numbers; a trial without any (failed, killed) has nothing to compare: `metrics` is 0 then.
    """

    record: TrialRecord
    metrics: int
    differences: tuple[Difference, ...] = ()
    new: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def agrees(self) -> bool:
        """Nothing differs, and all that has numbers could be worked out."""
        return not self.differences and self.problem is None


def rederive(record: TrialRecord, folder: Path) -> Rederived:
    """Work out the trial in `folder` again and compare. The shard is only read."""
    if not record.metrics:
        return Rederived(record=record, metrics=0)
    try:
        found = recompute(record, folder)
    except StoreError as error:
        return Rederived(record=record, metrics=len(record.metrics), problem=str(error))
    return Rederived(
        record=record, metrics=len(record.metrics), differences=tuple(differences(record, found)), new=new_metrics(record, found)
    )


def recompute(record: TrialRecord, folder: Path) -> Measured:
    """Every metric and reason of a trial, as the session works them out, from what its shard holds.

    Raises: StoreError (a file that is missing or damaged, a trial without a load).
    """
    load, telemetry = _load_result(record, folder), telemetry_of(record, folder)
    return timing.measure(
        record.case,
        load,
        telemetry,
        record.engine_metrics_before,
        record.engine_metrics_after,
        engine=record.engine,
        model=record.model,
        samples=record.engine_samples,
        attached=record.engine is None or not record.engine.pids,
        output_check=record.output_check,
    )


def _load_result(record: TrialRecord, folder: Path) -> LoadResult:
    if record.health is None or record.dataset_hash is None:
        raise StoreError("trial.json does not say how the load went")
    return LoadResult(
        log=parquet.read_log(folder),
        window=record.window,
        health=record.health,
        dataset_hash=record.dataset_hash,
        interrupted=record.status is Status.INTERRUPTED,
        prompts_recycled=record.prompts_recycled,
    )


def telemetry_of(record: TrialRecord, folder: Path) -> Telemetry:
    """The readings of a stored trial, as the timing core takes them. Raises: StoreError."""
    baseline, readings = parquet.read_readings(folder)
    if record.telemetry_period_s is None:
        raise StoreError("trial.json does not say how often devices were polled")
    return Telemetry(
        devices=record.devices,
        readings=readings,
        ends=record.stream_ends,
        problems=record.problems,
        period_s=record.telemetry_period_s,
        idle=record.idle,
        resident=record.resident,
        idle_readings=baseline,
    )


def new_metrics(stored: TrialRecord, found: Measured) -> tuple[str, ...]:
    """Metrics that every trial has by now and this one lacks: whoever measured it did not know them."""
    return tuple(name for name in found.metrics if name in REQUIRED and name not in stored.metrics)


def differences(stored: TrialRecord, found: Measured) -> Iterator[Difference]:
    """What `found` says otherwise than `stored`, in the order of the record, new metrics left out."""
    again = _as_stored(stored, found)
    new = new_metrics(stored, found)
    for name in dict.fromkeys((*stored.metrics, *(name for name in again.metrics if name not in new))):
        yield from _metric_differences(name, stored.metrics.get(name), again.metrics.get(name))
    yield from _reason_differences(stored.reasons, again.reasons)
    if stored.energy_scope != again.energy_scope:
        yield Difference(what="energy_scope", stored=stored.energy_scope, recomputed=again.energy_scope)
    if stored.status in _JUDGED and stored.status != found.status:
        yield Difference(what="status", stored=stored.status.value, recomputed=found.status.value)


def _as_stored(record: TrialRecord, found: Measured) -> TrialRecord:
    """`found` after the way to disk and back, so that only what differs there counts as a difference."""
    made = structs.replace(record, metrics=found.metrics, reasons=found.reasons, energy_scope=found.energy_scope)
    return codec.decode(encode_record(made), TrialRecord)


def _metric_differences(name: str, stored: Metric | None, again: Metric | None) -> Iterator[Difference]:
    if stored is None or again is None:
        yield Difference(what=name, stored=_headline(stored), recomputed=_headline(again))
        return
    for field in structs.fields(Metric):
        old, new = getattr(stored, field.name), getattr(again, field.name)
        if not _same(old, new):
            yield Difference(what=f"{name}.{field.name}", stored=old, recomputed=new)


def _headline(metric: Metric | None) -> Told:
    if metric is None:
        return None
    return next((told for told in (metric.value, metric.p50, metric.reason) if told is not None), "undefined")


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=0.0)
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    return bool(old == new)


def _reason_differences(stored: tuple[Reason, ...], again: tuple[Reason, ...]) -> Iterator[Difference]:
    old, new = ({(r.code, r.group): f"{r.severity}: {r.message}" for r in reasons} for reasons in (stored, again))
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            yield Difference(what=f"reasons.{key[0]}.{key[1]}", stored=old.get(key), recomputed=new.get(key))
