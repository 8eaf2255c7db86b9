"""Memory, activity, temperature, clock, limits in force and processes of an Intel GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from ctypes import byref, c_double, c_void_p
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.probes.cards import Quantity
from bench.probes.intel import structs, sysman
from bench.probes.native import Native
from bench.probes.values import Unavailable, above_0, attempt, number

_Sort = tuple[str, str, type[Any]]
"""The call that lists sensors of a sort, the one that tells of a sensor, and what it tells."""
_TEMPERATURES: _Sort = ("zesDeviceEnumTemperatureSensors", "zesTemperatureGetProperties", structs.TemperatureProperties)
_FREQUENCIES: _Sort = ("zesDeviceEnumFrequencyDomains", "zesFrequencyGetProperties", structs.FrequencyProperties)
_ON_DEVICE = 1
_COMPUTING = (1, 4, 5, 12)
"""Kinds of engine groups that run kernels: all compute, one compute, one render, all render."""
_SENSORS = (1, 0)
"""The hottest of the GPU, else of everything."""
_CLOCK_OF_GPU = (0,)
_THROTTLES = {
    0x1: "sw_power_cap",
    0x2: "sw_power_cap",
    0x4: "current_limit",
    0x8: "hw_thermal",
    0x10: "hw_power_brake",
    0x20: "application_clocks",
    0x40: "hw_slowdown",
    0x80: "reliability",
    0x100: "hw_thermal",
    0x200: "sw_power_cap",
}
"""ZES_FREQ_THROTTLE_REASON_FLAG_*: average and burst power, current, thermal, supply, ranges, voltage, thermal, power."""


def memory(api: Native, device: c_void_p) -> dict[str, Quantity]:
    """All modules on the card together."""
    name = "zesMemoryGetState"
    modules = [
        module
        for module in attempt(partial(sysman.handles, api, "zesDeviceEnumMemoryModules", device))[0] or ()
        if (about := _about(api, "zesMemoryGetProperties", module, structs.MemoryProperties)) and about.location == _ON_DEVICE
    ]

    def sizes() -> tuple[int, int]:
        states = [sysman.told(api, name, module, structs.MemoryState) for module in modules]
        size, free = sum(state.size for state in states), sum(state.free for state in states)
        if size == 0 or free > size:
            raise Unavailable(f"the driver tells of {free} bytes free of {size}", lasting=False)
        return size, size - free

    return {
        "memory_total_b": Quantity(get=lambda: sizes()[0], api=name, unit="B"),
        "memory_used_b": Quantity(get=lambda: sizes()[1], api=f"{name} (size - free)", unit="B"),
    }


def sensors(api: Native, device: c_void_p) -> dict[str, Quantity]:
    """Activity, temperature, clock and limits in force, where there is a sensor of each."""
    busy = BusyMeter(_engines(api, device))
    attempt(busy.share)  # the first look, which later ones are held against
    found = {"utilisation": Quantity(get=busy.share, api="zesEngineGetActivity (busiest)", unit="us/us")}
    if (sensor := _first(api, device, _TEMPERATURES, _SENSORS)) is not None:
        found["temperature_c"] = Quantity(get=partial(_celsius, api, sensor), api="zesTemperatureGetState", unit="C")
    if (clock := _first(api, device, _FREQUENCIES, _CLOCK_OF_GPU)) is not None:
        name = "zesFrequencyGetState"
        found["clock_mhz"] = Quantity(get=partial(_mhz, api, clock), api=f"{name}[actual]", unit="MHz")
        found["throttle"] = Quantity(get=partial(_limits, api, clock), api=f"{name}[throttleReasons]", unit="flags")
    return found


def processes(api: Native, device: c_void_p) -> dict[int, int | None]:
    """Bytes on the card by process id. Raises: Unavailable, ProbeError."""
    found = sysman.listed(api, "zesDeviceProcessesGetState", device, structs.ProcessState)
    return {one.processId: one.memSize for one in found}


@dataclass(slots=True)
class BusyMeter:
    """Busy share of the busiest engine, averaged over the stacks of a card, since the last look.

    The driver's own figure for all engines is their average: one that is always busy of nine would be 11%.
    """

    read: Mapping[tuple[int, int], Callable[[], tuple[int, int]]]
    """Microseconds active and the stamp of each engine, by (stack, number)."""
    _last: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def share(self) -> float:
        """Raises: Unavailable at the first look, and where no engine tells."""
        busiest: dict[int, float] = {}
        why = "no engine tells how long it was active"
        for key, read in self.read.items():
            now, failed, _ = attempt(read)
            if failed is not None:
                why = failed
                continue
            active_us, at_us = self._last.get(key, now)
            self._last[key] = now
            if now[1] > at_us and now[0] >= active_us:
                busiest[key[0]] = max(busiest.get(key[0], 0.0), min(1.0, (now[0] - active_us) / (now[1] - at_us)))
        if not busiest:
            raise Unavailable(why, lasting=False)
        return sum(busiest.values()) / len(busiest)


def _engines(api: Native, device: c_void_p) -> dict[tuple[int, int], Callable[[], tuple[int, int]]]:
    found: dict[tuple[int, int], Callable[[], tuple[int, int]]] = {}
    for place, engine in enumerate(attempt(partial(sysman.handles, api, "zesDeviceEnumEngineGroups", device))[0] or ()):
        about = _about(api, "zesEngineGetProperties", engine, structs.EngineProperties)
        if about is not None and about.type in _COMPUTING:
            found[about.subdeviceId if about.onSubdevice else 0, place] = partial(_active, api, engine)
    return found


def _active(api: Native, engine: c_void_p) -> tuple[int, int]:
    found = structs.EngineStats()
    api.call("zesEngineGetActivity", engine, byref(found))
    return found.activeTime, found.timestamp


def _first(api: Native, device: c_void_p, sort: _Sort, wanted: Collection[int]) -> c_void_p | None:
    """The first of the best kind wanted that is there."""
    lists, tells, struct = sort
    listed = attempt(partial(sysman.handles, api, lists, device))[0] or ()
    kinds = [(about.type, one) for one in listed if (about := _about(api, tells, one, struct)) is not None]
    return next((one for want in wanted for found, one in kinds if found == want), None)


def _about(api: Native, name: str, owner: c_void_p, kind: type[Any]) -> Any:
    return attempt(partial(sysman.told, api, name, owner, kind))[0]


def _celsius(api: Native, sensor: c_void_p) -> float:
    found = c_double()
    api.call("zesTemperatureGetState", sensor, byref(found))
    return above_0(number(found.value, marks=()), "temperature")


def _mhz(api: Native, clock: c_void_p) -> float:
    """The actual frequency is 0 while the GPU sleeps."""
    return number(sysman.told(api, "zesFrequencyGetState", clock, structs.FrequencyState).actual, marks=())


def _limits(api: Native, clock: c_void_p) -> tuple[str, ...]:
    bits = sysman.told(api, "zesFrequencyGetState", clock, structs.FrequencyState).throttleReasons
    return tuple(dict.fromkeys(name for bit, name in _THROTTLES.items() if bits & bit))
