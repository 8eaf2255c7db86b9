"""Which precision to send to which chip: the fastest and the most efficient that were measured. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.analysis.candidates import Candidate, Objective, values
from bench.analysis.recommend import UNRANKED, Recommendation, RunnerUp, ranked
from bench.catalog.chips import all_chips
from bench.precision import same_precision

NOT_SAID = "not said"
_FORMATS = ("bf16", "fp16", "fp8", "int8", "fp6", "fp4")
_HALVES = frozenset(("bf16", "fp16"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The best precision of a chip, with the point that shows it; `rival`: the best point of another precision, None where no
    other was measured.
    """

    best: Candidate
    rival: RunnerUp | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One kind of device, so many at once. `fastest` and `efficient` are of points that meet what was asked for; None with its
    reason. `measured`: every precision that meets it at some load, `failing`: those that never do. `unmeasured`: formats in which
    the chip multiplies, by the catalogue, that nobody tried.
    """

    devices: tuple[str, ...]
    fastest: Pick | str
    efficient: Pick | str
    measured: tuple[str, ...]
    failing: tuple[str, ...]
    unmeasured: tuple[str, ...]


def routes(found: Recommendation) -> list[Route]:
    """A route for each set of devices, in the order of their names."""
    unranked = [one.candidate for one in found.left_out if one.lack == UNRANKED]
    failing = [one.candidate for one in found.near] + [one.candidate for one in found.left_out if one.lack != UNRANKED]
    meeting, others = _by_devices([*found.meeting, *unranked]), _by_devices(failing)
    return [_route(devices, meeting[devices], others[devices]) for devices in sorted({*meeting, *others})]


def _by_devices(found: Iterable[Candidate]) -> defaultdict[tuple[str, ...], list[Candidate]]:
    groups: defaultdict[tuple[str, ...], list[Candidate]] = defaultdict(list)
    for one in found:
        groups[one.devices].append(one)
    return groups


def _route(devices: tuple[str, ...], meeting: Sequence[Candidate], others: Sequence[Candidate]) -> Route:
    good = sorted({one.precision or NOT_SAID for one in meeting})
    bad = sorted({one.precision or NOT_SAID for one in others} - set(good))
    return Route(
        devices=devices,
        fastest=_pick(meeting, "tok_per_s"),
        efficient=_pick(meeting, "tok_per_j"),
        measured=tuple(good),
        failing=tuple(bad),
        unmeasured=_unmeasured(set(devices), [*good, *bad]),
    )


def _pick(meeting: Sequence[Candidate], objective: Objective) -> Pick | str:
    if not meeting:
        return "nothing meets what was asked for"
    able = [one for one in meeting if (found := values(one, objective)) and min(found) > 0.0]
    if not able:
        return "no energy" if objective == "tok_per_j" else "no throughput"
    scopes = sorted({one.first.energy_scope or "unknown" for one in able})
    if objective == "tok_per_j" and len(scopes) > 1:
        return f"energy of other parts: {' and '.join(scopes)}"
    first = {one.precision: one for one in reversed(_best_first(able, objective))}
    best, rivals = ranked(list(first.values()), objective)
    assert best is not None
    return Pick(best=best, rival=rivals[0] if rivals else None)


def _best_first(able: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    best, others = ranked(able, objective)
    return [] if best is None else [best, *(one.candidate for one in others)]


def _unmeasured(names: set[str], tried: Sequence[str]) -> tuple[str, ...]:
    """None where the name is of several chips, or of none in the catalogue."""
    chips = [chip for chip in all_chips() if all(chip.calls_itself(name) for name in names)]
    if len(chips) != 1:
        return ()
    able = [name for name in _FORMATS if name in chips[0].tflops]
    halves = _HALVES.intersection(tried)
    return tuple(name for name in able if not (halves and name in _HALVES) and not any(same_precision(name, t) for t in tried))
