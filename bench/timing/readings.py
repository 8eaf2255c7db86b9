"""Readings of the probes as one set of columns a device. Missing is NaN. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bench.records import BOARD_SCOPES, DeviceInfo, FloatArray, IntArray, Reading, Telemetry, Window

MAX_POWER_W = {
    "accelerator": 5000.0,
    "module": 10_000.0,
    "cpu_package": 1000.0,
    "dram": 500.0,
    "node": 50_000.0,
    "process": 5000.0,
}
"""Watts that no domain of this scope draws: above them a reading is a unit error, and a counter's rise is not credible."""

LIMIT_FACTOR = 1.5
"""Watts above this multiple of a board's power limit are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSeries:
    """One device's readings in time order. `t_ns` is the middle of each call; `refused` counts implausible watts."""

    device: DeviceInfo
    t_ns: IntArray
    power_w: FloatArray
    energy_j: FloatArray
    memory_b: FloatArray
    utilisation: FloatArray
    temperature_c: FloatArray
    throttle: tuple[tuple[str, ...] | None, ...]
    foreign: FloatArray
    """Processes on the device that are not the engine's."""
    refused: int

    def inside(self, window: Window) -> slice:
        """The readings taken in `[t0, t1)`."""
        first, last = np.searchsorted(self.t_ns, [window.t0_ns, window.t1_ns], side="left")
        return slice(int(first), int(last))


def plausible_power_w(device: DeviceInfo) -> float:
    """The most that `device` can credibly draw [W]: 1.5 times a board's limit, never above its scope's bound.

    The limit of a CPU package is a long-term mean that turbo may pass several times over, so there it says nothing.
    """
    bound = MAX_POWER_W[device.scope]
    if device.power_limit_w is None or device.scope not in BOARD_SCOPES:
        return bound
    return min(bound, LIMIT_FACTOR * device.power_limit_w)


def device_series(telemetry: Telemetry) -> dict[str, DeviceSeries]:
    """Every device's series by uid, idle readings included; a reading handed over twice counts once."""
    by_uid: defaultdict[str, dict[int, Reading]] = defaultdict(dict)
    for reading in (*telemetry.idle_readings, *telemetry.readings):
        by_uid[reading.uid][(reading.before_ns + reading.after_ns) // 2] = reading
    return {device.uid: _series(device, by_uid.get(device.uid, {})) for device in telemetry.devices}


def _series(device: DeviceInfo, by_time: dict[int, Reading]) -> DeviceSeries:
    ordered = [by_time[t] for t in sorted(by_time)]
    power = _column(r.power_w for r in ordered)
    credible = (power >= 0) & (power <= plausible_power_w(device))
    return DeviceSeries(
        device=device,
        t_ns=np.array(sorted(by_time), dtype=np.int64),
        power_w=np.where(credible, power, np.nan),
        energy_j=_column(r.energy_j for r in ordered),
        memory_b=_column(_engines_memory_b(r) for r in ordered),
        utilisation=_column(r.utilisation for r in ordered),
        temperature_c=_column(r.temperature_c for r in ordered),
        throttle=tuple(r.throttle for r in ordered),
        foreign=_column(r.foreign_processes for r in ordered),
        refused=int((~np.isnan(power) & ~credible).sum()),
    )


def _engines_memory_b(reading: Reading) -> int | None:
    """Memory in use; of a board that others use as well, what the engine's processes hold, where the vendor tells that."""
    return reading.engine_memory_b if reading.foreign_processes and reading.engine_memory_b is not None else reading.memory_used_b


def _column(values: Iterable[float | int | None]) -> FloatArray:
    return np.array([np.nan if v is None else float(v) for v in values], dtype=np.float64)
