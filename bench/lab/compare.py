"""Points out of the database, and two selections of them compared."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from bench.analysis.compare import COMPARED, ENERGY, Point, Sample, adjust, compare_points
from bench.analysis.compare_pairs import Compared, Pair, newest_points, pair_points
from bench.errors import UsageError
from bench.lab.compare_imported import PREFIX, imported_points
from bench.lab.compare_select import condition, table_for, valid_trials
from bench.store import Lab
from bench.store.sql import ask
from bench.timing.columns import main_field

_IDENTITY = (
    "trial_id, run_id, case_id, workload_id, series_id, config_id, host_id, role, status, case_name, model, precision, "
    "weights_sha256, engine, engine_version, engine_build, devices, cpu_model, device_uids, energy_scope, window_kind, "
    "CAST(started_at AS VARCHAR) AS started"
)
_SETTING = (
    "load",
    "batch_size",
    "request_rate",
    "arrivals",
    "num_prompts",
    "input_tokens",
    "output_tokens",
    "dataset",
    "protocol",
    "seed",
)
_SAME_BOARD = f"{ENERGY}_same_board"
_Row = Mapping[str, Any]


def compare(lab: Lab, base: str, cand: str) -> list[Compared]:
    """Two selections of trials, named as in `condition`, point by point. p-values are adjusted over all of them.

    Raises: UsageError (a side is empty or has no valid trial), StoreError.
    """
    sides = [_side(lab, text, name) for text, name in ((base, "BASE"), (cand, "CAND"))]
    pairs = _side_by_side(*sides) or pair_points(*sides)
    found = [compare_points(pair.base, pair.cand) if pair.base and pair.cand else [] for pair in pairs]
    adjusted = iter(adjust([one for metrics in found for one in metrics]))
    return [
        Compared(pair=pair, metrics=tuple(next(adjusted) for _ in metrics)) for pair, metrics in zip(pairs, found, strict=True)
    ]


def _side_by_side(bases: Sequence[Point], cands: Sequence[Point]) -> list[Pair]:
    """One point and one other of which another tool measured one: shown beside each other, though nothing fits."""
    sides = (*bases, *cands)
    return [Pair(base=bases[0], cand=cands[0])] if len(sides) == 2 and any(point.imported for point in sides) else []


def _side(lab: Lab, text: str, name: str) -> list[Point]:
    if text.startswith(PREFIX):
        return imported_points(lab.results, text.removeprefix(PREFIX))
    found = newest_points(points(lab, condition(lab, text), newest=True))
    if not found:
        raise UsageError(f"{name} {text!r}: no trial is valid", hint="bench table --all shows what there is, and why")
    return found


def points(lab: Lab, where: str, *, newest: bool = False) -> list[Point]:
    """The points that have a valid trial among those that meet a condition; `newest`: only those that `newest_points` would keep,
    so that years of nights are not read to be thrown away. Raises: UsageError (bad SQL), StoreError.
    """
    names = ", ".join(f"'{name}'" for name in (*COMPARED, _SAME_BOARD))
    chosen = valid_trials(table_for(lab, where), where, newest=newest)
    columns = ", ".join((_IDENTITY, *_SETTING))
    query = f"SELECT {columns} FROM trials SEMI JOIN ({chosen}) USING (trial_id) ORDER BY started_at, trial_id"  # noqa: S608 - ours
    trials = ask(lab, query).objects
    metrics = _of_trials(lab, "metrics", "trial_id, name, value, p50, low, high, reason", trials, f"name IN ({names})")
    reasons = _of_trials(lab, "reasons", "trial_id, metric_group", trials, "severity = 'invalid'")
    numbers: defaultdict[str, dict[str, _Row]] = defaultdict(dict)
    for row in metrics:
        numbers[row["trial_id"]][row["name"]] = row
    distrusted = {row["trial_id"] for row in reasons if row["metric_group"] == "memory"}
    groups: defaultdict[Hashable, list[_Row]] = defaultdict(list)
    for row in trials:
        groups[(row["run_id"], row["case_id"], row["config_id"], row["host_id"], row["role"])].append(row)
    return [_point(members, numbers, distrusted) for members in groups.values()]


def _of_trials(lab: Lab, table: str, columns: str, trials: Sequence[_Row], where: str) -> list[dict[str, Any]]:
    """What a table holds of some trials. Of millions of rows only `trial_id` is read to find theirs, joined because a list of IN
    takes five times as long; the other columns are read of those alone.
    """
    ids = ", ".join(f"'{row['trial_id']}'" for row in trials)  # an id is a plain name: the store refuses others
    theirs = f"SELECT rowid FROM {table} SEMI JOIN (SELECT unnest([{ids}]) AS trial_id) USING (trial_id)"  # noqa: S608 - ours
    return ask(lab, f"SELECT {columns} FROM {table} WHERE rowid IN ({theirs}) AND {where}").objects if trials else []  # noqa: S608


def _point(trials: Sequence[_Row], numbers: Mapping[str, Mapping[str, _Row]], distrusted: set[str]) -> Point:
    first = trials[0]
    return Point(
        workload_id=first["workload_id"],
        series_id=first["series_id"],
        config_id=first["config_id"],
        host_id=first["host_id"],
        case_id=first["case_id"],
        run_id=first["run_id"],
        started=first["started"],
        name=first["case_name"],
        model=first["model"],
        precision=first["precision"],
        weights=first["weights_sha256"],
        engine=first["engine"],
        version=first["engine_version"],
        build=first["engine_build"],
        devices=tuple(sorted(first["devices"])) or tuple(filter(None, [first["cpu_model"]])),
        boards=tuple(first["device_uids"]),
        scope=first["energy_scope"],
        window_kind=first["window_kind"],
        setting={name: _plain(first[name]) for name in _SETTING if first[name] is not None},
        samples={name: _sample(name, trials, numbers, distrusted) for name in COMPARED},
    )


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sample(name: str, trials: Sequence[_Row], numbers: Mapping[str, Mapping[str, _Row]], distrusted: set[str]) -> Sample:
    field = main_field(name)
    ids = [row["trial_id"] for row in trials if not (name.startswith("memory") and row["trial_id"] in distrusted)]
    rows = [row for trial_id in ids if (row := numbers[trial_id].get(name)) is not None]
    values = tuple(row[field] for row in rows if row[field] is not None)
    reason = next((row["reason"] for row in rows if row["reason"]), None)
    gains = [_gain(numbers[row["trial_id"]]) for row in rows] if name == ENERGY and values else []
    known = [gain for gain in gains if gain is not None]
    return Sample(values=values, reason=reason, gain=max(known) if known and len(known) == len(gains) else None)


def _gain(metrics: Mapping[str, _Row]) -> float | None:
    """The sensor's gain as a share: by how much the absolute interval is wider than that of one board. The two add in
    quadrature.
    """
    whole, bare = metrics[ENERGY], metrics.get(_SAME_BOARD)
    if not whole["value"] or whole["high"] is None or bare is None or bare["high"] is None:
        return None
    square = (whole["high"] - whole["value"]) ** 2 - (bare["high"] - bare["value"]) ** 2
    return math.sqrt(max(square, 0.0)) / float(whole["value"])
