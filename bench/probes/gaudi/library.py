"""Gaudi cards through `libhlml.so`.

Source: `hlml.h` of Intel Gaudi 1.24, which the binding `habana-pyhlml` 1.24.2 is generated from. Power and limits in milliwatts,
the energy counter in millijoules since the driver was loaded, memory in bytes, utilisation in percent over the past second,
temperatures in degrees C, clocks in MHz. Older headers end structures earlier; what is read here lies at one offset in all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.clock import Clock
from bench.probes import native, values
from bench.probes.cards import Card, Quantity
from bench.probes.native import Codes, Native
from bench.probes.values import MARK_32, MARK_64, above_0, attempt, believable_w
from bench.units import NS_PER_S

LIBRARY = "BENCH_HLML_LIBRARY"
"""Environment: path of the library to load, and no other."""
_PLACES = ("libhlml.so", "/usr/lib/habanalabs/libhlml.so")
_CODES = Codes(
    names={
        1: "not initialised",
        2: "invalid argument",
        3: "not supported",
        5: "already initialised",
        6: "not found",
        7: "insufficient size",
        9: "driver not loaded",
        10: "timeout",
        15: "the card is lost",
        20: "memory error",
        21: "no data",
        49: "unknown",
    },
    lost=frozenset({1, 9, 15}),
    lasting=frozenset({2, 3}),
)
_TEXT_B = 128
_ON_CHIP = 0
_CLOCK_SOC = 0
_THROTTLES = {0x1: "sw_power_cap", 0x2: "sw_thermal"}
"""HLML_CLOCKS_THROTTLE_REASON_POWER and _THERMAL."""
_LIMITS = ("hlml_device_get_power_management_limit", "hlml_device_get_power_management_default_limit")
_TEMPERATURE_EVERY_S = 10.0
"""The call leaks the labels of the sensors each time (as nvtop found), so it is not made at each poll."""
_BUSIEST_PERCENT = 200


class PciCap(ctypes.Structure):
    """`hlml_pci_cap_t`."""

    _fields_ = (
        ("link_speed", ctypes.c_char * 10),
        ("link_width", ctypes.c_char * 10),
        ("link_max_speed", ctypes.c_char * 10),
        ("link_max_width", ctypes.c_char * 10),
    )


class PciInfo(ctypes.Structure):
    """`hlml_pci_info_t`. In headers before 1.2x `bus_id` has 15 bytes and the rest moves up: only `bus` and `bus_id` are read."""

    _fields_ = (
        ("bus", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 19),
        ("device", ctypes.c_uint),
        ("domain", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("caps", PciCap),
        ("pci_rev", ctypes.c_uint),
        ("pci_subsys_id", ctypes.c_uint),
    )


class Utilization(ctypes.Structure):
    """`hlml_utilization_t`; `memory` came later."""

    _fields_ = (("aip", ctypes.c_uint), ("memory", ctypes.c_uint))


class Memory(ctypes.Structure):
    """`hlml_memory_t` [bytes]."""

    _fields_ = (("free", ctypes.c_ulonglong), ("total", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def load(env: Mapping[str, str]) -> Native:
    """The library, initialised. Raises: Unavailable, ProbeError where the driver is not loaded."""
    named = env.get(LIBRARY)
    api = native.load([named] if named else _PLACES, _CODES)
    api.call("hlml_init")
    return api


def close(api: Native) -> None:
    """Let go of the library."""
    api.function("hlml_shutdown")()


def count(api: Native) -> int:
    """How many cards there are. Raises: Unavailable, ProbeError."""
    found = ctypes.c_uint()
    api.call("hlml_device_get_count", ctypes.byref(found))
    return found.value


def card(api: Native, clock: Clock, index: int) -> Card:
    """One card, by its place in the library's order. Raises: Unavailable, ProbeError."""
    device = ctypes.c_void_p()
    api.call("hlml_device_get_handle_by_index", ctypes.c_uint(index), ctypes.byref(device))
    module = attempt(partial(_count, api, "hlml_device_get_module_id", device))[0]
    driver = attempt(partial(_text, api, "hlml_get_driver_version"))[0]
    return Card(
        index=index,
        pci=attempt(partial(_pci, api, device))[0],
        unique_id=attempt(partial(_text, api, "hlml_device_get_uuid", device))[0],
        name=attempt(partial(_text, api, "hlml_device_get_name", device))[0],
        driver=driver_name(driver),
        firmware=attempt(partial(_text, api, "hlml_get_firmware_spi_version", device))[0],
        visible_as=None if module is None else str(int(module)),
        quantities={**_power(api, device), **_memory(api, device), **_state(api, device, clock)},
    )


