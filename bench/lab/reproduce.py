"""A stored trial measured again: what is not as it was, and whether the numbers are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from bench import __version__
from bench.analysis.compare import ENERGY, Comparison, Point, adjust, compare_points
from bench.analysis.compare_pairs import Compared, Pair
from bench.analysis.pool import pool_key
from bench.analysis.reproduced import ratio_to_one
from bench.errors import UsageError
from bench.lab.compare import points
from bench.lab.compare_select import quoted
from bench.records import BOARD_SCOPES, Case, DeviceInfo, HostInfo, LocalModel, Status, TrialRecord
from bench.store import Lab
from bench.suite.values import MOST_REPEATS
from bench.units import format_bytes

_NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something of the machine, the engine or the weights that is not as it was."""

    what: str
    then: str
    now: str


def case_again(record: TrialRecord, repeats: int) -> Case:
    """The resolved case of a trial, to be measured `repeats` times. Raises: UsageError."""
    if not 1 <= repeats <= MOST_REPEATS:
        raise UsageError(f"--repeats {repeats}: at least 1, and at most {MOST_REPEATS:,}")
    return structs.replace(record.case, repeats=repeats)


def facts_of(record: TrialRecord) -> dict[str, str]:
    """What a trial was measured with, by name."""
    engine, model = record.engine, record.model
    told = {
        "bench version": record.bench_version,
        "engine version": engine.version if engine else None,
        "engine build": engine.build if engine else None,
        "engine settings": json.dumps(engine.settings, sort_keys=True) if engine else None,
        "weights sha256": model.weights_sha256 if model else None,
        "data set": record.dataset_hash,
    }
    return _host(record.host) | _devices(record.devices) | {name: value for name, value in told.items() if value is not None}


def facts_here(record: TrialRecord, host: HostInfo, devices: Sequence[DeviceInfo], model: LocalModel | None) -> dict[str, str]:
    """The same of this machine as far as it is known before anything starts. Of its boards those count that the trial had, where
    all of them are here.
    """
    had = {device.uid for device in record.devices if device.scope in BOARD_SCOPES}
    same = [device for device in devices if device.uid in had]
    told = _host(host) | _devices(same if len(same) == len(had) else devices) | {"bench version": __version__}
    return told | ({"weights sha256": model.weights_sha256} if model and model.weights_sha256 else {})


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[Difference]:
    """What both know of and is not the same, in the order of `then`."""
    return [Difference(what=name, then=then[name], now=now[name]) for name in then if name in now and then[name] != now[name]]


def reproduced(lab: Lab, record: TrialRecord, run_id: str) -> Compared | str:
    """The stored trial (with its repeats) against run `run_id`, metric by metric; or why there is nothing to compare.

    Raises: StoreError.
    """
    if record.status is not Status.VALID:
        return f"the stored trial is {record.status.value}: it has no numbers to compare with"
    key = record.key
    then = points(lab, f"run_id = {quoted(key.run_id)} AND case_id = {quoted(key.case_id)} AND role = {quoted(key.role)}")
    now = points(lab, f"run_id = {quoted(run_id)}")
    base = next((point for point in then if point.key == pool_key(record)), None)
    if base is None or not now:
        return "no new trial is valid" if base else "the stored trial is no longer there"
    found = [_with_spread(one, base, now[0]) for one in compare_points(base, now[0])]
    return Compared(pair=Pair(base=base, cand=now[0]), metrics=tuple(adjust(found)))


def _with_spread(one: Comparison, base: Point, cand: Point) -> Comparison:
    """With an interval also where one stored value stands alone; not of joules of other boards, whose sensors differ too."""
    if one.ratio is None or one.n_base != 1 or one.n_cand < 2 or (one.metric == ENERGY and base.boards != cand.boards):
        return one
    return replace(one, ratio=ratio_to_one(base.samples[one.metric].values[0], cand.samples[one.metric].values))


def _host(host: HostInfo) -> dict[str, str]:
    return {
        "host": host.host_id,
        "CPU": f"{host.cpu_count}x {host.cpu_model or '?'}",
        "memory": format_bytes(host.memory_b),
        "system": f"{host.system} {host.release} {host.machine}",
    }


def _devices(devices: Sequence[DeviceInfo]) -> dict[str, str]:
    boards = [device for device in devices if device.scope in BOARD_SCOPES]
    limits = {f"{device.power_limit_w:g} W" for device in boards if device.power_limit_w is not None}
    return {
        "devices": ", ".join(f"{count}x {name}" for name, count in sorted(Counter(d.name for d in boards).items())) or _NONE,
        "driver": ", ".join(sorted({device.driver for device in boards if device.driver})) or _NONE,
        "power limit": ", ".join(sorted(limits)) or _NONE,
    }
