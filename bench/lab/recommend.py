"""What was measured of a model here, as candidates for a deployment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from bench.analysis.candidates import Candidate, Price, candidates
from bench.analysis.pool import PoolKey
from bench.analysis.recommend import Recommendation, Wanted, recommend
from bench.errors import UsageError
from bench.lab.compare_select import quoted, table_for, valid_trials
from bench.records import Case, LengthSpec, TrialRecord
from bench.store import Lab, records_in
from bench.store.sql import ask

_MOST_KINDS = 6


def recommended(lab: Lab, model: str, where: str, wanted: Wanted) -> Recommendation:
    """The best measured setting for a model among trials that meet a condition on `trials_wide`. Only our own valid trials count,
    and of each configuration and case on a host the last run.

    Raises: UsageError (several kinds of requests or scopes of energy, bad SQL), StoreError.
    """
    table = table_for(lab, where)
    of_model = f"role = 'measure' AND model = {quoted(model)} AND ({where})"
    found = candidates(_records(lab, table, of_model), _prices(lab, model) if wanted.objective == "usd_per_mtok" else None)
    _one_kind(found)
    ((invalid,),) = ask(lab, f"SELECT count(*) FROM {table} WHERE {of_model} AND status <> 'valid'").rows  # noqa: S608 - read-only
    made = replace(recommend(found, wanted), invalid_trials=invalid)
    if wanted.objective == "tok_per_j":
        _one_scope(made.meeting)
    return made


def _records(lab: Lab, table: str, where: str) -> list[TrialRecord]:
    query = f"""
SELECT shard FROM trials SEMI JOIN ({valid_trials(table, where, newest=True)}) USING (trial_id)
ORDER BY min(started_at) OVER (PARTITION BY run_id, case_id, config_id, host_id), run_id, case_id, repeat"""  # noqa: S608 - ours
    return records_in(lab.results, (shard for (shard,) in ask(lab, query).rows))


def _prices(lab: Lab, model: str) -> dict[PoolKey, Price]:
    """What a device cost on the night of each point that has a price."""
    query = f"""
SELECT DISTINCT config_id, host_id, case_id, run_id, usd_per_device_hour, CAST(price_since AS VARCHAR), price_source
FROM costs WHERE role = 'measure' AND model = {quoted(model)} AND usd_per_device_hour IS NOT NULL"""  # noqa: S608 - quoted
    return {
        PoolKey(config_id=config, host_id=host, case_id=case, run_id=run): Price(
            usd_per_device_hour=usd, source=f"{source} (since {since})"
        )
        for config, host, case, run, usd, since, source in ask(lab, query).rows
    }


def _one_kind(found: Sequence[Candidate]) -> None:
    """Raises: UsageError where points were measured with other requests, or cut their window in another way: a short prompt is
    always the faster one.
    """
    kinds = Counter(_kind(one.first) for one in found)
    if len(kinds) < 2:
        return
    told = [f"{text} ({count} points)" for (text, _), count in kinds.most_common(_MOST_KINDS)]
    raise UsageError(
        f"{found[0].first.case.model} was measured with {len(kinds)} kinds of requests, which can't be ranked together: "
        f"{'; '.join(told)}",
        hint=f'--where "{_measured_last(found)}" for what was measured last (or a condition on suite or run_id)',
    )


def _measured_last(found: Sequence[Candidate]) -> str:
    """SQL for the kind of requests that was measured last, by the columns that differ; where they don't tell it, for its run."""
    columns = [_columns(one.first) for one in found]
    last = columns[-1]
    alike = {_kind(one.first) for one, its in zip(found, columns, strict=True) if its == last}
    differing = [f"{name} = {value}" for name, value in last.items() if any(its[name] != value for its in columns)]
    return " AND ".join(differing) if len(alike) == 1 else f"run_id = {quoted(found[-1].first.key.run_id)}"


def _columns(record: TrialRecord) -> dict[str, str]:
    case = record.case
    window = quoted(record.window.kind) if record.window else "NULL"
    lengths = {"input_tokens": f"{case.input_tokens.mean}", "output_tokens": f"{case.output_tokens.mean}"}
    return {**lengths, "dataset": quoted(case.dataset), "window_kind": window}


def _kind(record: TrialRecord) -> tuple[str, str]:
    """What requests are like, in words and in full; the number of them at once is not part of it."""
    case, window = record.case, record.window.kind if record.window else "no window"
    named = "" if case.dataset == "synthetic" else f" of {case.dataset} {(case.data.sha256 or '')[:8]}".rstrip()
    text = f"{_length(case.input_tokens)}/{_length(case.output_tokens)} tokens{named}, {window}"
    return text, repr((_requests(case), window))


def _requests(case: Case) -> tuple[object, ...]:
    return case.input_tokens, case.output_tokens, case.dataset, structs.replace(case.data, path=None), case.sampling


def _length(spec: LengthSpec) -> str:
    return f"{spec.mean}" if spec.dist == "fixed" else f"{spec.mean} {spec.dist}"


def _one_scope(meeting: Sequence[Candidate]) -> None:
    """Raises: UsageError where energy covers other parts of the machine at some points."""
    scopes = sorted({one.first.energy_scope or "unknown" for one in meeting})
    if len(scopes) > 1:
        raise UsageError(
            f"energy is of other parts of the machine: {' and '.join(scopes)}; joules of these can't be ranked together",
            hint=f"--where \"energy_scope = '{scopes[0]}'\"",
        )
