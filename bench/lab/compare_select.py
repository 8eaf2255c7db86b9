"""What a person calls a side of a comparison, as a condition on the table `trials_wide`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from bench.errors import UsageError
from bench.store import Lab, schema
from bench.store.plans import LATEST
from bench.store.sql import ask
from bench.timing.columns import wide_columns

_LABEL = re.compile(r"([\w.-]+)=([^='\"]*)")
_MEASURED = "role = 'measure'"
_NAMES = ("run", "version", "commit", "device", "label")
KINDS = (*_NAMES, "sql")
_VALID = """
SELECT trial_id FROM (
  SELECT *, min(started_at) OVER (PARTITION BY run_id, case_id, config_id, host_id, role) AS began FROM (
    SELECT trial_id, run_id, case_id, config_id, host_id, role, started_at FROM {table} WHERE status = 'valid' AND ({where})
    QUALIFY row_number() OVER (PARTITION BY run_id, case_id, repeat, role ORDER BY attempt DESC) = 1
  )
) {newest}
"""
_NEWEST = "QUALIFY rank() OVER (PARTITION BY case_id, config_id, host_id ORDER BY began DESC, run_id DESC) = 1"


def condition(lab: Lab, text: str) -> str:
    """The SQL condition for `latest`, a run (the beginning of its id will do), an engine version, a build or commit, a device, a
    label `NAME=VALUE`, or a condition itself. A prefix (`version:0.11`, `sql:...`) says which is meant.

    Raises: UsageError (nothing fits, or several things do).
    """
    kind, colon, rest = text.partition(":")
    named = bool(colon) and kind in KINDS
    if (named and kind == "sql") or (not named and _is_sql(text)):
        return f"({rest if named else text})"
    fitting = _fitting(lab, (kind,), rest) if named else _fitting(lab, _NAMES, text)
    if not fitting and (not named or kind == "run"):
        _refuse_pairs(lab, rest if named else text)
    if named and not fitting:
        raise UsageError(f"no trial has the {kind} {rest!r}", hint=_HINTS[kind])
    if len(fitting) > 1:
        raise UsageError(f"{text!r} is a {' and a '.join(fitting)}", hint=f"say which is meant: {next(iter(fitting))}:{text}")
    if not fitting:
        raise UsageError(
            f"nothing is called {text!r}: no run, engine version, commit, device or label",
            hint="bench sql 'SELECT DISTINCT run_id, engine_version, engine_build, devices, labels FROM trials'",
        )
    return next(iter(fitting.values()))


def table_for(lab: Lab, where: str) -> str:
    """The table that a condition can be put to: `trials`, or where it is about metrics the slower `trials_wide`.

    Raises: UsageError where it fits neither.
    """
    for table in ("trials", "trials_wide"):
        try:
            ask(lab, f"SELECT 1 FROM {table} WHERE {where} LIMIT 0")  # noqa: S608 - read-only
        except UsageError:
            if table == "trials_wide":
                raise
        else:
            break
    return table


def valid_trials(table: str, where: str, *, newest: bool) -> str:
    """A query for the `trial_id` of each valid trial that meets a condition, of several attempts the last. `newest`: of each
    configuration and case on a host the last run alone.
    """
    return _VALID.format(table=table, where=where, newest=_NEWEST if newest else "")


def quoted(text: str) -> str:
    """`text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _is_sql(text: str) -> bool:
    """Whether it is a condition: more than one word with an operator, or an equation about a column."""
    name = re.match(r"\s*\(?\s*(\w+)\s*(=|<|>|!|\bin\b|\blike\b|\bis\b|\bbetween\b|\bilike\b|\bnot\b)", text, re.IGNORECASE)
    columns = {*schema.TRIALS, *(column.column for column in wide_columns(headline=True))}
    return bool(re.search(r"\b(and|or)\b|\(", text, re.IGNORECASE) and re.search(r"[=<>(]", text)) or bool(
        name and name[1].lower() in columns
    )


def _fitting(lab: Lab, kinds: Sequence[str], text: str) -> dict[str, str]:
    """Conditions under which some trial is called `text`, by the kind of name."""
    made = {kind: found for kind in kinds if text and (found := _MAKERS[kind](text)) is not None}
    if not made:
        return {}
    known = ask(lab, f"SELECT {', '.join(f'bool_or({one})' for one in made.values())} FROM trials WHERE {_MEASURED}").rows[0]  # noqa: S608 - quoted
    fitting = {kind: f"{_MEASURED} AND {one}" for (kind, one), fits in zip(made.items(), known, strict=True) if fits}
    return fitting | {"run": _run(lab, text, made["run"])} if "run" in fitting else fitting


def _run(lab: Lab, text: str, made: str) -> str:
    """The one run that is meant by `latest` or the beginning of an id. Raises: UsageError where several are."""
    order = f"run_id = {quoted(text)} DESC, max(started_at) DESC, run_id DESC"
    query = f"SELECT run_id FROM trials WHERE {_MEASURED} AND {made} GROUP BY run_id ORDER BY {order} LIMIT 6"  # noqa: S608 - quoted
    runs = [row[0] for row in ask(lab, query).rows]
    if len(runs) > 1 and text != LATEST and text not in runs:
        raise UsageError(f"{text} is the beginning of {len(runs)} runs or more", hint=f"one of: {', '.join(runs)}")
    return f"{_MEASURED} AND run_id = {quoted(text if text in runs else runs[0])}"


def _refuse_pairs(lab: Lab, text: str) -> None:
    """Raises: UsageError where `text` is a run of pairs, which are in no selection: each is compared within itself."""
    query = "SELECT run_id FROM trials WHERE role IN ('ab_base', 'ab_cand') AND {} ORDER BY started_at DESC LIMIT 1"
    runs = ask(lab, query.format(_MAKERS["run"](text))).rows if text else []
    if runs:
        raise UsageError(
            f"run {runs[0][0]} holds only pairs, which were compared in turns", hint=f"bench report --run {runs[0][0]}"
        )


def _label(text: str) -> str | None:
    match = _LABEL.fullmatch(text)
    if match is None:
        return None
    path = quoted('$."' + match[1].replace('"', "") + '"')
    return f"json_extract_string(labels, {path}) = {quoted(match[2])}"


_MAKERS: dict[str, Callable[[str], str | None]] = {
    "run": lambda text: "true" if text == LATEST else f"starts_with(run_id, {quoted(text)})",
    "version": lambda text: f"engine_version = {quoted(text)}",
    "commit": lambda text: f"starts_with(engine_build, {quoted(text)})" if len(text) >= 6 else f"engine_build = {quoted(text)}",
    "device": lambda text: (
        f"(list_contains(list_transform(devices, lambda d: lower(d)), {quoted(text.lower())})"
        f" OR (len(devices) = 0 AND lower(cpu_model) = {quoted(text.lower())}))"
    ),
    "label": _label,
}
_HINTS = {
    "run": "bench sql 'SELECT DISTINCT run_id FROM trials'",
    "version": "bench sql 'SELECT DISTINCT engine, engine_version FROM trials'",
    "commit": "bench sql 'SELECT DISTINCT engine, engine_build FROM trials'",
    "device": "bench sql 'SELECT DISTINCT devices, cpu_model FROM trials'",
    "label": "bench sql 'SELECT DISTINCT labels FROM trials'; a label is NAME=VALUE",
}
