"""Cambricon cards through libcndev.so: what each call tells, and in which unit.

Source: `cndev.h` with CNDEV_VERSION_6. Power is in whole watts, memory in MB of 2^20 bytes. Where a driver lacks a call, the one
that its forerunners had is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.probes import native, values
from bench.probes.cambricon import cndev, structs
from bench.probes.cambricon.cndev import Cndev
from bench.probes.cards import Card, Quantity
from bench.probes.values import Unavailable, attempt, believable_w
from bench.units import BYTES_PER_MIB, J_PER_MJ

TWO_CHIPS = ("MLU370-X8",)
"""Cards of two chips, each listed by itself with the power and the limit of the whole card: two idle ones have been seen to tell
106 W of 250 W each. What their energy counters count is documented nowhere.
"""
_POWER = (("cndevGetDevicePowerInfo", structs.DevicePower), ("cndevGetPowerInfo", structs.Power))
_MEMORY = (("cndevGetMemoryUsageV2", structs.MemoryV2), ("cndevGetMemoryUsage", structs.Memory))
_PCIE = (("cndevGetPCIeInfoV2", structs.PcieV2), ("cndevGetPCIeInfo", structs.Pcie))
"""Today's call, and that of older drivers."""
_THROTTLES = {
    "tdp": "board_limit",
    "powerSetting": "sw_power_cap",
    "clockSetting": "application_clocks",
    "frequencyLocked": "application_clocks",
    "powerBrake": "hw_power_brake",
    "thermalSlowdown": "hw_thermal",
}
_ENERGY_API = f"cndevDeviceGetFieldValues[{cndev.ENERGY}]"

Call = tuple[str, type[Any]]


def candidates(env: Mapping[str, str]) -> list[str]:
    """Where the library may be: in the NEUWARE that the environment names, where the loader looks, in the usual NEUWARE."""
    name = "libcndev.so"
    roots = [env["NEUWARE_HOME"]] if env.get("NEUWARE_HOME") else []
    inside = [f"{root}/{folder}/{name}" for root in (*roots, "/usr/local/neuware") for folder in ("lib64", "lib")]
    return [*inside[: 2 * len(roots)], name, *inside[2 * len(roots) :]]


def card(api: Cndev, index: int) -> Card:
    """One device. Raises: Unavailable, ProbeError where it can't be opened."""
    device = api.handle(index)
    name = attempt(partial(api.name, device))[0]
    uuid = attempt(lambda: api.ask("cndevGetUUID", structs.Uuid, device))[0]
    versions = attempt(lambda: api.ask("cndevGetVersionInfo", structs.VersionInfo, device))[0]
    serial = attempt(lambda: api.ask("cndevGetCardSN", structs.CardSerial, device))[0]
    two_chips = is_of_two_chips(name)
    return Card(
        index=index,
        pci=attempt(lambda: _pci(_first(api, _PCIE, device)[1]))[0],
        unique_id=values.with_prefix("MLU-", native.text(uuid.uuid)) if uuid else None,
        name=name,
        driver=_version(versions, "driver"),
        firmware=_version(versions, "mcu"),
        board=f"{serial.sn:x}" if two_chips and serial and serial.sn else None,
        quantities={
            **_power(api, device, counter=not two_chips),
            **_memory(api, device),
            "utilisation": _quantity(
                lambda: _field(api, "cndevGetDeviceUtilizationInfo", structs.Utilisation, "averageCoreUtilization", device),
                values.share,
                "cndevGetDeviceUtilizationInfo[averageCoreUtilization]",
                "%",
            ),
            "temperature_c": _quantity(partial(_celsius, api, device), float, "cndevGetTemperatureInfo[chip]", "C"),
            "clock_mhz": _quantity(
                lambda: _field(api, "cndevGetFrequencyInfo", structs.Frequency, "boardFreq", device),
                float,
                "cndevGetFrequencyInfo[boardFreq]",
                "MHz",
            ),
            "throttle": Quantity(get=partial(_throttle, api, device), api="cndevGetPerformanceThrottleReason", unit="flags"),
        },
        processes=partial(api.processes, device),
        reasons={"energy_j": "two chips share the card, and what their counters count is not documented"} if two_chips else {},
    )


def is_of_two_chips(name: str | None) -> bool:
    """Whether a device of this name is one of two chips on a card."""
    return any(part in (name or "") for part in TWO_CHIPS)


