"""The lines under a table: its notes by number, each once, then what its marks mean, then what to do next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.printable import printable
from bench.reports.advice import Again, measure_again, next_steps
from bench.reports.numbers import Number
from bench.reports.rows import MISSING_TEXT, Row
from bench.reports.text import INVALID_MARK, MIXED_MARK, WIDE_FACTOR, WIDE_MARK, WIDE_SHARE, is_mixed, is_wide, shown
from bench.timing.summary import P99_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """`marks`: for each row the numbers of its notes, `[1,3]`, `-` where it has none. `notes`: numbered ones, and those that
    hold for every row. `meanings`: of marks and numbers. `following`: what to do next.
    """

    marks: tuple[str, ...]
    notes: tuple[str, ...]
    meanings: tuple[str, ...]
    following: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self.notes, *self.meanings, *self.following)


def footer(
    table: Sequence[Row], names: Mapping[str, str], *, full_intervals: bool = True, again: Again | None = measure_again
) -> Footer:
    """Under a table whose number columns are headed `names`; it shows intervals in full, or as a share. `again` words what to
    do next; None: that is nothing.
    """
    told = [[note.spelled(names) for note in row.notes if not note.stands_in] for row in table]
    general = _general(table, names)
    numbered = {text: at for at, text in enumerate(dict.fromkeys(t for row in told for t in row if t not in general), start=1)}
    marks = [sorted({numbered[text] for text in row if text in numbered}) for row in told]
    return Footer(
        marks=tuple(f"[{','.join(map(str, mark))}]" if mark else MISSING_TEXT for mark in marks),
        notes=(*(f"[{at}] {printable(text)}" for text, at in numbered.items()), *map(printable, general)),
        meanings=(*_runs(table), *_meanings(table, names, full_intervals=full_intervals)),
        following=next_steps([trial for row in table for trial in row.trials], again) if again else (),
    )


def _general(table: Sequence[Row], names: Mapping[str, str]) -> list[str]:
    """Why numbers are missing in every row that has been measured."""
    measured = [row for row in table if not row.ended_early]
    first = [note for note in measured[0].notes if note.columns and not note.stands_in] if measured else []
    return [note.spelled(names) for note in first if all(note in row.notes for row in measured)]


def _runs(table: Sequence[Row]) -> list[str]:
    runs = dict.fromkeys(row.first.key.run_id for row in table)
    return [f"run{'s' * (len(runs) > 1)} {', '.join(map(printable, runs))}"] if runs else []


def _meanings(table: Sequence[Row], names: Mapping[str, str], *, full_intervals: bool) -> list[str]:
    numbers = [number for row in table for key in names if (number := shown(row, key)).value is not None]
    lines = []
    if any(not number.valid for number in numbers):
        lines.append(f"{INVALID_MARK} not valid: don't use these numbers")
    if any(is_mixed(row) for row in table):
        lines.append(f"{MIXED_MARK} some repeats are not valid: the numbers are those of the others")
    if any(row.stand_ins for row in table):
        keys = dict.fromkeys(key for row in table for key in row.stand_ins)
        lines.append(
            f"(p90) {', '.join(names[key] for key in keys)}: a trial of under {P99_MIN} samples has no p99, this is its p90"
        )
    if any(row.open_loop for row in table):
        lines.append("open loop: TTFT counts from the scheduled send time (no coordinated omission)")
    return lines + _intervals(numbers, names["energy"], full_intervals=full_intervals)


def _intervals(numbers: Sequence[Number], energy: str, *, full_intervals: bool) -> list[str]:
    bounded = [number for number in numbers if number.low is not None or number.high is not None]
    wide = [number for number in bounded if is_wide(number)]
    mark, lines = WIDE_MARK if full_intervals else WIDE_SHARE, []
    repeats = sorted({number.n for number in wide if number.n > 1})
    if repeats:
        count = "/".join(map(str, repeats))
        lines.append(f"{mark} {count} repeats differ too much for an interval (factor over {WIDE_FACTOR:g}): run more")
    if any(number.n == 1 for number in wide):
        lines.append(f"{mark} {energy} of one trial is known only within a factor of over {WIDE_FACTOR:g}: measure longer")
    if len(wide) < len(bounded):
        lines.append(f"intervals: 95%, over repeats; {energy} of a single trial: of its measurement")
    return lines
