"""Nights that were: shards moved to an earlier day, and made-up ones around a real trial."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from msgspec import structs

from bench.identity import trial_id
from bench.records import ClockAnchor, Metric, TrialRecord
from bench.store.layout import shard_folders
from bench.store.validation import read_record
from tests.factories import NS, save_trial
from tests.gate.simulated_nights import nights

DAY_NS = 86_400 * NS
_SLOWER = {"output_tok_per_s": 1.0, "tpot_ms": -1.0, "ttft_ms": -1.0}
"""How each gated metric goes with the speed of an engine."""


def records_in(folder: Path) -> list[TrialRecord]:
    """What the shards at or below a folder say."""
    results = folder / "as-results"
    results.mkdir(exist_ok=True)
    if not (results / "shards").exists():
        (results / "shards").symlink_to(folder, target_is_directory=True)
    found = [read_record(shard) for shard in shard_folders(results)]
    (results / "shards").unlink()
    results.rmdir()
    return found


def moved(record: TrialRecord, days: int, run_id: str | None = None) -> TrialRecord:
    """A trial as if it had been measured so many days earlier; with `run_id` it is one of another run."""
    key = record.key
    if run_id is not None:
        key = structs.replace(key, run_id=run_id, trial_id=trial_id(run_id, key.case_id, key.repeat, key.role))
    return structs.replace(record, key=key, started=_earlier(record.started, days), ended=_earlier(record.ended, days))


def _earlier(anchor: ClockAnchor, days: int) -> ClockAnchor:
    return structs.replace(anchor, wall_ns=anchor.wall_ns - days * DAY_NS)


def keep_history(home: Path, records: Iterable[TrialRecord]) -> None:
    """Make `records`, without raw events, the newest history that the pipeline finds in the `home` of its driver."""
    for record in records:
        save_trial(home / "made", structs.replace(record, files={}))
    kept = home / "nights" / "history-hosted"
    if kept.exists():
        kept.rename(home / f"forgotten-{len(list(home.glob('forgotten-*')))}")
    kept.parent.mkdir(exist_ok=True)
    (home / "made" / "shards").rename(kept)


def made_up(template: TrialRecord, days: Iterable[int], rng: np.random.Generator) -> list[TrialRecord]:
    """Three repeats on each of the days before that of `template`, as a machine with the noise of `simulated_nights` would give
    them.
    """
    earlier = list(days)
    found = []
    for day, night in zip(earlier, nights(rng, len(earlier)), strict=True):
        for repeat, value in enumerate(night.values, start=1):
            speed = value / 1000.0
            one = structs.replace(
                template,
                key=structs.replace(template.key, repeat=repeat),
                metrics={name: _scaled(metric, speed) for name, metric in template.metrics.items()},
            )
            found.append(moved(one, day, f"made-up-{day:03}"))
    return found


def _scaled(metric: Metric, speed: float) -> Metric:
    if metric.name not in _SLOWER:
        return metric
    factor = speed ** _SLOWER[metric.name]
    numbers = {name: getattr(metric, name) for name in ("value", "mean", "p50", "p90", "p99", "low", "high")}
    return structs.replace(metric, **{name: number * factor for name, number in numbers.items() if number is not None})
