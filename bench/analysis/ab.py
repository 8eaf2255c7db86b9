"""What pairs say: two settings of a case that were measured in turns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.analysis.compare import COMPARED, ENERGY, Comparison, adjust, paired_ratio
from bench.records import Status, TrialRecord
from bench.timing.columns import main_field
from bench.timing.spec import SPECS

BASE_ROLE = "ab_base"
CAND_ROLE = "ab_cand"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCase:
    """What the pairs of one case say; `pairs` had both sides valid. `first`: a trial of either side, the base before the
    candidate; fewer where a side has none.
    """

    name: str
    pairs: int
    metrics: tuple[Comparison, ...]
    first: tuple[TrialRecord, ...] = ()


def paired_cases(records: Sequence[TrialRecord]) -> list[PairedCase]:
    """What the valid pairs among `records` say, p-values adjusted over all of them."""
    sides: dict[str, dict[int, dict[str, TrialRecord]]] = {}
    first: dict[str, dict[str, TrialRecord]] = {}
    for record in records:
        if record.key.role in (BASE_ROLE, CAND_ROLE):
            numbered = sides.setdefault(record.case.name, {})
            first.setdefault(record.case.name, {}).setdefault(record.key.role, record)
            if record.status is Status.VALID:
                numbered.setdefault(record.key.repeat, {})[record.key.role] = record
    whole = {name: [pair for _, pair in sorted(numbered.items()) if len(pair) == 2] for name, numbered in sides.items()}
    found = {name: [one for metric in COMPARED if (one := _compare(metric, pairs))] for name, pairs in whole.items()}
    adjusted = iter(adjust([one for metrics in found.values() for one in metrics]))
    return [
        PairedCase(
            name=name,
            pairs=len(whole[name]),
            metrics=tuple(next(adjusted) for _ in metrics),
            first=tuple(first[name][role] for role in (BASE_ROLE, CAND_ROLE) if role in first[name]),
        )
        for name, metrics in found.items()
    ]


def _compare(metric: str, pairs: Sequence[Mapping[str, TrialRecord]]) -> Comparison | None:
    numbers = [tuple(_number(pair[role], metric) for role in (BASE_ROLE, CAND_ROLE)) for pair in pairs]
    both = [(base, cand) for base, cand in numbers if base is not None and cand is not None and min(base, cand) > 0.0]
    scopes = {record.energy_scope for pair in pairs for record in pair.values()}
    if not both:
        return None
    mixed = metric == ENERGY and len(scopes) > 1
    base, cand = [one for one, _ in both], [two for _, two in both]
    return Comparison(
        metric=metric,
        unit=SPECS[metric].unit,
        better=SPECS[metric].better,
        base=sum(base) / len(base),
        cand=sum(cand) / len(cand),
        n_base=len(base),
        n_cand=len(cand),
        ratio=None if mixed else paired_ratio(base, cand),
        reason=f"energy of other parts: {' and '.join(sorted(map(str, scopes)))}" if mixed else None,
    )


def _number(record: TrialRecord, name: str) -> float | None:
    metric = record.metrics.get(name)
    number: float | None = None if metric is None else getattr(metric, main_field(name))
    return number