def _quantity(raw: Callable[[], float], convert: Callable[[float], float], api: str, unit: str) -> Quantity:
    return Quantity(get=lambda: convert(raw()), raw=raw, api=api, unit=unit)


def _first(api: Cndev, calls: Sequence[Call], device: int) -> tuple[str, Any]:
    """The call that this driver has, and what it tells. Raises: Unavailable (that of today's call), ProbeError."""
    failed: Unavailable | None = None
    for name, kind in calls:
        try:
            return name, api.ask(name, kind, device)
        except Unavailable as error:
            failed = failed or error
    raise failed or Unavailable("no call tells it", lasting=True)


def _field(api: Cndev, name: str, kind: type[Any], member: str, device: int) -> float:
    return values.number(getattr(api.ask(name, kind, device), member))


def _power(api: Cndev, device: int, *, counter: bool) -> dict[str, Quantity]:
    name = attempt(lambda: _first(api, _POWER, device)[0])[0] or _POWER[0][0]

    def watts(member: str) -> float:
        return values.number(getattr(_first(api, _POWER, device)[1], member))

    def limit_w() -> float:
        cap = watts("cap")
        if cap == 0:
            raise Unavailable("the driver gives a power cap of 0", lasting=True)
        return cap

    in_force_w = attempt(limit_w)[0]
    energy = partial(_energy_mj, api, device)
    found = {
        "power_w": _quantity(partial(watts, "usage"), lambda told: believable_w(told, in_force_w), f"{name}[usage]", "W"),
        "power_limit_w": _quantity(limit_w, float, f"{name}[cap]", "W"),
    }
    if counter:
        found["energy_j"] = _quantity(energy, lambda told: told * J_PER_MJ, _ENERGY_API, "mJ")
    return found


def _energy_mj(api: Cndev, device: int) -> float:
    told = values.number(api.field_value(cndev.ENERGY, device), marks=(values.MARK_64,))
    if told == 0:
        raise Unavailable("the energy counter is 0", lasting=False)
    return told


def _memory(api: Cndev, device: int) -> dict[str, Quantity]:
    """Nothing where there is no total: 0 used of 0 is no reading."""

    def size_b(member: str) -> int:
        told = _first(api, _MEMORY, device)[1]
        if told.physicalMemoryTotal <= 0:
            raise Unavailable(f"the driver gives a memory size of {told.physicalMemoryTotal}", lasting=False)
        return int(values.number(getattr(told, member), marks=())) * BYTES_PER_MIB

    name = attempt(lambda: _first(api, _MEMORY, device)[0])[0] or _MEMORY[0][0]
    members = {"memory_total_b": "physicalMemoryTotal", "memory_used_b": "physicalMemoryUsed"}
    return {key: Quantity(get=partial(size_b, member), api=f"{name}[{member}]", unit="MiB") for key, member in members.items()}


def _celsius(api: Cndev, device: int) -> float:
    """The chip, else the board. Raises: Unavailable, ProbeError."""
    told = api.ask("cndevGetTemperatureInfo", structs.Temperature, device)
    sensors = (told.chip, told.board)
    found = next((sensor for sensor in sensors if sensor > 0), None)
    if found is None:
        raise Unavailable(f"temperatures of {sensors} are no readings", lasting=False)
    return values.number(found)


def _throttle(api: Cndev, device: int) -> tuple[str, ...]:
    told = api.ask("cndevGetPerformanceThrottleReason", structs.ThrottleReason, device)
    flags = {flag: getattr(told, flag) for flag in _THROTTLES}
    if any(value not in (0, 1) for value in flags.values()):
        raise Unavailable(f"flags of {tuple(flags.values())} are neither set nor unset", lasting=False)
    return tuple(dict.fromkeys(_THROTTLES[flag] for flag, value in flags.items() if value))


def _pci(told: Any) -> str | None:
    return values.pci_address(f"{told.domain:04x}:{told.bus:02x}:{told.device:02x}.{told.function:x}")


def _version(told: Any, part: str) -> str | None:
    """`5.10.22` of the driver or of the MCU; None where it is all zeros."""
    numbers = [getattr(told, f"{part}{place}Version") for place in ("Major", "Minor", "Build")] if told else []
    return ".".join(str(number) for number in numbers) if any(numbers) else None
