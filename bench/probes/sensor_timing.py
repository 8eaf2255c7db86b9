"""How long a sensor's call takes and how often its value changes, learnt from a burst of polls at the start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from msgspec.structs import replace

from bench.records import DeviceInfo, Reading, SensorInfo

POLL_SPACING_S = 0.005
"""Between polls of the burst: no update period below this can be seen."""
BURST_S = 1.0
ENOUGH_CALLS = 20
ENOUGH_CHANGES = 8
_FEWEST_CHANGES = 3


@dataclass(slots=True)
class _Changes:
    last: float | None = None
    at_ns: list[int] = field(default_factory=list)

    def see(self, value: float | None, now_ns: int) -> None:
        if value is None:
            return
        if self.last is not None and value != self.last:
            self.at_ns.append(now_ns)
        self.last = value

    @property
    def period_s(self) -> float | None:
        """Median time between changes [s]; None below three changes."""
        if len(self.at_ns) < _FEWEST_CHANGES:
            return None
        return median(b - a for a, b in pairwise(self.at_ns)) / 1e9


@dataclass(slots=True)
class _Polled:
    costs_ns: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    power: _Changes = field(default_factory=_Changes)
    energy: _Changes = field(default_factory=_Changes)

    def enough(self) -> bool:
        changes = [len(c.at_ns) for c in (self.power, self.energy) if c.last is not None]
        return len(self.costs_ns) >= ENOUGH_CALLS and all(n >= ENOUGH_CHANGES for n in changes)


class SensorTiming:
    """Call cost and update period [s] of each kind of sensor. One device stands for all of its name and scope: boards of
    one model have the same sensor, and polling eight of them would itself draw power.
    """

    def __init__(self, devices: Iterable[DeviceInfo]) -> None:
        self._polled: dict[tuple[str, str], _Polled] = {}
        self._uids: dict[str, tuple[str, str]] = {}
        for device in devices:
            kind = (device.name, device.scope)
            if (device.power or device.energy) and kind not in self._polled:
                self._polled[kind] = _Polled()
                self._uids[device.uid] = kind

    def uids(self) -> tuple[str, ...]:
        """Devices still worth polling; empty when the burst has seen enough."""
        return tuple(uid for uid, kind in self._uids.items() if not self._polled[kind].enough())

    def see(self, reading: Reading, cpu_s: float) -> None:
        """One poll, and the CPU seconds that all of it took."""
        polled = self._polled[self._uids[reading.uid]]
        polled.costs_ns.append(reading.after_ns - reading.before_ns)
        polled.cpu_s.append(cpu_s)
        polled.power.see(reading.power_w, reading.before_ns)
        polled.energy.see(reading.energy_j, reading.before_ns)

    def drop(self, uid: str) -> None:
        """Stop polling a device that fails."""
        self._uids.pop(uid, None)

    def tick_cpu_s(self, devices: Iterable[DeviceInfo]) -> float:
        """CPU seconds of reading each of `devices` once; those that were not timed count nothing."""
        seen = (self._polled.get((device.name, device.scope)) for device in devices)
        return sum(median(polled.cpu_s) for polled in seen if polled is not None and polled.cpu_s)

    def applied(self, device: DeviceInfo) -> DeviceInfo:
        """The device with what was learnt about its sensors."""
        polled = self._polled.get((device.name, device.scope))
        if polled is None or not polled.costs_ns:
            return device
        cost_s = median(polled.costs_ns[: ENOUGH_CALLS * 2]) / 1e9
        return replace(
            device,
            power=_timed(device.power, cost_s, polled.power.period_s),
            energy=_timed(device.energy, cost_s, polled.energy.period_s),
        )


def _timed(sensor: SensorInfo | None, cost_s: float, period_s: float | None) -> SensorInfo | None:
    """A value that stood still in the burst tells no period: what is published of the sensor then stays."""
    if sensor is None:
        return None
    return replace(sensor, call_cost_s=cost_s, update_period_s=sensor.update_period_s if period_s is None else period_s)


def fastest_update_s(devices: Iterable[DeviceInfo]) -> float | None:
    """The shortest update period among all sensors [s]; None as soon as one of them is unknown."""
    sensors = [sensor for device in devices for sensor in (device.power, device.energy) if sensor is not None]
    periods = [sensor.update_period_s for sensor in sensors]
    if not periods or None in periods:
        return None
    return min(period for period in periods if period is not None)
