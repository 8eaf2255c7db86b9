"""Trial records to the rows of a table: one row per configuration, host, run and case, pooled over repeats. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.records import BOARD_SCOPES, Case, LoadSpec, Status, TrialRecord
from bench.reports.notes import Note, ended_early, row_notes
from bench.reports.numbers import COLUMNS, Number, pooled_number, stand_in
from bench.timing.normalise import running_precision

MISSING_TEXT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: `trials` are the repeats behind it, oldest first; `notes` say what is not plain. `stand_ins` are
    shown where a number is missing, by the same key.
    """

    trials: tuple[TrialRecord, ...]
    numbers: dict[str, Number]
    stand_ins: dict[str, Number]
    status: str
    notes: tuple[Note, ...]

    @property
    def first(self) -> TrialRecord:
        """Stands for what the repeats share."""
        return self.trials[0]

    @property
    def case(self) -> Case:
        return self.first.case

    @property
    def valid(self) -> int:
        """How many of the trials are."""
        return sum(trial.status is Status.VALID for trial in self.trials)

    @property
    def ended_early(self) -> bool:
        """Whether no trial got as far as being judged."""
        return ended_early(self.trials)

    @property
    def open_loop(self) -> bool:
        return self.case.load.kind == "open"

    @property
    def precision(self) -> str:
        return running_precision(self.case, self.first.engine) or MISSING_TEXT

    @property
    def devices(self) -> str:
        return device_label(self.first)

    @property
    def load(self) -> str:
        return load_label(self.case.load)

    @property
    def lengths(self) -> str:
        """Mean tokens in and out, as asked for: `64/32`."""
        return f"{self.case.input_tokens.mean}/{self.case.output_tokens.mean}"


def rows(records: Sequence[TrialRecord], *, pooled: bool = True) -> list[Row]:
    """The rows of `records`, sorted by model, precision, engine, devices and load. `pooled` False gives one row a trial, also
    those that a resumed run has measured again.
    """
    groups = _grouped(last_attempts(records)) if pooled else [[record] for record in records]
    made = [_row(tuple(sorted(group, key=_age))) for group in groups]
    return sorted(made, key=_order)


def last_attempts(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """`records` without trials that a resumed run has measured again."""
    last: dict[tuple[str, str, int, str], int] = {}
    for record in records:
        last[_point_of(record)] = max(record.key.attempt, last.get(_point_of(record), 0))
    return [record for record in records if record.key.attempt == last[_point_of(record)]]


def _point_of(record: TrialRecord) -> tuple[str, str, int, str]:
    key = record.key
    return key.run_id, key.case_id, key.repeat, key.role


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
    numbers = {column.key: pooled_number(column, trials) for column in COLUMNS}
    missing = [column for column in COLUMNS if numbers[column.key].value is None]
    shown = {column.key: number for column in missing if (number := stand_in(column, trials)) is not None}
    notes = row_notes(trials, numbers, shown)
    return Row(trials=trials, numbers=numbers, stand_ins=shown, status=_status(trials), notes=notes)


def _status(trials: Sequence[TrialRecord]) -> str:
    valid = sum(trial.status is Status.VALID for trial in trials)
    times = f" x{len(trials)}" if len(trials) > 1 else ""
    if valid == len(trials):
        return f"valid{times}"
    if valid:
        return f"{valid}/{len(trials)} valid"
    kinds = {trial.status.value for trial in trials}
    return (kinds.pop() if len(kinds) == 1 else "not valid") + times


def device_label(record: TrialRecord) -> str:
    """`2x NVIDIA H200`; for CPU-only trials the CPU; `endpoint` where an attached endpoint's boards were not named."""
    boards = [device.name for device in record.devices if device.scope in BOARD_SCOPES]
    if boards:
        return counted(boards)
    if record.engine is None:
        return ", ".join(record.case.devices) or MISSING_TEXT
    if not record.engine.pids:
        return "endpoint"
    return record.host.cpu_model or "CPU"


def counted(names: Iterable[str]) -> str:
    """`2x NVIDIA H200, Tesla T4`."""
    return ", ".join(name if count == 1 else f"{count}x {name}" for name, count in sorted(Counter(names).items()))


def load_label(load: LoadSpec) -> str:
    """`batch 8`: requests in flight; `5/s poisson`; `burst` for all at once; `batch 1-64` or `1-10/s` for stages; `trace x2`;
    with the number of requests where it is bound: `batch 8 n=100`.
    """
    if load.stages:
        ends = [end for stage in load.stages for end in (stage.start, stage.end)]
        span = f"{min(ends):g}-{max(ends):g}"
        text = f"{span}/s" if load.kind == "open" else f"batch {span}"
    elif load.arrivals == "trace":
        text = f"trace x{load.speed or 1:g}"
    elif load.kind == "closed":
        text = MISSING_TEXT if load.batch_size is None else f"batch {load.batch_size}"
    elif load.request_rate is None:
        text = "burst"
    else:
        text = f"{load.request_rate:g}/s" + (f" {load.arrivals}" if load.arrivals else "")
    return text if load.num_prompts is None else f"{text} n={load.num_prompts}"
