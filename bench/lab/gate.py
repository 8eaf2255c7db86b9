"""The nights of every series out of the database, judged: what `bench gate` and `bench history` show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.analysis.gate import RULES, Night, judge_all
from bench.analysis.gate_drift import drift_of
from bench.analysis.series import SeriesHistory, SeriesKey, Verdict
from bench.lab.compare_select import quoted, table_for
from bench.store import Lab
from bench.store.findings import Accepted
from bench.store.sql import ask

EXPECTED_NIGHTS = 3
"""A result is missed that one of so many nights before had."""
JUDGED_NIGHTS = 150
"""More than the last of them depends on; judging thousands of series over years would take minutes."""
_NAMES = ", ".join(f"'{name}'" for name in RULES)
_NIGHT = "CAST(CAST(t.started_at AS DATE) AS VARCHAR)"
_Row = Mapping[str, Any]


def histories(
    lab: Lab, accepted: Sequence[Accepted] = (), *, where: str = "true", until: str | None = None
) -> list[SeriesHistory]:
    """Every series among the trials that meet the condition `where`, up to the night `until` (the last one by default). A night
    is a day of UTC; of several runs of a series on one day the last with a valid trial counts.

    Raises: UsageError (bad SQL), StoreError.
    """
    chosen = _chosen(lab, where) if until is None else f"{_chosen(lab, where)} AND {_NIGHT} <= {quoted(until)}"
    parts = {"names": _NAMES, "night": _NIGHT, "scope": _SCOPE, "label": _LABEL, "chosen": chosen, "reference": REFERENCE_LABEL}
    nightly = _nightly(ask(lab, _NIGHTLY.format(**parts)).objects)
    by_key: defaultdict[SeriesKey, list[_Row]] = defaultdict(list)
    for row in ask(lab, _PAIRED.format(**parts)).objects:
        by_key[_key(row)].append(row)
    nightly = {key: rows[-JUDGED_NIGHTS:] for key, rows in nightly.items()}
    found = {key: _nights(rows, by_key.get(key, ()), _changes(key, rows, accepted)) for key, rows in nightly.items()}
    judged = judge_all(
        {key.text: nights for key, nights in found.items()},
        {key.text: RULES[key.metric] for key in found},
        {key.text: key.host for key in found},
    )
    return [
        SeriesHistory(
            key=key,
            label=nightly[key][-1]["label"],
            nights=tuple(nights),
            builds=tuple(_build(row) for row in nightly[key]),
            judged=tuple(judged[key.text]),
        )
        for key, nights in sorted(found.items())
    ]


def series_ids(lab: Lab, where: str = "true") -> list[str]:
    """Every series that has a history, in order."""
    query = f"SELECT DISTINCT t.series_id {_GATED} ORDER BY ALL".format(names=_NAMES, chosen=_chosen(lab, where))
    return [row[0] for row in ask(lab, query).rows]


def last_night(lab: Lab, where: str = "true") -> str | None:
    """The day (UTC) of the trial that started last; None where there is none."""
    found = ask(lab, f"SELECT max({_NIGHT}) FROM {table_for(lab, where)} t WHERE role = 'measure' AND ({where})")  # noqa: S608
    night: str | None = found.rows[0][0]
    return night


def verdicts(lab: Lab, found: Iterable[SeriesHistory], night: str, where: str = "true") -> list[Verdict]:
    """What each series is on a night, among those that were measured on it or are missed."""
    series = list(found)
    before = sorted({one.night for history in series for one in history.nights if one.night < night})[-EXPECTED_NIGHTS:]
    failures = _failures(lab, night, where)
    told = []
    for history in series:
        last = history.judged[-1] if history.judged else None
        if last is not None and last.night == night:
            drift = drift_of(history.judged, RULES[history.key.metric])
            told.append(Verdict(history=history, state=last.state, judged=last, drift=drift))
        elif last is not None and last.night in before:
            why = (
                failures.get((history.key.series_id, history.key.host_id))
                or "no valid trial has it, and none failed: it was not run"
            )
            told.append(Verdict(history=history, state="missing result", missing=f"last seen {last.night}; {why}"))
    return told


def _chosen(lab: Lab, where: str) -> str:
    """Trials that a person's condition lets through, also one on a metric."""
    if where == "true":
        return where
    return f"t.trial_id IN (SELECT trial_id FROM {table_for(lab, where)} WHERE {where})"  # noqa: S608 - read-only


def _nightly(rows: Sequence[_Row]) -> dict[SeriesKey, list[_Row]]:
    """The last run of each series and night."""
    chosen: defaultdict[SeriesKey, dict[str, _Row]] = defaultdict(dict)
    for row in rows:  # in order of time
        chosen[_key(row)][row["night"]] = row
    return {key: list(nights.values()) for key, nights in chosen.items()}


def _key(row: _Row) -> SeriesKey:
    return SeriesKey(
        series_id=row["series_id"], host_id=row["host_id"], profile=row["profile"], metric=row["name"], scope=row["scope"]
    )


