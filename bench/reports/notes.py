"""What is not plain about a row: errors, reasons and missing numbers, each thing once however many repeats say it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.records import Status, TrialRecord
from bench.reports.numbers import COLUMNS, Number

TITLES = {column.key: column.title.replace("\n", " ") for column in COLUMNS}
PLAIN = {column.key: column.plain for column in COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence. `columns`: keys of the numbers that it is about; `stands_in`: another number is shown in their place."""

    text: str
    columns: tuple[str, ...] = ()
    stands_in: bool = False

    def spelled(self, names: Mapping[str, str]) -> str:
        """With the columns named as the table's header names them."""
        return f"{', '.join(names[key] for key in self.columns)}: {self.text}" if self.columns else self.text


def row_notes(trials: Sequence[TrialRecord], numbers: Mapping[str, Number], stand_ins: Mapping[str, Number]) -> tuple[Note, ...]:
    """The notes of a row: first what its trials say of themselves, then why numbers are missing. Where every trial ended
    early, its error has said that.
    """
    told = [Note(text=text) for text in _trial_texts(trials)]
    return (*told, *(() if ended_early(trials) else _missing(len(trials), numbers, stand_ins)))


def ended_early(trials: Sequence[TrialRecord]) -> bool:
    """Whether no trial got as far as being judged."""
    return all(trial.status not in (Status.VALID, Status.INVALID) for trial in trials)


def _missing(count: int, numbers: Mapping[str, Number], stand_ins: Mapping[str, Number]) -> list[Note]:
    alike: dict[tuple[str, bool], list[str]] = {}
    for key, number in numbers.items():
        if number.reason is not None:
            text = number.reason if number.value is None else f"only {number.n} of {count} repeats ({number.reason})"
            alike.setdefault((text, key in stand_ins), []).append(key)
    return [Note(text=text, columns=tuple(keys), stands_in=stands_in) for (text, stands_in), keys in alike.items()]


def _trial_texts(trials: Sequence[TrialRecord]) -> list[str]:
    """One line for each thing that was said, with the repeats that it is said of where it isn't all of them."""
    return [_line(_head(subject), messages, len(trials)) for subject, messages in said(trials).items()]


def _head(subject: Subject) -> str:
    return subject.kind if subject.code is None else f"{subject.kind} ({', '.join(subject.groups)}), {subject.code}"


def _line(head: str, messages: Mapping[str, Sequence[int]], count: int) -> str:
    if len(messages) == 1:
        ((message, which),) = messages.items()
        return f"{head}: {message}" if len(which) == count else f"{_repeats(which)}: {head}: {message}"
    parts = (message if len(which) == count else f"{_repeats(which)}: {message}" for message, which in messages.items())
    return f"{head}: {'; '.join(parts)}"


def _repeats(which: Sequence[int]) -> str:
    return f"repeat{'s' * (len(which) > 1)} {', '.join(map(str, which))}"


# --- what trials say of themselves ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a message of a trial is about. `kind`: a reason's severity, with its groups of metrics and its code; how the trial
    ended where that is all.
    """

    kind: str
    groups: tuple[str, ...] = ()
    code: str | None = None


def said(trials: Sequence[TrialRecord]) -> dict[Subject, dict[str, list[int]]]:
    """The messages about each subject, and the repeats that say each."""
    found: dict[Subject, dict[str, list[int]]] = {}
    for trial in trials:
        for subject, message in _sayings(trial):
            found.setdefault(subject, {}).setdefault(message, []).append(trial.key.repeat)
    return found


def _sayings(trial: TrialRecord) -> list[tuple[Subject, str]]:
    """An error explains all reasons that follow from it."""
    ended = Subject(kind=trial.status.value)
    if trial.status is not Status.VALID and trial.error:
        return [(ended, trial.error.splitlines()[0])]
    groups: dict[tuple[str, str, str], list[str]] = {}
    for reason in trial.reasons:
        groups.setdefault((reason.severity, reason.code, reason.message), []).append(reason.group)
    told = [
        (Subject(kind=severity, groups=tuple(dict.fromkeys(names)), code=code), message)
        for (severity, code, message), names in groups.items()
    ]
    return told or ([] if trial.status is Status.VALID else [(ended, "no reason was recorded")])
