"""What a report tells of, out of the results: its trials, a power to draw, the nights of its series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench import clock
from bench.analysis.ab import paired_cases
from bench.analysis.compare_pairs import Compared
from bench.analysis.pool import pool_key
from bench.analysis.series import SeriesHistory
from bench.errors import StoreError
from bench.lab.compare import compare
from bench.lab.compare_select import quoted, table_for
from bench.lab.gate import histories
from bench.lab.rederive import telemetry_of
from bench.records import Status, TrialRecord
from bench.reports.html import Report, Trace
from bench.reports.rows import last_attempts, newest
from bench.store import Lab, TrialFilter, layout, records, records_in
from bench.store.findings import read_accepted
from bench.store.sql import ask

_TRACES_TRIED = 20
"""Trials whose readings are looked at for a power to draw."""


def report_of_last_runs(lab: Lab) -> Report:
    """The last run of each case. Raises: StoreError."""
    return _report(lab, Report(chosen="latest", records=newest(records(lab, last_runs=True)), made_ns=clock.SYSTEM.wall_ns()))


def report_of_run(lab: Lab, run_id: str) -> Report:
    """One run; `latest` is the one that started last. Raises: UsageError, StoreError."""
    found = records(lab, TrialFilter(run_id=run_id))
    named = found[0].key.run_id if found else run_id
    report = Report(
        chosen="run", named=(named,), records=found, pairs=paired_cases(last_attempts(found)), made_ns=clock.SYSTEM.wall_ns()
    )
    return _report(lab, report)


def report_of(lab: Lab, where: str) -> Report:
    """The trials that meet an SQL condition. Raises: UsageError (bad SQL), StoreError."""
    return _report(lab, Report(chosen="filter", named=(where,), records=_where(lab, where), made_ns=clock.SYSTEM.wall_ns()))


def report_of_comparison(lab: Lab, base: str, cand: str) -> Report:
    """Two selections, named as in `bench compare`, and their trials. Raises: UsageError, StoreError."""
    found = compare(lab, base, cand)
    report = Report(
        chosen="compare", named=(base, cand), records=_compared(lab, found), compared=found, made_ns=clock.SYSTEM.wall_ns()
    )
    return _report(lab, report)


def _report(lab: Lab, report: Report) -> Report:
    found = last_attempts(report.records)
    return replace(report, records=found, trace=_trace(lab, found), histories=_histories(lab, found))


def _where(lab: Lab, where: str) -> list[TrialRecord]:
    query = f"SELECT shard FROM {table_for(lab, where)} WHERE {where} ORDER BY started_at, run_id, case_id, repeat, trial_id"  # noqa: S608
    return records_in(lab.results, (shard for (shard,) in ask(lab, query).rows))


def _compared(lab: Lab, found: Sequence[Compared]) -> list[TrialRecord]:
    """The trials of all points that were compared, or that stand alone."""
    points = [point for one in found for point in (one.pair.base, one.pair.cand) if point is not None]
    meant = {point.key for point in points}
    runs = ", ".join(sorted({quoted(point.run_id) for point in points}))
    trials = _where(lab, f"run_id IN ({runs})") if points else []
    return [one for one in trials if pool_key(one) in meant]


def _histories(lab: Lab, found: Sequence[TrialRecord]) -> list[SeriesHistory]:
    series = sorted({record.series_id for record in found if record.series_id is not None})
    if not series:
        return []
    return histories(lab, read_accepted(lab.results), where=f"series_id IN ({', '.join(map(quoted, series))})")


def _trace(lab: Lab, found: Sequence[TrialRecord]) -> Trace | None:
    """The newest trial with a power to draw, a valid one before all others."""
    able = [record for record in found if record.window is not None and layout.TELEMETRY in record.files]
    able.sort(key=lambda record: (record.status is not Status.VALID, -record.started.wall_ns))
    for record in able[:_TRACES_TRIED]:
        try:
            telemetry = telemetry_of(record, lab.results / layout.shard_path(record))
        except StoreError:
            continue  # the report is about what can be read; `bench rederive` tells of what can't
        trace = Trace(record=record, telemetry=telemetry)
        if trace.watts:
            return trace
    return None
