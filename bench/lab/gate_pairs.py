"""What the gate wants measured in turns, as jobs: a build from before against tonight's, on the host that triggered."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.analysis.gate import base_nights
from bench.analysis.series import SeriesHistory, Verdict
from bench.lab.compare_select import quoted
from bench.lab.matrix import Job, paired
from bench.records import Case, TrialRecord
from bench.reports.gate import subject
from bench.store import Lab, TrialFilter, records
from bench.store.sql import ask
from bench.suite import Suite

JOB_LABEL = "job"
"""Under this label a nightly trial keeps the id of its job: its pairs go where it ran."""
_Sides = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJobs:
    """Jobs of pairs, and for each trigger that gets none a line that says why."""

    jobs: tuple[Job, ...]
    notes: tuple[str, ...]


class NoPairs(Exception):
    """Why a trigger can't be confirmed."""


def pair_jobs(lab: Lab, found: Iterable[Verdict], jobs: Sequence[Job], suite: Suite) -> PairJobs:
    """A job for each nightly job and pair of builds that one of the verdicts asks for. `jobs` are those of the nightly matrix.

    Raises: UsageError, StoreError.
    """
    by_id = {job.id: job for job in jobs}
    wanted: defaultdict[tuple[str, _Sides], list[str]] = defaultdict(list)
    notes: dict[str, None] = {}
    for verdict in found:
        if not verdict.is_open or verdict.judged is None:
            continue
        try:
            job_id, case, sides = _wanted(lab, verdict, by_id, suite)
        except NoPairs as why:
            notes[f"no pairs for {subject(verdict)}: {why}"] = None
        else:
            if case not in wanted[job_id, sides]:
                wanted[job_id, sides].append(case)
    return PairJobs(
        jobs=tuple(paired(by_id[job_id], suite, names, sides) for (job_id, sides), names in sorted(wanted.items())),
        notes=tuple(notes),
    )


def _wanted(lab: Lab, verdict: Verdict, by_id: dict[str, Job], suite: Suite) -> tuple[str, str, _Sides]:
    history = verdict.history
    tonight = history.judged[-1]
    good = base_nights(history.judged[:-1])
    if not good:
        raise NoPairs("no night before it was good")
    cand = _trial(lab, history, tonight.night)
    job_id = cand.case.labels.get(JOB_LABEL, "")
    if job_id not in by_id or cand.case.name not in by_id[job_id].cases.splitlines():
        raise NoPairs(f"its case {cand.case.name!r} is no longer in a job {job_id!r} of {suite.name}")
    return job_id, cand.case.name, _sides(lab, history, good, cand)


def _sides(lab: Lab, history: SeriesHistory, nights: Sequence[str], cand: TrialRecord) -> _Sides:
    """Those of the first night whose build can still be started beside that of `cand`. Raises: NoPairs, as of the first."""
    first: NoPairs | None = None
    for night in nights:
        try:
            return sides_of(_trial(lab, history, night), cand)
        except NoPairs as why:
            first = first or why
    assert first is not None
    raise first


def _trial(lab: Lab, history: SeriesHistory, night: str) -> TrialRecord:
    """A valid trial of the run that counts for a night: the last one."""
    key = history.key
    ids = json.dumps([key.series_id, key.host_id, key.profile, night])
    (trial_id,) = ask(lab, _LAST.format(ids=quoted(ids))).rows[0]
    return records(lab, TrialFilter(trial_id=trial_id, status="valid"))[0]


_LAST = """
SELECT trial_id FROM trials
WHERE role = 'measure' AND status = 'valid'
  AND [series_id, host_id, profile, CAST(CAST(started_at AS DATE) AS VARCHAR)] = CAST({ids} AS VARCHAR[])
ORDER BY started_at DESC LIMIT 1
"""


def sides_of(base: TrialRecord, cand: TrialRecord) -> _Sides:
    """The settings that tell two builds of one series apart, for `bench run --ab`; both empty where one build ran on both nights,
    whose pairs can only show that it is not to blame.

    Raises: NoPairs where a build can't be started beside the other.
    """
    was, now = _build_of(base.case), _build_of(cand.case)
    changed = [key for key in {**was, **now} if was.get(key) != now.get(key)]
    told = [f"{r.engine.name} {r.engine.version or '?'} {r.engine.build or ''}".strip() for r in (base, cand) if r.engine]
    if not changed and len(set(told)) > 1:
        raise NoPairs(f"{' became '.join(told)} in place: keep each build in a path or an image of its own")
    lone = [key for key in changed if was.get(key) is None or now.get(key) is None]
    if lone:
        raise NoPairs(f"only one of the builds has {', '.join(lone)}")
    one, two = (" ".join(shlex.quote(f"{key}={side[key]}") for key in sorted(changed)) for side in (was, now))
    return one, two


def _build_of(case: Case) -> dict[str, str | None]:
    """What of a case may say which build runs. Engine arguments that make another series are the same on both sides."""
    box = case.container
    return {
        "engine_python": case.engine_python,
        "base_url": case.base_url,
        "launch": box.tool if box else "process",
        "image": box.image if box else None,
        **{f"engine_args.{name}": str(value) for name, value in case.engine_args.items()},
    }