def _nights(rows: Sequence[_Row], paired: Sequence[_Row], changes: Mapping[str, str]) -> list[Night]:
    return [
        Night(
            night=row["night"],
            values=tuple(row["numbers"]),
            pairs=_pairs([other for other in paired if _belongs(other, row, rows)]),
            accepted=changes.get(row["night"]),
            is_reference=row["pinned"] and _build(row) == _build(before),
        )
        for before, row in zip([rows[0], *rows], rows, strict=False)
    ]


def _changes(key: SeriesKey, rows: Sequence[_Row], accepted: Sequence[Accepted]) -> dict[str, str]:
    """Reasons of accepted changes by the first night on which each is seen."""
    ours = [one for one in accepted if one.about(key.series_id, key.metric)]
    seen = ((next((row["night"] for row in rows if row["night"] >= one.night), None), one.reason) for one in ours)
    return {night: reason for night, reason in seen if night is not None}


def _belongs(pair: _Row, night: _Row, rows: Sequence[_Row]) -> bool:
    """Pairs judge the last night before them, where they compared the build that ran then."""
    last = [row for row in rows if row["night"] <= pair["night"]][-1:]
    return bool(last) and last[0] is night and _build(pair) == _build(night)


def _pairs(rows: Sequence[_Row]) -> tuple[tuple[float, float], ...]:
    """Those against the base that was measured last: a run that is gone on with may find the base upgraded in its place."""
    same = [row for row in rows if row["base_config"] == rows[-1]["base_config"]]
    return tuple((pair["base"], pair["cand"]) for row in same for pair in row["numbers"])


def _build(row: _Row) -> str:
    return " ".join(part for part in (row["engine"], row["engine_version"], row["engine_build"]) if part)


def _failures(lab: Lab, night: str, where: str) -> dict[tuple[str, str], str]:
    """What became of a night's trials that gave no valid result, by series (that of earlier trials of the case) and host."""
    query = _FAILED.format(night=_NIGHT, tonight=quoted(night), chosen=_chosen(lab, where))
    return {(row["series_id"], row["host_id"]): f"{row['status']}: {row['why']}" for row in ask(lab, query).objects}


_LABEL = """concat_ws(', ', concat_ws(' ', t.model, t.precision), t.engine,
  coalesce('batch ' || t.batch_size, t.request_rate || '/s', t.load), t.input_tokens || '/' || t.output_tokens,
  coalesce(nullif(array_to_string(t.devices, ' + '), ''), t.cpu_model))"""
REFERENCE_LABEL = "reference"
"""A case with this label keeps its build for ever, so that what moves it is the host."""
_SCOPE = "CASE WHEN m.name = 'j_per_output_tok' THEN t.energy_scope END"
_GATED = """
FROM trials t JOIN metrics m USING (trial_id)
WHERE t.status = 'valid' AND t.role = 'measure' AND t.series_id IS NOT NULL AND m.name IN ({names})
  AND coalesce(m.value, m.p50) > 0 AND {chosen}
"""
_NIGHTLY = (
    """
SELECT t.series_id, t.host_id, t.profile, m.name, {scope} AS scope, {night} AS night, t.run_id, max(t.started_at) AS last,
  any_value({label}) AS label, any_value(t.engine) AS engine, any_value(t.engine_version) AS engine_version,
  any_value(t.engine_build) AS engine_build, list(coalesce(m.value, m.p50) ORDER BY t.started_at) AS numbers,
  bool_and(coalesce(json_exists(t.labels, '$.{reference}'), false)) AS pinned
"""
    + _GATED
    + "GROUP BY ALL ORDER BY last, t.run_id"
)
_PAIRED = """
SELECT t.series_id, t.host_id, t.profile, m.name, {scope} AS scope, {night} AS night, t.run_id, t.engine, t.engine_version,
  t.engine_build, b.config_id AS base_config, max(t.started_at) AS last,
  list({{'base': coalesce(o.value, o.p50), 'cand': coalesce(m.value, m.p50)}} ORDER BY t.repeat) AS numbers
FROM trials t JOIN metrics m USING (trial_id)
  JOIN trials b ON b.run_id = t.run_id AND b.repeat = t.repeat AND b.role = 'ab_base' AND b.case_name = t.case_name
  JOIN metrics o ON o.trial_id = b.trial_id AND o.name = m.name
WHERE t.role = 'ab_cand' AND t.status = 'valid' AND b.status = 'valid' AND b.host_id = t.host_id AND m.name IN ({names})
  AND b.energy_scope IS NOT DISTINCT FROM t.energy_scope AND coalesce(m.value, m.p50) > 0 AND coalesce(o.value, o.p50) > 0
  AND {chosen}
GROUP BY ALL ORDER BY last, t.run_id
"""
_FAILED = """
SELECT DISTINCT known.series_id, t.host_id, t.status, coalesce(t.error, array_to_string(t.reasons, ', '), '') AS why
FROM trials t JOIN trials known ON known.case_id = t.case_id AND known.series_id IS NOT NULL
WHERE t.role = 'measure' AND t.status <> 'valid' AND {night} = {tonight} AND {chosen}
ORDER BY ALL
"""
