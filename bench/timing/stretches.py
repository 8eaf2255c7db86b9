"""A long recording in stretches: each is worked out and let go of, so that a day takes no more memory than minutes. Pure.

Windows add up: what a device drew over consecutive stretches is the sum of what it drew over each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bench.records import Quality, Scope, Telemetry, Window
from bench.timing.counters import Fault
from bench.timing.recorded import Joules, RecordedDevice, RecordedScope, recorded_devices, recorded_scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What every device and every scope drew over a window."""

    window: Window
    devices: tuple[RecordedDevice, ...]
    scopes: tuple[RecordedScope, ...]


def recorded(telemetry: Telemetry, window: Window) -> Recorded:
    """What `telemetry` tells of `window`."""
    return Recorded(window=window, devices=recorded_devices(telemetry, window), scopes=recorded_scopes(telemetry, window))


def joined(stretches: Sequence[Recorded]) -> Recorded:
    """Consecutive windows as one. What is missing in one of them is missing in all."""
    last = stretches[-1]
    if len(stretches) == 1:
        return last
    devices: dict[str, list[RecordedDevice]] = {}
    scopes: dict[tuple[Scope, Quality], list[Joules]] = {}
    for stretch in stretches:
        for device in stretch.devices:
            devices.setdefault(device.device.uid, []).append(device)
        for scope in stretch.scopes:
            scopes.setdefault((scope.scope, scope.quality), []).append(scope.joules)
    seconds = [stretch.window.seconds for stretch in stretches]
    return Recorded(
        window=Window(t0_ns=stretches[0].window.t0_ns, t1_ns=last.window.t1_ns),
        devices=tuple(_device(parts, seconds) for parts in devices.values()),
        scopes=tuple(
            RecordedScope(scope=scope, quality=quality, joules=_joules(parts, len(stretches)))
            for (scope, quality), parts in scopes.items()
        ),
    )


def _device(parts: Sequence[RecordedDevice], seconds: Sequence[float]) -> RecordedDevice:
    """One that was not there from the start has no energy, and is told of as far as it was there."""
    joules, total_s = _joules([part.joules for part in parts], len(seconds)), sum(seconds)
    busy = [(part.utilisation, part.readings) for part in parts if part.utilisation is not None]
    return replace(
        parts[-1],
        joules=joules,
        mean_w=None if joules.energy_j is None else joules.energy_j / total_s,
        least_w=min((part.least_w for part in parts if part.least_w is not None), default=None),
        most_w=max((part.most_w for part in parts if part.most_w is not None), default=None),
        method="+".join(sorted({part.method for part in parts if part.method is not None})) or None,
        coverage=sum(part.coverage * s for part, s in zip(parts, seconds[-len(parts) :], strict=True)) / total_s,
        other_j=_sum([part.other_j for part in parts]),
        utilisation=sum(share * n for share, n in busy) / sum(n for _, n in busy) if busy else None,
        readings=sum(part.readings for part in parts),
        faults=tuple(_first_of_each(fault for part in parts for fault in part.faults)),
    )


def _joules(parts: Sequence[Joules], stretches: int) -> Joules:
    """Ends of intervals are added plainly: most of them is the sensor's gain, the same in each stretch."""
    reason = next((part.reason for part in parts if part.energy_j is None), None)
    if len(parts) < stretches:
        reason = reason or "it was not there from the start"
    known = reason is None
    return Joules(
        energy_j=_sum([part.energy_j for part in parts]) if known else None,
        low_j=_sum([part.low_j for part in parts]) if known else None,
        high_j=_sum([part.high_j for part in parts]) if known else None,
        reason=reason,
        warnings=tuple(dict.fromkeys(text for part in parts for text in part.warnings)),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _first_of_each(faults: Iterable[Fault]) -> Iterable[Fault]:
    """A fault that comes again in each stretch is told once."""
    found: dict[str, Fault] = {}
    for fault in faults:
        found.setdefault(fault.code, fault)
    return found.values()
