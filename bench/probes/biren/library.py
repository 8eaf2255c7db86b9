"""Biren GPUs through BRML, `libbiren-ml.so`.

Source: `brml.h`, BRML_API_VERSION 1 (Shanghai Biren Technology, 2024). Power and its limit in milliwatts, memory in bytes, use in
percent, the temperature of the die in degrees C, clocks in MHz. Nobody has held this against a card yet.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench.probes import native, values
from bench.probes.cards import Card, Quantity
from bench.probes.native import Codes, Native
from bench.probes.values import MARK_32, MARK_64, Unavailable, above_0, attempt, believable_w

LIBRARY = "BENCH_BRML_LIBRARY"
"""Environment: path of the library to load, and no other."""
UNVERIFIED = "not verified on hardware"
_PLACES = (
    "libbiren-ml.so.1",
    "libbiren-ml.so",
    "/usr/local/birensupa/driver/biren-smi/lib/libbiren-ml.so.1",
    "/usr/local/birensupa/driver/biren-smi/libbiren-ml.so.1",
    "/opt/birentech/lib/libbiren-ml.so.1",  # where the device plugin puts it in a container
)
_NOT_FOUND, _INSUFFICIENT_SIZE = 5, 6
_CODES = Codes(
    names={
        1: "not initialised",
        2: "invalid argument",
        3: "not supported",
        4: "no permission",
        _NOT_FOUND: "not found",
        _INSUFFICIENT_SIZE: "insufficient size",
        7: "driver not loaded",
        8: "timeout",
        9: "unexpected data",
        10: "unexpected size",
        11: "no data",
        12: "insufficient resources",
        13: "file error",
        14: "interrupted",
        15: "busy",
        16: "the driver is of another version",
        17: "in use",
        255: "unknown error",
    },
    lost=frozenset({1, 7}),
    lasting=frozenset({2, 3, 4, 16}),
)
_TEXT_B = 80
_FLASH_FIRMWARE = 6
_DIE_SENSOR = 0
"""The memory's gives codes of ranges in place of degrees."""
_CORE_CLOCK = 1
_VIRTUAL = 2
_SPARE_PROCESSES = 8
"""Some may come between the question how many there are and the list of them."""
_THROTTLES = {0x1: "hw_slowdown", 0x2: "hw_thermal", 0x4: "hw_power_brake"}
_UNTOLD = {"energy_j": f"BRML has no energy counter ({UNVERIFIED})"}


class PciInfo(ctypes.Structure):
    """`brmlPciInfo_t`."""

    _fields_ = (
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("function", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    )


class GpuInfo(ctypes.Structure):
    """`brmlGPUInfo_t`."""

    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("id", ctypes.c_char * 96),
        ("serial", ctypes.c_char * 96),
        ("board_id", ctypes.c_char * 96),
    )


class Utilization(ctypes.Structure):
    """`brmlUtilization_t` [%]."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Memory(ctypes.Structure):
    """`brmlMemory_t` [bytes]."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class ProcessInfo(ctypes.Structure):
    """`brmlProcessInfo_t` [bytes]."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong), ("usedHostMemory", ctypes.c_ulonglong))


def load(env: Mapping[str, str]) -> Native:
    """The library, started. Raises: Unavailable, ProbeError where the driver is not loaded."""
    named = env.get(LIBRARY)
    api = native.load([named] if named else _PLACES, _CODES)
    has_first = attempt(partial(api.function, "brmlInit"))[1] is None
    api.call("brmlInit" if has_first else "brmlInit_v2")
    return api


def close(api: Native) -> None:
    """Let go of the library."""
    api.function("brmlShutdown")()


def count(api: Native) -> int:
    """How many GPUs there are. Raises: Unavailable, ProbeError."""
    found = ctypes.c_uint()
    api.call("brmlDeviceGetCount", ctypes.byref(found))
    return found.value


def card(api: Native, index: int) -> Card:
    """One GPU, by its place in the library's order. Raises: Unavailable, ProbeError."""
    device = ctypes.c_void_p()
    api.call("brmlDeviceGetHandleByIndex", ctypes.c_uint(index), ctypes.byref(device))
    instances = _instances(api, device)
    return Card(
        index=index,
        pci=attempt(partial(_pci, api, device))[0],
        unique_id=attempt(partial(_text, api, "brmlDeviceGetUUID", device))[0],
        name=attempt(partial(_name, api, device))[0],
        driver=attempt(partial(_text, api, "brmlSystemGetDriverVersion"))[0],
        firmware=attempt(partial(_text, api, "brmlDeviceGetFirmwareVersion", device, ctypes.c_int(_FLASH_FIRMWARE)))[0],
        shared=_shared(api, device, instances),
        quantities={**_power(api, device), **_memory(api, device), **_state(api, device)},
        processes=partial(_processes, api, device) if instances == 1 else None,
        reasons=_UNTOLD,
    )


# --- who it is ----------------------------------------------------------------------------------------------------------


def _pci(api: Native, device: ctypes.c_void_p) -> str | None:
    return values.pci_address(native.text(_filled(api, "brmlDeviceGetPciInfo", device, PciInfo).busId))


