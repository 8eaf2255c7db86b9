"""A glance at every device: what was found, and what it draws just now."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.clock import SYSTEM, Clock
from bench.ports import ProbeHost, ProbeStream
from bench.records import DeviceInfo, ProbeProblem, Reading
from bench.units import NS_PER_S

PERIOD_S = 0.25
LOOK_S = 1.5
_POLL_S = 0.05
_SHORTEST_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNow:
    """A device with its latest values. `power_w` is the sensor's own, else the counter's difference over the look."""

    device: DeviceInfo
    power_w: float | None
    power_api: str | None
    memory_used_b: int | None
    utilisation: float | None
    temperature_c: float | None
    foreign_processes: float | None
    """Processes that compute on it; None where it can't be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that `bench devices` shows."""

    devices: tuple[DeviceNow, ...]
    problems: tuple[ProbeProblem, ...]


def look(host: ProbeHost, *, seconds: float = LOOK_S, clock: Clock = SYSTEM) -> Snapshot:
    """Open every probe, watch for up to `seconds` after all have answered, close them.

    Ends early when each device has shown its power, or can't.
    """
    streams = [host.open(name, PERIOD_S) for name in host.names()]
    try:
        readings = _gather(streams, round(seconds * NS_PER_S), clock)
        found = [stream.discovery() for stream in streams]
    finally:
        for stream in streams:
            stream.close()
    return Snapshot(
        devices=tuple(device_now(device, readings.get(device.uid, [])) for each in found for device in each.devices),
        problems=tuple(problem for each in found for problem in each.problems),
    )


def _gather(streams: list[ProbeStream], look_ns: int, clock: Clock) -> dict[str, list[Reading]]:
    devices = [device for stream in streams for device in stream.discovery().devices]
    wanted = {device.uid for device in devices if device.power or device.energy}
    readings: dict[str, list[Reading]] = {}
    end_ns = clock.monotonic_ns() + look_ns
    pause = threading.Event()
    while True:
        for stream in streams:
            for reading in stream.drain():
                readings.setdefault(reading.uid, []).append(reading)
        shown = {d.uid for d in devices if _power(d, readings.get(d.uid, []))[0] is not None}
        if wanted <= shown or clock.monotonic_ns() >= end_ns:
            return readings
        pause.wait(_POLL_S)


def device_now(device: DeviceInfo, readings: Sequence[Reading]) -> DeviceNow:
    """The latest of each quantity in `readings`, which are of this device and in time order."""
    power_w, power_api = _power(device, readings)
    last: Mapping[str, float | int | None] = {
        name: next((value for r in reversed(readings) if (value := getattr(r, name)) is not None), None)
        for name in ("memory_used_b", "utilisation", "temperature_c", "foreign_processes")
    }
    memory_b = last["memory_used_b"]
    return DeviceNow(
        device=device,
        power_w=power_w,
        power_api=power_api,
        memory_used_b=None if memory_b is None else int(memory_b),
        utilisation=last["utilisation"],
        temperature_c=last["temperature_c"],
        foreign_processes=last["foreign_processes"],
    )


def _power(device: DeviceInfo, readings: Sequence[Reading]) -> tuple[float | None, str | None]:
    """Watts and where they come from; (None, None) where nothing tells."""
    direct = next((r.power_w for r in reversed(readings) if r.power_w is not None), None)
    if direct is not None and device.power is not None:
        return direct, device.power.api
    counted = [r for r in readings if r.energy_j is not None]
    if device.power is not None or device.energy is None or len(counted) < 2:
        return None, None
    first, last = counted[0], counted[-1]
    assert first.energy_j is not None
    assert last.energy_j is not None
    seconds = (last.before_ns - first.before_ns) / NS_PER_S
    joules = last.energy_j - first.energy_j
    if joules < 0 and device.energy.wrap_j is not None:
        joules += device.energy.wrap_j
    if joules < 0 or seconds < _SHORTEST_S:
        return None, None
    return joules / seconds, f"difference of {device.energy.api}"
