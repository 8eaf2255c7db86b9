"""What a night's gate says: lines for people, Markdown, GitHub annotations, data. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

from bench.analysis.gate import FINDINGS, PAIRS, Judged, State
from bench.analysis.gate_drift import END_NIGHTS, Drift
from bench.analysis.series import Verdict
from bench.printable import printable
from bench.reports import markdown
from bench.reports.compare import metric_label
from bench.reports.text import number_text
from bench.timing.spec import SPECS

ORDER: tuple[State, ...] = (
    "confirmed",
    "host_shift",
    "missing result",
    "trigger",
    "accepted change point",
    "insufficient data",
    "ok",
)
SHOWN = ORDER[:5]
"""States that are told one by one; the others are counted."""
STATE_WORDS: dict[State, str] = {
    "confirmed": "regression",
    "host_shift": "shift of the host",
    "missing result": "missing result",
    "trigger": "to be confirmed",
    "accepted change point": "accepted change",
    "insufficient data": "too few nights",
    "ok": "ok",
}
"""Each state as people read it."""


def ordered(found: Sequence[Verdict]) -> list[Verdict]:
    """The gravest first."""
    return sorted(found, key=lambda one: (ORDER.index(one.state), one.history.label, one.history.key.metric))


def gate_text(night: str, found: Sequence[Verdict]) -> str:
    """A line for each result that needs a look, what a series lacks in one, and how many there are of each state."""
    lines = [f"{STATE_WORDS[one.state]}: {about}: {message(one)}" for one, about in shown(found, SHOWN)]
    lines += [f"slow drift: {subject(one)}: {text}" for one, text in drifts(found)]
    return "\n".join([*lines, f"{night}: {_counts(found)}"])


def gate_markdown(night: str, found: Sequence[Verdict]) -> str:
    """A summary to be read in a pull request or a job's page."""
    rows = [(STATE_WORDS[one.state], about, message(one)) for one, about in shown(found, SHOWN)]
    rows += [("slow drift", subject(one), text) for one, text in drifts(found)]
    head = [f"## Gate of {night}", "", _counts(found)]
    if not rows:
        return "\n".join(head)
    table = ["", markdown.row(("state", "series", "what")), markdown.rule(3)]
    return "\n".join([*head, *table, *(markdown.row([markdown.escaped(cell) for cell in row]) for row in rows)])


def annotation_lines(found: Sequence[Verdict]) -> list[str]:
    """GitHub workflow commands: an error for each finding, a warning for what still has to be measured."""
    told = shown(found, (*FINDINGS, "missing result", "trigger"))
    return [
        f"::{_level(one)} title={_property(f'{STATE_WORDS[one.state]}: {about}')}::{_data(message(one))}" for one, about in told
    ]


def shown(found: Sequence[Verdict], states: Sequence[State]) -> list[tuple[Verdict, str]]:
    """What is told, with its subject. A series that was not run lacks every metric for one reason: that is one thing to tell."""
    told: dict[Hashable, list[Verdict]] = {}
    for place, one in enumerate(one for one in ordered(found) if one.state in states):
        key = one.history.key
        told.setdefault((key.series_id, key.host_id, key.profile, one.missing) if one.missing else place, []).append(one)
    return [(alike[0], subject(alike[0], len(alike))) for alike in told.values()]


def drifts(found: Sequence[Verdict]) -> list[tuple[Verdict, str]]:
    """Those that got worse over months, with what is known; told, but the exit status is the night's."""
    return [(one, _drift_text(one.drift)) for one in ordered(found) if one.drift is not None]


def _drift_text(drift: Drift) -> str:
    return f"the last {END_NIGHTS} nights are {change_text(drift.change)} than those from {drift.since} on, z = {drift.z:.1f}"


def _level(one: Verdict) -> str:
    return "error" if one.state in FINDINGS else "warning"


def gate_json(night: str | None, found: Sequence[Verdict]) -> dict[str, Any]:
    """`night` and `series[]`, the gravest first, each with its state and numbers."""
    return {"night": night, "series": [_told_json(one) for one in ordered(found)]}


def subject(one: Verdict, count: int = 1) -> str:
    """`tpot_p50_ms of tiny q4_1, mock, batch 8, 64/32, GPU (series 0123abcd)`; of several metrics their `count`."""
    key = one.history.key
    what = metric_label(key.metric) if count == 1 else f"{count} metrics"
    return printable(f"{what} of {one.history.label} (series {key.series_id[:8]})")


def message(one: Verdict) -> str:
    """What is known, with numbers, and the next step."""
    judged = one.judged
    if judged is None:
        return printable(one.missing or "")
    if one.state == "accepted change point":
        return printable(next((n.accepted or "" for n in reversed(one.history.nights) if n.night == judged.night), ""))
    if judged.centre is None or judged.change is None or judged.z is None:
        return f"{judged.baseline} nights before it"
    now = number_text(math.exp(judged.x))
    unit = SPECS[one.history.key.metric].unit
    against = f"{now} {unit} against {number_text(judged.centre)} over {judged.baseline} nights"
    seen = f"{against}: {change_text(judged.change)}, z = {judged.z:.1f}"
    return printable("; ".join([seen, *_why(one, judged)]))


def _why(one: Verdict, judged: Judged) -> list[str]:
    told = []
    found = judged.confirmation
    if found is not None:
        said = f"{found.pairs} pairs: {change_text(found.change)}, p = {found.p:.2g}"
        told.append(said if found.is_worse else f"{said}, which shows nothing")
    if one.state in FINDINGS:
        told.append(f"since {judged.since}")
    if one.state == "host_shift":
        told.append("look at driver, firmware, power limit, cooling")
        less = "the reference build got worse by less tonight, so the build may be to blame as well"
        told.append(less if one.is_open else "the build is not to blame")
    if one.state == "trigger" and found is None and judged.host_moved:
        told.append("so is the reference build: this night's host is to blame")
    if one.is_open:
        told.append(f"measure pairs: bench run SUITE --ab BASE CAND --pairs {PAIRS}")
    return told


def change_text(worse: float) -> str:
    """`3.1% worse`."""
    return f"{abs(worse):.1%} {'worse' if worse > 0 else 'better'}"


def _counts(found: Sequence[Verdict]) -> str:
    counted = [(state, sum(one.state == state for one in found)) for state in ORDER]
    told = ", ".join(f"{count} {STATE_WORDS[state]}" for state, count in counted if count)
    return f"{len(found)} results judged: {told}" if told else "nothing to judge"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _told_json(one: Verdict) -> dict[str, Any]:
    key, judged = one.history.key, one.judged
    confirmation = judged.confirmation if judged else None
    return {
        "series_id": key.series_id,
        "host_id": key.host_id,
        "profile": key.profile,
        "metric": key.metric,
        "label": one.history.label,
        "state": one.state,
        "message": message(one),
        "change": judged.change if judged else None,
        "z": judged.z if judged else None,
        "baseline_nights": judged.baseline if judged else None,
        "since": judged.since if judged else None,
        "drift": None if one.drift is None else {"change": one.drift.change, "z": one.drift.z, "since": one.drift.since},
        "pairs": None
        if confirmation is None
        else {"n": confirmation.pairs, "change": confirmation.change, "p": confirmation.p, "p_adjusted": confirmation.adjusted},
    }
