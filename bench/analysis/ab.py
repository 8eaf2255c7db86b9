"""What pairs say: two settings of a case that were measured in turns. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.analysis.compare import COMPARED, ENERGY, Comparison, adjust, geometric_mean, paired_ratio
from bench.records import Status, TrialRecord
from bench.timing.columns import main_field
from bench.timing.spec import SPECS

BASE_ROLE = "ab_base"
CAND_ROLE = "ab_cand"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCase:
    """What the pairs of one case say; `pairs` had both sides valid. `left_out`: valid pairs that can't count, for a side had
    another build or machine than in most. `first`: a trial of either side, the base before the candidate; fewer where a side has
    none.
    """

    name: str
    pairs: int
    left_out: int = 0
    metrics: tuple[Comparison, ...]
    first: tuple[TrialRecord, ...] = ()


def paired_cases(records: Sequence[TrialRecord]) -> list[PairedCase]:
    """What the valid pairs among `records` say: each side's geometric mean, so that their ratio is the pairs' one, and p-values
    adjusted over all of them.
    """
    sides: dict[str, dict[int, dict[str, TrialRecord]]] = {}
    first: dict[str, dict[str, TrialRecord]] = {}
    for record in records:
        if record.key.role in (BASE_ROLE, CAND_ROLE):
            numbered = sides.setdefault(record.case.name, {})
            first.setdefault(record.case.name, {}).setdefault(record.key.role, record)
            if record.status is Status.VALID:
                numbered.setdefault(record.key.repeat, {})[record.key.role] = record
    valid = {name: [pair for _, pair in sorted(numbered.items()) if len(pair) == 2] for name, numbered in sides.items()}
    whole = {name: _alike(pairs) for name, pairs in valid.items()}
    found = {name: [one for metric in COMPARED if (one := _compare(metric, pairs))] for name, pairs in whole.items()}
    adjusted = iter(adjust([one for metrics in found.values() for one in metrics]))
    return [
        PairedCase(
            name=name,
            pairs=len(whole[name]),
            left_out=len(valid[name]) - len(whole[name]),
            metrics=tuple(next(adjusted) for _ in metrics),
            first=tuple(first[name][role] for role in (BASE_ROLE, CAND_ROLE) if role in first[name]),
        )
        for name, metrics in found.items()
    ]


def _alike(pairs: Sequence[Mapping[str, TrialRecord]]) -> list[Mapping[str, TrialRecord]]:
    """The pairs with the builds and the machine that most have, the later ones of as many: a run that is gone on with may find
    its engine upgraded.
    """
    places = [tuple((pair[role].host.host_id, pair[role].config_id) for role in (BASE_ROLE, CAND_ROLE)) for pair in pairs]
    one_host = [place for place in places if place[0][0] == place[1][0]]
    if not one_host:
        return []
    count = Counter(one_host)
    meant = max(reversed(one_host), key=lambda place: count[place])
    return [pair for pair, place in zip(pairs, places, strict=True) if place == meant]


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
        base=geometric_mean(base),
        cand=geometric_mean(cand),
        n_base=len(base),
        n_cand=len(cand),
        ratio=None if mixed else paired_ratio(base, cand),
        reason=f"energy of other parts: {' and '.join(sorted(map(str, scopes)))}" if mixed else None,
    )


def _number(record: TrialRecord, name: str) -> float | None:
    metric = record.metrics.get(name)
    number: float | None = None if metric is None else getattr(metric, main_field(name))
    return number
