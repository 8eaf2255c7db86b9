"""Iluvatar GPUs through their library.

Memory is in bytes, temperatures in C, clocks in MHz, power in W or mW (see `power`). A board of several chips has one sensor: the
vendor's call for it gives the whole board on each of its chips, the plain call on one of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_int, c_uint, c_ulonglong
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.errors import ProbeError
from bench.probes import native, values
from bench.probes.cards import Card, Quantity
from bench.probes.iluvatar import power
from bench.probes.iluvatar.ixml import Device, Memory, PciInfo, Utilization
from bench.probes.values import MARK_32, MARK_64, Unavailable, attempt

_DIE, _SM = 0, 1
"""Sensor and clock that the calls take."""
_POWER, _BOARD_POWER = "nvmlDeviceGetPowerUsage", "ixmlDeviceGetBoardPowerUsage"
_LIMITS = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit")
_NO_THROTTLE = "libixml tells a mask of limits in force whose bits its header does not name"
_NO_CHIP_ENERGY = "an energy counter of one chip is none of its board"
_ALONE = "it is one chip of a board whose other chips can't be seen here, and power is that of the whole board"


@dataclass(slots=True)
class _Chip:
    """A chip with what is asked once: its power limit in the library's number, its board where that has several chips."""

    device: Device
    limit: tuple[str, float] | None
    board: str | None
    board_chips: list[_Chip] = field(default_factory=list)


def cards(devices: Sequence[Device], driver: str | None) -> list[Card]:
    """The chips."""
    chips = [_Chip(device, _limit(device), _board(device)) for device in devices]
    for chip in chips:
        chip.board_chips = [other for other in chips if other.board == chip.board] if chip.board else [chip]
    milliwatts = power.is_milliwatts(chip.limit[1] for chip in chips if chip.limit)
    return [_card(chip, milliwatts, driver) for chip in chips]


def told(get: Callable[[], Any]) -> Any:
    """What names a device; None where it is not told. A device that is lost is found out when its power is read."""
    try:
        return attempt(get)[0]
    except ProbeError:
        return None


def _limit(device: Device) -> tuple[str, float] | None:
    """The first call that tells a power limit, and its number."""
    numbers = {name: told(partial(_above_0, device, name)) for name in _LIMITS}
    return next(((name, number) for name, number in numbers.items() if number is not None), None)


def _above_0(device: Device, name: str) -> float:
    number = values.number(device.number(name))
    if number == 0:
        raise Unavailable(f"{name}: 0 is no limit", lasting=True)
    return number


def _board(device: Device) -> str | None:
    """A word for a board of several chips: only their chips have a position on it."""
    if told(partial(device.number, "ixmlDeviceGetBoardPosition")) is None:
        return None
    board = told(partial(device.number, "nvmlDeviceGetBoardId"))
    return None if board is None else f"board {board:#x}"


def _card(chip: _Chip, milliwatts: bool | None, driver: str | None) -> Card:
    device = chip.device
    return Card(
        index=device.index,
        pci=told(partial(_address, device)),
        unique_id=told(partial(device.text, "nvmlDeviceGetUUID")),
        name=told(partial(device.text, "nvmlDeviceGetName")),
        driver=driver,
        firmware=told(partial(device.text, "nvmlDeviceGetVbiosVersion")),
        board=chip.board,
        shared=_ALONE if chip.board and len(chip.board_chips) == 1 else None,
        quantities={
            **_power(chip, milliwatts),
            "memory_total_b": Quantity(get=partial(_total_b, device), api="nvmlDeviceGetMemoryInfo", unit="B"),
            "memory_used_b": Quantity(get=partial(_used_b, device), api="nvmlDeviceGetMemoryInfo", unit="B"),
            "utilisation": Quantity(get=partial(_busy, device), api="nvmlDeviceGetUtilizationRates", unit="%"),
            "temperature_c": Quantity(get=partial(_celsius, device), api="nvmlDeviceGetTemperature", unit="C"),
            "clock_mhz": Quantity(get=partial(_clock_mhz, device), api="nvmlDeviceGetClockInfo(SM)", unit="MHz"),
        },
        processes=device.processes,
        reasons={"throttle": _NO_THROTTLE, **({"energy_j": _NO_CHIP_ENERGY} if chip.board else {})},
    )


