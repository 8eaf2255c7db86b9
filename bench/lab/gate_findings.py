"""What the gate judges, written down where SQL finds it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.analysis.series import Verdict
from bench.reports.gate import message
from bench.store.findings import Finding, add_findings


def keep_findings(results: Path, night: str, found: Iterable[Verdict]) -> None:
    """Write down what is news of a night. Raises: StoreError."""
    add_findings(results, [_finding(night, one) for one in found])


def _finding(night: str, one: Verdict) -> Finding:
    key, judged = one.history.key, one.judged
    pairs = judged.confirmation if judged else None
    return Finding(
        night=night,
        state=one.state,
        series_id=key.series_id,
        host_id=key.host_id,
        profile=key.profile,
        metric=key.metric,
        scope=key.scope,
        label=one.history.label,
        worse_percent=100.0 * judged.change if judged and judged.change is not None else None,
        z=judged.z if judged else None,
        baseline_nights=judged.baseline if judged else None,
        since=judged.since if judged else None,
        pairs=pairs.pairs if pairs else None,
        pairs_p=pairs.p if pairs else None,
        message=message(one),
    )