def _name(api: Native, device: ctypes.c_void_p) -> str | None:
    return values.named(native.text(_filled(api, "brmlDeviceGetGpuInfo", device, GpuInfo).name))


def _instances(api: Native, device: ctypes.c_void_p) -> int:
    """Into how many SVI instances it is cut; 1 where it is whole, and where nothing tells."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    failed = attempt(partial(api.call, "brmlDeviceGetSviMode", device, ctypes.byref(current), ctypes.byref(pending)))[1]
    return 1 if failed is not None else max(1, current.value)


def _shared(api: Native, device: ctypes.c_void_p, instances: int) -> str | None:
    if instances > 1:
        return f"cut into {instances} SVI instances"
    if attempt(partial(_number, api, "brmlDeviceGetVirtualizationMode", device))[0] == _VIRTUAL:
        return "a virtual GPU: others may use the rest of its card"
    return None


def _processes(api: Native, device: ctypes.c_void_p) -> dict[int, int | None]:
    """Bytes of this GPU that each process holds. The library tells first how many there are. Raises: Unavailable, ProbeError."""
    name = "brmlDeviceGetComputeRunningProcesses"
    many = ctypes.c_uint(0)
    code = api.function(name)(device, ctypes.byref(many), None)
    if code == _NOT_FOUND or (code == 0 and many.value == 0):
        return {}
    if code not in (0, _INSUFFICIENT_SIZE):
        raise api.error(name, code)
    found = (ProcessInfo * (many.value + _SPARE_PROCESSES))()
    many.value = len(found)
    code = api.function(name)(device, ctypes.byref(many), found)
    if code == _NOT_FOUND:
        return {}
    if code != 0:
        raise api.error(name, code)
    return {one.pid: None if one.usedGpuMemory == MARK_64 else one.usedGpuMemory for one in found[: many.value]}


# --- quantities ---------------------------------------------------------------------------------------------------------


def _power(api: Native, device: ctypes.c_void_p) -> dict[str, Quantity]:
    power, limit = "brmlDeviceGetPowerUsage", "brmlDeviceGetPowerManagementLimit"

    def limit_w() -> float:
        return above_0(_number(api, limit, device), "power limit") / 1000

    highest_w = attempt(limit_w)[0]

    def watts() -> float:
        return believable_w(_number(api, power, device) / 1000, highest_w)

    return {
        "power_w": Quantity(get=watts, raw=partial(_number, api, power, device), api=power, unit="mW"),
        "power_limit_w": Quantity(get=limit_w, api=limit, unit="mW"),
    }


def _memory(api: Native, device: ctypes.c_void_p) -> dict[str, Quantity]:
    name = "brmlDeviceGetMemoryInfo"

    def sizes() -> tuple[int, int]:
        found = _filled(api, name, device, Memory)
        total, used = (int(values.number(size, marks=(MARK_64,))) for size in (found.total, found.used))
        if used > above_0(total, "memory size"):
            raise Unavailable(f"{used} B in use of {total} B is no reading", lasting=False)
        return total, used

    return {
        "memory_total_b": Quantity(get=lambda: sizes()[0], api=name, unit="B"),
        "memory_used_b": Quantity(get=lambda: sizes()[1], api=name, unit="B"),
    }


def _state(api: Native, device: ctypes.c_void_p) -> dict[str, Quantity]:
    use, temperature = "brmlDeviceGetUtilizationRates", "brmlDeviceGetTemperature"
    clock, throttle = "brmlDeviceGetClockInfo", "brmlDeviceGetCurrentClocksThrottleReasons"

    def share() -> float:
        return values.share(values.number(_filled(api, use, device, Utilization).gpu, marks=(MARK_32,)))

    def limits() -> tuple[str, ...]:
        bits = int(_number(api, throttle, device, kind=ctypes.c_ulonglong))
        return tuple(name for bit, name in _THROTTLES.items() if bits & bit)

    def told(name: str, which: int, what: str) -> Callable[[], float]:
        return lambda: above_0(_number(api, name, device, which), what)

    return {
        "utilisation": Quantity(get=share, api=use, unit="%"),
        "temperature_c": Quantity(get=told(temperature, _DIE_SENSOR, "temperature"), api=f"{temperature}(GPU)", unit="C"),
        "clock_mhz": Quantity(get=partial(_number, api, clock, device, _CORE_CLOCK), api=f"{clock}(CORE)", unit="MHz"),
        "throttle": Quantity(get=limits, api=throttle, unit="flags"),
    }


def _number(api: Native, name: str, device: ctypes.c_void_p, *which: int, kind: Any = ctypes.c_uint) -> float:
    """One unsigned number of a GPU. Raises: Unavailable, ProbeError."""
    found = kind()
    api.call(name, device, *which, ctypes.byref(found))
    return values.number(found.value, marks=(MARK_32, MARK_64))


def _filled(api: Native, name: str, device: ctypes.c_void_p, kind: type[ctypes.Structure]) -> Any:
    found = kind()
    api.call(name, device, ctypes.byref(found))
    return found


def _text(api: Native, name: str, *before: Any) -> str | None:
    buffer = ctypes.create_string_buffer(_TEXT_B)
    api.call(name, *before, buffer, ctypes.c_uint(_TEXT_B))
    return values.named(native.text(buffer))