def _power(api: Native, device: ctypes.c_void_p) -> dict[str, Quantity]:
    """Power on the 54 V rail; the limit in force, in older libraries only the default one."""
    limit = next((name for name in _LIMITS if attempt(partial(_limit_w, api, name, device))[1] is None), _LIMITS[0])
    limit_w = attempt(partial(_limit_w, api, limit, device))[0]
    power, energy = "hlml_device_get_power_usage", "hlml_device_get_total_energy_consumption"

    def watts() -> float:
        return believable_w(_count(api, power, device) * 1e-3, limit_w)

    return {
        "power_w": Quantity(get=watts, raw=partial(_count, api, power, device), api=power, unit="mW"),
        "energy_j": Quantity(
            get=lambda: _energy_mj(api, energy, device) * 1e-3,
            raw=partial(_energy_mj, api, energy, device),
            api=energy,
            unit="mJ",
        ),
        "power_limit_w": Quantity(get=partial(_limit_w, api, limit, device), api=limit, unit="mW"),
    }


def _limit_w(api: Native, name: str, device: ctypes.c_void_p) -> float:
    return above_0(_count(api, name, device), "power limit") * 1e-3


def _energy_mj(api: Native, name: str, device: ctypes.c_void_p) -> float:
    return above_0(_count(api, name, device, ctypes.c_ulonglong), "energy counter")


def _memory(api: Native, device: ctypes.c_void_p) -> dict[str, Quantity]:
    name = "hlml_device_get_memory_info"

    def memory() -> Memory:
        found = Memory()
        api.call(name, device, ctypes.byref(found))
        above_0(values.number(found.total, marks=(MARK_64,)), "memory size")
        return found

    return {
        "memory_used_b": Quantity(get=lambda: int(values.number(memory().used, marks=(MARK_64,))), api=name, unit="B"),
        "memory_total_b": Quantity(get=lambda: int(memory().total), api=name, unit="B"),
    }


def _state(api: Native, device: ctypes.c_void_p, clock: Clock) -> dict[str, Quantity]:
    utilisation, temperature = "hlml_device_get_utilization_rates", "hlml_device_get_temperature"
    speed, throttle = "hlml_device_get_clock_info", "hlml_device_get_current_clocks_throttle_reasons"

    def share() -> float:
        found = Utilization()
        api.call(utilisation, device, ctypes.byref(found))
        return busy_share(values.number(found.aip, marks=(MARK_32,)))

    def celsius() -> float:
        return above_0(_count(api, temperature, device, ctypes.c_uint, _ON_CHIP), "temperature")

    def limits() -> tuple[str, ...]:
        bits = int(_count(api, throttle, device, ctypes.c_ulonglong))
        return tuple(name for bit, name in _THROTTLES.items() if bits & bit)

    return {
        "utilisation": Quantity(get=share, api=utilisation, unit="%"),
        "temperature_c": Quantity(get=_Seldom(celsius, _TEMPERATURE_EVERY_S, clock), api=f"{temperature}(AIP)", unit="C"),
        "clock_mhz": Quantity(get=lambda: _count(api, speed, device, ctypes.c_uint, _CLOCK_SOC), api=f"{speed}(SOC)", unit="MHz"),
        "throttle": Quantity(get=limits, api=throttle, unit="flags"),
    }


def driver_name(version: str | None) -> str | None:
    """As in `habanalabs 1.22.1-97ec1a4`."""
    return None if version is None else f"habanalabs {version}"


def busy_share(percent: float) -> float:
    """Busy share of a percentage, which goes somewhat beyond 100 on a card at full load."""
    return values.share(min(percent, 100.0) if percent <= _BUSIEST_PERCENT else percent)


@dataclass(slots=True)
class _Seldom:
    """A value that is fetched again only after a while."""

    fetch: Callable[[], float]
    every_s: float
    clock: Clock
    value: float | None = None
    due_ns: int = 0

    def __call__(self) -> float:
        now_ns = self.clock.monotonic_ns()
        if self.value is None or now_ns >= self.due_ns:
            self.value, self.due_ns = None, now_ns + round(self.every_s * NS_PER_S)
            self.value = self.fetch()
        return self.value


def _count(api: Native, name: str, device: ctypes.c_void_p, kind: Any = ctypes.c_uint, *which: int) -> float:
    """One unsigned number of a card. Raises: Unavailable, ProbeError."""
    found = kind()
    api.call(name, device, *which, ctypes.byref(found))
    return values.number(found.value, marks=(MARK_32, MARK_64))


def _text(api: Native, name: str, *device: ctypes.c_void_p) -> str | None:
    buffer = ctypes.create_string_buffer(_TEXT_B)
    api.call(name, *device, buffer, ctypes.c_uint(_TEXT_B))
    return values.named(native.text(buffer))


def _pci(api: Native, device: ctypes.c_void_p) -> str | None:
    found = PciInfo()
    api.call("hlml_device_get_pci_info", device, ctypes.byref(found))
    return values.pci_address(found.bus_id.decode("ascii", "replace"))
