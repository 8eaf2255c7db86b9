"""Trials that differ in lengths and time only: what prompt tokens, output tokens and seconds cost in each such sweep. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from bench.analysis.energy_split import EnergySplit, SweepPoint, split_energy
from bench.identity import case_id
from bench.records import LengthSpec, Metric, Profile, Quality, Status, TrialRecord
from bench.timing.spec import scope_energy_name

FEWEST_LENGTHS = 3
"""Pairs of prompt and reply lengths: as many as there are coefficients."""
_ANY = LengthSpec(mean=1)
_QUALITIES: tuple[Quality, ...] = ("measured", "simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSweep:
    """Trials of one engine and load on the same boards, oldest first, and what they split into: in words where they can't be.

    Joules of `quality` `simulated` are never in one sweep with measured ones.
    """

    trials: tuple[TrialRecord, ...]
    lengths: int
    quality: Quality
    split: EnergySplit | str


def length_sweeps(records: Iterable[TrialRecord]) -> list[LengthSweep]:
    """Every sweep among the valid trials with an energy: at least two pairs of lengths under otherwise the same case, on the same
    boards, with the same version of the engine. Repeats, seeds and durations may differ.
    """
    groups: dict[tuple[Quality, tuple[object, ...]], list[tuple[TrialRecord, SweepPoint]]] = {}
    for record in records:
        for quality in _QUALITIES:
            if (point := _point(record, quality)) is not None:
                groups.setdefault((quality, _setting(record)), []).append((record, point))
    found = []
    for (quality, _), members in groups.items():
        trials = tuple(record for record, _ in members)
        lengths = len({(trial.case.input_tokens, trial.case.output_tokens) for trial in trials})
        if lengths > 1:
            split = _split([point for _, point in members], lengths)
            found.append(LengthSweep(trials=trials, lengths=lengths, quality=quality, split=split))
    return found


def _split(points: list[SweepPoint], lengths: int) -> EnergySplit | str:
    if lengths < FEWEST_LENGTHS:
        return f"{lengths} pairs of lengths: at least {FEWEST_LENGTHS} are needed"
    return split_energy(points)


def _setting(record: TrialRecord) -> tuple[object, ...]:
    """What the trials of a sweep share."""
    case = replace(
        record.case,
        input_tokens=_ANY,
        output_tokens=_ANY,
        duration_s=0.0,
        warmup_s=0.0,
        grace_s=0.0,
        request_timeout_s=0.0,
        idle_s=0.0,
        repeats=1,
        seed=0,
        profile=Profile.SMOKE,
    )
    boards = tuple(sorted(device.uid for device in record.devices if device.scope == record.energy_scope))
    version = record.engine.version if record.engine else None
    return case_id(case), record.host.host_id, record.energy_scope, boards, version


def _point(record: TrialRecord, quality: Quality) -> SweepPoint | None:
    """None where the trial is not valid, or lacks the energy or the count of tokens."""
    window, scope = record.window, record.energy_scope
    if record.status is not Status.VALID or window is None or scope is None:
        return None
    names = (scope_energy_name(scope, quality), "input_tok_per_s", "output_tok_per_s")
    energy_j, prompt, output = (_value(record.metrics.get(name)) for name in names)
    if energy_j is None or prompt is None or output is None or energy_j <= 0.0:
        return None
    return SweepPoint(
        energy_j=energy_j, input_tokens=prompt * window.seconds, output_tokens=output * window.seconds, seconds=window.seconds
    )


def _value(metric: Metric | None) -> float | None:
    return None if metric is None else metric.value
