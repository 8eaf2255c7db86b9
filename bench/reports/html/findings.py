"""Why rows, or some of their numbers, are not valid or not there: each thing once, with its number. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.records import Profile, TrialRecord
from bench.reports.html.markup import Html, joined, tag
from bench.reports.html.naming import Names
from bench.reports.html.table import Cell, Column, Line, table
from bench.reports.html.words import Words
from bench.reports.notes import TITLES, said
from bench.reports.rows import Row
from bench.timing.validity import RULES

_KINDS = ("failed", "killed", "interrupted", "invalid", "warning", "missing")
"""The gravest first."""
_MARKS = {"warning": "care", "missing": "care"}
_MOST_NAMED = 6
"""Rows that one finding names; of more it tells how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`kind`: a severity, how a trial ended, or `missing`. `about`: groups of metrics, or columns. `code` and `limit` of a
    validity rule. `said`: (repeats, message); no repeats where all say it.
    """

    kind: str
    about: tuple[str, ...]
    code: str | None
    limit: float | None
    said: tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that was found, the gravest first; `rows` the places of the rows that each is about, `general` those that hold
    for all that was measured.
    """

    all: tuple[Finding, ...]
    rows: tuple[tuple[int, ...], ...]
    general: frozenset[int]

    def marks(self, row: int) -> list[int]:
        """Numbers, from 1, of what is told of one row."""
        return [at + 1 for at, rows in enumerate(self.rows) if row in rows and at not in self.general]


def findings(rows: Sequence[Row]) -> Findings:
    """What is not plain about `rows`."""
    about: dict[Finding, list[int]] = {}
    for place, row in enumerate(rows):
        for finding in (*_of_trials(row.trials), *_missing(row)):
            about.setdefault(finding, []).append(place)
    ordered = sorted(about, key=lambda one: (_KINDS.index(one.kind), about[one][0]))
    measured = {place for place, row in enumerate(rows) if not row.ended_early}
    general = {at for at, one in enumerate(ordered) if one.kind == "missing" and measured and measured == set(about[one])}
    return Findings(all=tuple(ordered), rows=tuple(tuple(about[one]) for one in ordered), general=frozenset(general))


def _of_trials(trials: Sequence[TrialRecord]) -> list[Finding]:
    return [
        Finding(
            kind=subject.kind,
            about=subject.groups,
            code=subject.code,
            limit=_limit(subject.code, trials[0].case.profile),
            said=tuple((() if len(which) == len(trials) else tuple(which), message) for message, which in messages.items()),
        )
        for subject, messages in said(trials).items()
    ]


def _limit(code: str | None, profile: Profile) -> float | None:
    rule = RULES.get(code or "")
    return None if rule is None or rule.threshold is None else rule.threshold_for(profile)


def _missing(row: Row) -> Iterable[Finding]:
    for note in row.notes:
        if note.columns and not note.stands_in:
            yield Finding(kind="missing", about=note.columns, code=None, limit=None, said=(((), note.text),))


# --- as a table -------------------------------------------------------------------------------------------------------


def findings_columns(words: Words) -> list[Column]:
    """Heads of the table of reasons."""
    titles = ("No.", "Kind", "What it is about", "Rule", "What was seen", "Rows")
    return [Column(title=words(title), number=at == 0) for at, title in enumerate(titles)]


def findings_table(found: Findings, named: Names, words: Words) -> Html:
    """Every finding; the numbers are those in the table of results."""
    if not found.all:
        return tag("p", words("Every trial is valid, without a warning, and no number is missing."), class_="empty")
    lines = [Line(id=f"n{at + 1}", cells=_line(at, found, named, words)) for at in range(len(found.all))]
    caption = words("Each reason once. An invalid one takes its numbers out of every comparison; a warning asks for care.")
    return table("reasons", caption, findings_columns(words), lines, words)


def _line(at: int, found: Findings, named: Names, words: Words) -> list[Cell]:
    one = found.all[at]
    kind = Cell(shown=words.quoted(one.kind), sort_by=_KINDS.index(one.kind), mark=_MARKS.get(one.kind, "bad"))
    about = ", ".join(words.said(TITLES.get(name, name)) for name in one.about)
    meaning = words.quoted(RULES[one.code].meaning) if one.code in RULES else None
    limit = None if one.limit is None else f": {one.limit:g}"
    rule = joined(tag("code", one.code), tag("small", meaning, limit)) if one.code else Html()
    return [
        Cell(shown=Html(at + 1)),
        kind,
        Cell(shown=joined(about or words("the whole trial"))),
        Cell(shown=rule),
        Cell(shown=joined(*(_seen(which, message, words) for which, message in one.said))),
        Cell(shown=_rows(at, found, named, words), sort_by=len(found.rows[at])),
    ]


def _seen(which: Sequence[int], message: str, words: Words) -> Html:
    repeats = tag("b", words("repeat {}", ", ".join(map(str, which))), ": ") if which else None
    return tag("div", repeats, words.quoted(message))


def _rows(at: int, found: Findings, named: Names, words: Words) -> Html:
    if at in found.general:
        return joined(words("all that were measured"))
    rows = found.rows[at]
    links = [tag("div", tag("a", named.rows[row], href=f"#r{row}")) for row in rows[:_MOST_NAMED]]
    return joined(*links, words("and {} more", len(rows) - _MOST_NAMED) if len(rows) > _MOST_NAMED else None)