def _address(device: Device) -> str | None:
    info = PciInfo()
    device.call("nvmlDeviceGetPciInfo_v3", byref(info))
    return values.pci_address(native.text(info.busId))


# --- power --------------------------------------------------------------------------------------------------------------


def _power(chip: _Chip, milliwatts: bool | None) -> dict[str, Quantity]:
    """Power, limit and energy of a chip, or of its whole board where it is the one that tells them."""
    unit = {True: "mW", False: "W", None: "W, or mW from 1000"}[milliwatts]
    found: dict[str, Quantity] = {}
    limit = None
    if chip.limit is not None:
        name, number = chip.limit
        limit = power.limit_w(number)
        found["power_limit_w"] = Quantity(get=partial(_limit_w, chip.device, name), api=name, unit=unit)
    if chip.board is None:
        found["power_w"] = _watts(chip.device, _POWER, milliwatts, limit, unit)
        energy = partial(_energy_j, chip.device)
        found["energy_j"] = Quantity(get=energy, api="nvmlDeviceGetTotalEnergyConsumption", unit="mJ")
    elif chip is _teller(chip.board_chips):
        call = _BOARD_POWER if _answers(chip.device, _BOARD_POWER) else _POWER
        whole = limit * len(chip.board_chips) if limit else None
        found["power_w"] = _watts(chip.device, call, milliwatts, whole, unit)
    return found


def _teller(chips: Sequence[_Chip]) -> _Chip:
    """The chip that the board's power is told with: the one whose own call answers, as in the vendor's table."""
    return next((chip for chip in chips if _answers(chip.device, _POWER)), chips[0])


def _answers(device: Device, call: str) -> bool:
    return told(partial(device.number, call)) is not None


def _watts(device: Device, call: str, milliwatts: bool | None, limit: float | None, unit: str) -> Quantity:
    raw = partial(device.number, call)
    return Quantity(get=lambda: power.watts(values.number(raw()), milliwatts, limit), raw=raw, api=call, unit=unit)


def _limit_w(device: Device, name: str) -> float:
    return power.limit_w(_above_0(device, name))


def _energy_j(device: Device) -> float:
    millijoules = values.number(device.number("nvmlDeviceGetTotalEnergyConsumption", kind=c_ulonglong), marks=(MARK_64,))
    if millijoules == 0:
        raise Unavailable("the energy counter is 0", lasting=False)
    return millijoules / 1000


# --- the rest -----------------------------------------------------------------------------------------------------------


def _memory(device: Device) -> Memory:
    info = Memory()
    device.call("nvmlDeviceGetMemoryInfo", byref(info))
    if info.total == 0 or info.used > info.total or MARK_64 in (info.total, info.used):
        raise Unavailable(f"nvmlDeviceGetMemoryInfo: {info.used} B in use of {info.total} B is no reading", lasting=False)
    return info


def _total_b(device: Device) -> int:
    return int(_memory(device).total)


def _used_b(device: Device) -> int:
    return int(_memory(device).used)


def _busy(device: Device) -> float:
    info = Utilization()
    device.call("nvmlDeviceGetUtilizationRates", byref(info))
    return values.share(values.number(info.gpu))


def _celsius(device: Device) -> float:
    celsius = values.number(device.number("nvmlDeviceGetTemperature", c_int(_DIE)))
    if celsius == 0:
        raise Unavailable("a temperature of 0 is no reading", lasting=False)
    return celsius


def _clock_mhz(device: Device) -> float:
    return values.number(device.number("nvmlDeviceGetClockInfo", c_int(_SM), kind=c_uint), marks=(MARK_32,))
