"""A suite as the jobs of a nightly matrix: one a kind of host and engine, cut where it would take too long.

The same suite and the same wishes give the same jobs with the same ids. A shard is made of whole engine starts where it can be,
and of neighbouring cases where one start takes too long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bench.analysis.gate import PAIRS
from bench.catalog import chips
from bench.errors import UsageError
from bench.identity import digest
from bench.lab.plans import START_TIMEOUT_S
from bench.plugins import PROBES, names
from bench.records import Case
from bench.session.groups import engine_groups
from bench.suite import Suite

MOST_JOBS = 256
"""GitHub's limit of jobs that one matrix may make. Source: its workflow syntax, `jobs.<id>.strategy.matrix`."""
JOB_MINUTES = 60.0
LONGEST_LIMIT_MINUTES = 5 * 24 * 60
"""GitHub ends a job of a self-hosted runner after five days. Source: its usage limits."""
ENGINE_START_S = 120.0
"""What an engine start is taken to need: it is not known beforehand, and large weights take longer."""
_PLACE = re.compile(r"([a-z0-9][a-z0-9.-]*)(?:/([a-z0-9][a-z0-9.-]*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Hosts that can stand for each other: those of a vendor, with one kind of device where it is named."""

    vendor: str
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How jobs are made: where they run, on which runner instead of the lab's own, in which image (empty: none), and how long
    and how many they may be.
    """

    places: tuple[Place, ...]
    runner: tuple[str, ...] = ()
    image: str = ""
    job_minutes: float = JOB_MINUTES
    most_jobs: int = MOST_JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job. `cases` are their names, one a line, as `bench run --case` takes them. Where `pairs` is not 0, so many pairs of
    `ab_base` and `ab_cand` are measured instead of each case by itself. `minutes` are expected, `limit_minutes` the end of all
    patience.
    """

    id: str
    runs_on: tuple[str, ...]
    image: str
    suite: str
    cases: str
    vendor: str
    device: str | None
    devices: int
    engine: str
    minutes: int
    limit_minutes: int
    pairs: int = 0
    ab_base: str = ""
    ab_cand: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """What one job must do in one piece: `seconds` without the engine's start, at most `grace_s` more."""

    names: tuple[str, ...]
    seconds: float
    grace_s: float
    starts: int = 1

    @property
    def expected_s(self) -> float:
        return self.seconds + self.starts * ENGINE_START_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A case, or a sweep at its lowest load, measured at most `trials` times."""

    case: Case
    trials: int

    @property
    def seconds(self) -> float:
        return self.trials * (self.case.warmup_s + self.case.duration_s)  # one that ends by count is taken to last as long


def place_of(text: str) -> Place:
    """`nvidia/h100` or `cpu` as a place; the device is the lab's own word. Raises: UsageError."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is no VENDOR or VENDOR/DEVICE", hint="small letters, digits, dots and dashes: nvidia/h100")
    vendor, device = found.groups()
    if vendor not in PROBES and vendor not in (known := names("bench.probes")):
        raise UsageError(f"{text!r} names no vendor whose devices can be measured", hint=_meant(vendor, device, known))
    return Place(vendor=vendor, device=device)


def _meant(vendor: str, device: str | None, known: Sequence[str]) -> str:
    """The nearest vendor; of a device alone, its vendor before it."""
    made_by = {chip.vendor for chip in chips.spoken(vendor)} if device is None else set()
    if made_by & {*known}:
        return f"did you mean {min(made_by)}/{vendor}?"
    near = get_close_matches(vendor, known, n=1)
    return f"did you mean {'/'.join(filter(None, (near[0], device)))}?" if near else f"one of: {', '.join(known)}"


def jobs_of(suite: Suite, ref: str, wishes: Wishes) -> list[Job]:
    """The jobs that measure `suite`, which is called `ref`, at every place. Jobs grow beyond `job_minutes` where there would be
    more than `most_jobs` of them.

    Raises: UsageError (a place where nothing can run, more kinds of jobs than there may be jobs).
    """
    groups = [group for place in wishes.places for group in _groups(suite, place)]
    if len(groups) > wishes.most_jobs:
        raise UsageError(
            f"{len(groups)} kinds of host and engine are more than {wishes.most_jobs} jobs",
            hint="one matrix a vendor: fewer --on",
        )
    minutes = wishes.job_minutes
    while True:
        shards = [(group, _packed(group.units, minutes * 60.0)) for group in groups]
        if sum(len(packed) for _, packed in shards) <= wishes.most_jobs:
            break
        minutes *= 1.25
    return [job for group, packed in shards for job in _jobs(group, packed, ref, wishes)]


def paired(job: Job, suite: Suite, names: Sequence[str], sides: tuple[str, str]) -> Job:
    """The job that measures pairs of the cases called `names`, base and candidate in turns, where `job` measured them."""
    cases = [case for case in suite.cases if case.name in names]
    unit = _Unit(
        names=tuple(case.name for case in cases),
        seconds=sum(2 * PAIRS * (_Point(case=case, trials=1).seconds + 2.0 * case.idle_s) for case in cases),
        grace_s=sum(2 * PAIRS * case.grace_s for case in cases),
        starts=2 * PAIRS * len(cases),
    )
    return replace(
        job,
        id=f"{job.id}-ab-{digest(sides)[:6]}",
        cases="\n".join(unit.names),
        minutes=_minutes(unit.expected_s),
        limit_minutes=_limit_minutes([unit]),
        pairs=PAIRS,
        ab_base=sides[0],
        ab_cand=sides[1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    place: Place
    devices: int
    engine: str
    units: tuple[tuple[_Unit, ...], ...]
    """One tuple an engine start, of its cases."""


def _groups(suite: Suite, place: Place) -> list[_Group]:
    points = [_Point(case=case, trials=case.repeats) for case in suite.cases]
    points += [_Point(case=s.case, trials=s.search.points * s.case.repeats) for s in suite.sweeps]
    fitting = [point for point in points if _vendors(point.case) <= {place.vendor}]
    if not fitting:
        raise UsageError(f"no case of {suite.name} runs on {place.vendor}: all name devices of other vendors")
    found: dict[tuple[int, str], list[_Point]] = {}
    for point in fitting:
        found.setdefault((_devices(point.case), point.case.engine), []).append(point)
    return [
        _Group(place=place, devices=devices, engine=engine, units=tuple(_units(members)))
        for (devices, engine), members in found.items()
    ]


def _vendors(case: Case) -> set[str]:
    """Those that its devices name, as in `nvidia:0`; a device may also be a bare number or id."""
    return {device.partition(":")[0] for device in case.devices if device.partition(":")[0] in PROBES}


def _devices(case: Case) -> int:
    return len(case.devices) or case.parallel.devices


def _units(points: Sequence[_Point]) -> Iterable[tuple[_Unit, ...]]:
    """The cases of each engine start."""
    by_name = {point.case.name: point for point in points}
    for group in engine_groups([point.case for point in points]):
        members = [by_name[case.name] for case in group.cases]
        idle_s = 2.0 * max(point.case.idle_s for point in members)
        yield tuple(
            _Unit(
                names=(point.case.name,), seconds=point.seconds + idle_s / len(members), grace_s=point.trials * point.case.grace_s
            )
            for point in members
        )


def _packed(starts: Sequence[Sequence[_Unit]], most_s: float) -> list[list[_Unit]]:
    """Engine starts in order, as many to a job as fit; one that doesn't fit is cut between its cases."""
    packed: list[list[_Unit]] = []
    for units in starts:
        whole = _joined(units)
        if packed and sum(unit.expected_s for unit in packed[-1]) + whole.expected_s <= most_s:
            packed[-1].append(whole)
        elif whole.expected_s <= most_s or len(units) == 1:
            packed.append([whole])
        else:
            packed += [[_joined(part)] for part in _cut(units, most_s)]
    return packed


def _cut(units: Sequence[_Unit], most_s: float) -> list[list[_Unit]]:
    parts: list[list[_Unit]] = []
    for unit in units:
        if parts and _joined([*parts[-1], unit]).expected_s <= most_s:
            parts[-1].append(unit)
        else:
            parts.append([unit])
    return parts


def _joined(units: Sequence[_Unit]) -> _Unit:
    """Cases behind one start of their engine."""
    return _Unit(
        names=tuple(name for unit in units for name in unit.names),
        seconds=sum(unit.seconds for unit in units),
        grace_s=sum(unit.grace_s for unit in units),
    )


def _jobs(group: _Group, packed: Sequence[Sequence[_Unit]], ref: str, wishes: Wishes) -> Iterable[Job]:
    place = group.place
    stem = "-".join([place.vendor, *([place.device] if place.device else []), f"x{group.devices}", group.engine])
    labels = ["self-hosted", "bench", f"vendor-{place.vendor}", *([f"dev-{place.device}"] if place.device else [])]
    for number, units in enumerate(packed, start=1):
        yield Job(
            id=stem if len(packed) == 1 else f"{stem}-{number}of{len(packed)}",
            runs_on=wishes.runner or (*labels, f"x{group.devices}"),
            image=wishes.image,
            suite=ref,
            cases="\n".join(name for unit in units for name in unit.names),
            vendor=place.vendor,
            device=place.device,
            devices=group.devices,
            engine=group.engine,
            minutes=_minutes(sum(unit.expected_s for unit in units)),
            limit_minutes=_limit_minutes(units),
        )


def _minutes(seconds: float) -> int:
    return math.ceil(seconds / 60.0)


def _limit_minutes(units: Sequence[_Unit]) -> int:
    """Twice what is expected, with every grace and every start timed out: what is longer hangs."""
    most_s = sum(2.0 * unit.expected_s + unit.grace_s + unit.starts * START_TIMEOUT_S for unit in units)
    return min(_minutes(most_s), LONGEST_LIMIT_MINUTES)
