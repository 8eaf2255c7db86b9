"""What is not plain about a row: errors, reasons and missing numbers, each thing once however many repeats say it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.records import Reason, Status, TrialRecord
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
    said: dict[str, dict[str, list[int]]] = {}
    for trial in trials:
        for head, message in _sayings(trial):
            said.setdefault(head, {}).setdefault(message, []).append(trial.key.repeat)
    return [_line(head, messages, len(trials)) for head, messages in said.items()]


def _line(head: str, messages: Mapping[str, Sequence[int]], count: int) -> str:
    if len(messages) == 1:
        ((message, which),) = messages.items()
        return f"{head}: {message}" if len(which) == count else f"{_repeats(which)}: {head}: {message}"
    parts = (message if len(which) == count else f"{_repeats(which)}: {message}" for message, which in messages.items())
    return f"{head}: {'; '.join(parts)}"


def _repeats(which: Sequence[int]) -> str:
    return f"repeat{'s' * (len(which) > 1)} {', '.join(map(str, which))}"


def _sayings(trial: TrialRecord) -> list[tuple[str, str]]:
    """(what, message) of a trial. An error explains all reasons that follow from it."""
    if trial.status is not Status.VALID and trial.error:
        return [(trial.status.value, trial.error.splitlines()[0])]
    groups: dict[tuple[str, str, str], list[Reason]] = {}
    for reason in trial.reasons:
        groups.setdefault((reason.severity, reason.code, reason.message), []).append(reason)
    said = [
        (f"{severity} ({', '.join(dict.fromkeys(r.group for r in reasons))}), {code}", message)
        for (severity, code, message), reasons in groups.items()
    ]
    return said or ([] if trial.status is Status.VALID else [(trial.status.value, "no reason was recorded")])
