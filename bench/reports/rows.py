"""Trial records to the rows of a table: one row per configuration, host, run and case, pooled over repeats. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.analysis.pool import pooled_value
from bench.records import Case, Group, LoadSpec, Metric, Status, TrialRecord

MISSING_TEXT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberColumn:
    """A number that people choose by. `title` for terminals, `plain` (with the unit) for text and Markdown."""

    key: str
    title: str
    plain: str
    metric: str
    field: str
    group: Group
    open_metric: str | None = None
    """Taken instead in open loop."""


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
    ),
    NumberColumn(key="tpot_p50", title="TPOT\np50 ms", plain="tpot_p50_ms", metric="tpot_ms", field="p50", group="latency"),
    NumberColumn(key="memory", title="Memory", plain="memory_GiB", metric="memory_used_peak_b", field="value", group="memory"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: `trials` are the repeats behind it, oldest first; `notes` say what is not plain."""

    trials: tuple[TrialRecord, ...]
    numbers: dict[str, Number]
    status: str
    notes: tuple[str, ...]

    @property
    def first(self) -> TrialRecord:
        """Stands for what the repeats share."""
        return self.trials[0]

    @property
    def case(self) -> Case:
        return self.first.case

    @property
    def open_loop(self) -> bool:
        return self.case.load.kind == "open"

    @property
    def precision(self) -> str:
        engine = self.first.engine
        return (engine.precision if engine else None) or self.case.precision or MISSING_TEXT

    @property
    def devices(self) -> str:
        return device_label(self.first)


def rows(records: Sequence[TrialRecord], *, pooled: bool = True) -> list[Row]:
    """The rows of `records`, sorted by model, precision, engine, devices and load; `pooled` False gives one row a trial."""
    groups = _grouped(records) if pooled else [[record] for record in records]
    made = [_row(tuple(sorted(group, key=_age))) for group in groups]
    return sorted(made, key=_order)


def newest(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials of each case's last run on a host. A run without a valid trial never hides an earlier one that has some:
    then both stay.
    """
    last: dict[tuple[str, str, bool], TrialRecord] = {}
    valid_runs = {_run_of(record) for record in records if record.status is Status.VALID}
    for record in sorted(records, key=_age):
        last[(record.key.case_id, record.host.host_id, _run_of(record) in valid_runs)] = record
    kept = set()
    for (case_id, host_id, good), record in last.items():
        better = last.get((case_id, host_id, True))
        if good or better is None or _age(better) < _age(record):
            kept.add(_run_of(record))
    return [record for record in records if _run_of(record) in kept]


def _run_of(record: TrialRecord) -> tuple[str, str, str]:
    return record.key.run_id, record.key.case_id, record.host.host_id


def _age(record: TrialRecord) -> tuple[int, int, str]:
    return record.started.wall_ns, record.key.repeat, record.key.trial_id


def _order(row: Row) -> tuple[object, ...]:
    case, load = row.case, row.case.load
    setting = (case.model, row.precision, case.engine, row.devices)
    size = (load.batch_size or 0, load.request_rate or 0.0, case.input_tokens.mean, case.output_tokens.mean)
    return *setting, load.kind, *size, _age(row.first)


def _grouped(records: Sequence[TrialRecord]) -> list[list[TrialRecord]]:
    """Repeats of one configuration on one host. A trial that failed before its configuration was known joins the repeats
    of its case where there is only one such group.
    """
    groups: dict[tuple[str | None, ...], list[TrialRecord]] = {}
    for record in records:
        key = record.key
        groups.setdefault((key.run_id, key.case_id, key.role, record.config_id, record.host.host_id), []).append(record)
    for lost in [ids for ids in groups if ids[3] is None]:
        homes = [ids for ids in groups if ids[:3] == lost[:3] and ids[3] is not None]
        if len(homes) == 1:
            groups[homes[0]] += groups.pop(lost)
    return list(groups.values())


def _row(trials: tuple[TrialRecord, ...]) -> Row:
    numbers = {column.key: _number(column, trials) for column in COLUMNS}
    return Row(trials=trials, numbers=numbers, status=_status(trials), notes=_notes(trials, numbers))


def _number(column: NumberColumn, trials: Sequence[TrialRecord]) -> Number:
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


def _status(trials: Sequence[TrialRecord]) -> str:
    valid = sum(trial.status is Status.VALID for trial in trials)
    times = f" x{len(trials)}" if len(trials) > 1 else ""
    if valid == len(trials):
        return f"valid{times}"
    if valid:
        return f"{valid}/{len(trials)} valid"
    kinds = {trial.status.value for trial in trials}
    return (kinds.pop() if len(kinds) == 1 else "not valid") + times


def _notes(trials: Sequence[TrialRecord], numbers: dict[str, Number]) -> tuple[str, ...]:
    notes: list[str] = []
    for trial in trials:
        which = f"repeat {trial.key.repeat}: " if len(trials) > 1 else ""
        notes += [f"{which}{text}" for text in _trial_notes(trial)]
    titles: dict[str, list[str]] = {}
    for column in COLUMNS:
        number = numbers[column.key]
        if number.reason is not None:
            reason = number.reason if number.value is None else f"only {number.n} of {len(trials)} repeats ({number.reason})"
            titles.setdefault(reason, []).append(column.title.replace("\n", " "))
    notes += [f"{', '.join(names)}: {reason}" for reason, names in titles.items()]
    return tuple(dict.fromkeys(notes))


def _trial_notes(trial: TrialRecord) -> list[str]:
    notes = []
    if trial.status is not Status.VALID and trial.error:
        notes.append(f"{trial.status.value}: {trial.error.splitlines()[0]}")
    notes += [f"{r.severity} ({r.group}), {r.code}: {r.message}" for r in trial.reasons]
    return notes or ([] if trial.status is Status.VALID else [f"{trial.status.value}: no reason was recorded"])


def device_label(record: TrialRecord) -> str:
    """`2x NVIDIA H200`; for CPU-only trials the CPU; `endpoint` where an attached endpoint's boards were not named."""
    boards = Counter(d.name for d in record.devices if d.scope in ("accelerator", "module"))
    if boards:
        return ", ".join(name if count == 1 else f"{count}x {name}" for name, count in sorted(boards.items()))
    if record.engine is None:
        return ", ".join(record.case.devices) or MISSING_TEXT
    if not record.engine.pids:
        return "endpoint"
    return record.host.cpu_model or "CPU"


def load_label(load: LoadSpec) -> str:
    """`8` requests in flight, `5/s` in open loop, `inf` for all at once; with the number of requests where it is bound."""
    if load.kind == "closed":
        text = MISSING_TEXT if load.batch_size is None else str(load.batch_size)
    else:
        text = "inf" if load.request_rate is None else f"{load.request_rate:g}/s"
    return text if load.num_prompts is None else f"{text} n={load.num_prompts}"
