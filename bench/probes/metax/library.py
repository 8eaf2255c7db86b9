"""MetaX GPUs through libmxsml.so. It is loaded late, and only in the probe's own process.

Source: `MxSml.h` and `MxSmlMcm.h` of MXSML 2.3.1. Power is in milliwatts, one number for each supply rail of the board (two on
N class, three on C class); memory in KB, temperatures in 0.01 degrees C, clocks in MHz, usage in percent. It counts no energy,
and has nothing to shut down.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char, c_int, c_long, c_uint, c_ulong, c_ulonglong
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.errors import ProbeError
from bench.probes import native, values
from bench.probes.cards import Card, Quantity
from bench.probes.metax.throttle import throttle_names
from bench.probes.native import Codes, Native
from bench.probes.values import MARK_32, MARK_64, Unavailable, above_0, attempt, believable_w

_FOLDERS = ("/opt/mxdriver/lib", "/opt/maca/lib", "/opt/mxn100/lib")
_CODES = Codes(
    names={
        1: "failure",
        2: "no device",
        3: "operation not supported",
        4: "sysfs error",
        6: "invalid device id",
        7: "invalid die id",
        8: "permission denied",
        9: "invalid input",
        10: "insufficient size",
        12: "ioctl failure",
        20: "reset under way",
        21: "device file can't be opened",
        23: "device busy",
        26: "a library can't be loaded",
    },
    lost=frozenset({2, 6}),
    lasting=frozenset({3, 7, 8, 9, 26}),
)
_INSUFFICIENT_SIZE = 10
_N_CLASS = 1
"""`MXSML_Brand_N`; its compute units are the DLA, those of C class the XCORE."""
_DLA_CLOCK, _XCORE_CLOCK = 1, 11
_DLA_USAGE, _XCORE_USAGE = 0, 4
_HOTSPOT = 0
_BIOS, _DRIVER = 0, 1
_VIRTUAL_FUNCTION = 2
_RAILS = 4
_CLOCKS = 12
_SPARE_PROCESSES = 8
"""Room for processes that come between the call that counts them and the one that lists them."""
_KB = 1024

T = TypeVar("T")


class DeviceInfo(ctypes.Structure):
    """`mxSmlDeviceInfo_t`."""

    _fields_ = (
        ("deviceId", c_uint),
        ("type", c_uint),
        ("bdfId", c_char * 32),
        ("gpuId", c_uint),
        ("nodeId", c_uint),
        ("uuid", c_char * 96),
        ("brand", c_uint),
        ("mode", c_uint),
        ("deviceName", c_char * 32),
    )


class MemoryInfo(ctypes.Structure):
    """`mxSmlMemoryInfo_t` [KB]."""

    _fields_ = tuple((name, c_long) for name in ("visVramTotal", "visVramUse", "vramTotal", "vramUse", "xttTotal", "xttUse"))


class BoardWayElectricInfo(ctypes.Structure):
    """`mxSmlBoardWayElectricInfo_t`: one rail [mV, mA, mW]."""

    _fields_ = (("voltage", c_uint), ("current", c_uint), ("power", c_uint))


class ProcessGpuInfo(ctypes.Structure):
    """`mxSmlProcessGpuInfo_t`: what a process holds on one device [bytes]."""

    _fields_ = (("bdfId", c_char * 32), ("gpuId", c_uint), ("gpuMemoryUsage", c_ulong))


class ProcessInfo(ctypes.Structure):
    """`mxSmlProcessInfo_t`."""

    _fields_ = (
        ("processId", c_uint),
        ("processName", c_char * 64),
        ("gpuNumber", c_uint),
        ("processGpuInfo", ProcessGpuInfo * 64),
    )


class UnavailableReason(ctypes.Structure):
    """`mxSmlDeviceUnavailableReasonInfo_t`."""

    _fields_ = (("unavailableCode", c_int), ("unavailableReason", c_char * 64))


@dataclass(frozen=True, slots=True)
class _Device:
    """A device by its number. One of several dies (MCM) is asked die by die: the call without a die may tell only the first."""

    api: Native
    number: int
    dies: int

    def calls(self, whole: str, by_die: str) -> list[tuple[str, tuple[c_uint, ...]]]:
        """The function to call with its first arguments, for the device or for each of its dies."""
        if self.dies == 1:
            return [(whole, (c_uint(self.number),))]
        return [(by_die, (c_uint(self.number), c_uint(die))) for die in range(self.dies)]

    def each(self, whole: str, by_die: str, make: Callable[[], T], *args: object) -> list[T]:
        """What the call fills in. Raises: Unavailable, ProbeError."""
        filled = []
        for name, ids in self.calls(whole, by_die):
            filled.append(make())
            self.api.call(name, *ids, *args, byref(filled[-1]))  # type: ignore[arg-type]
        return filled


def load(env: Mapping[str, str]) -> Native:
    """The library, started. Raises: Unavailable, ProbeError where it finds no device."""
    roots = [Path(root, "lib") for root in (env.get("MACA_PATH"),) if root]
    api = native.load([*(root / "libmxsml.so" for root in roots), "libmxsml.so", *(f"{f}/libmxsml.so" for f in _FOLDERS)], _CODES)
    api.call("mxSmlInit")
    return api


def cards(api: Native) -> tuple[list[Card], list[tuple[str, str]]]:
    """Every device that answers, and (device, reason) for those that don't. Raises: Unavailable."""
    count = int(api.function("mxSmlGetDeviceCount", returns=c_uint)())  # returns the number itself, not a code
    found: list[Card] = []
    refused: list[tuple[str, str]] = []
    boards: list[str] = []
    for number in range(count):
        try:
            info = _info(api, number)
        except (Unavailable, ProbeError) as error:
            boards.append(f"device {number}")
            refused.append((boards[-1], _why_unavailable(api, number) or str(error)))
            continue
        boards.append(_board(api, number, boards))
        found.append(_card(api, number, info, boards[-1]))
    return found, refused


def _info(api: Native, number: int) -> DeviceInfo:
    """Raises: Unavailable, ProbeError; for a faulty device too, which stays in the list."""
    info, state = DeviceInfo(), c_int(1)
    api.call("mxSmlGetDeviceInfo", c_uint(number), byref(info))
    attempt(lambda: api.call("mxSmlGetDeviceState", c_uint(number), byref(state)))
    if state.value == 0:
        raise Unavailable("mxSmlGetDeviceState: not available", lasting=True)
    return info


def _why_unavailable(api: Native, number: int) -> str | None:
    reason = UnavailableReason()
    failed = attempt(lambda: api.call("mxSmlGetDeviceUnavailableReason", c_uint(number), byref(reason)))[1]
    return None if failed else native.text(reason.unavailableReason)


def _board(api: Native, number: int, before: Sequence[str]) -> str:
    """A word for the physical board: its id. Where only dies have ids, a second die is on the board of the device before."""
    board = attempt(lambda: api.function("mxSmlGetDeviceBoardId")(c_uint(number)))[0]
    if board is not None and board >= 0:
        return f"board {board}"
    die = c_uint()
    known = attempt(lambda: api.call("mxSmlGetDeviceDieId", c_uint(number), byref(die)))[1] is None
    return before[-1] if known and die.value > 0 and before else f"device {number}"


def _card(api: Native, number: int, info: DeviceInfo, board: str) -> Card:
    dies = c_uint(1)
    attempt(lambda: api.call("mxSmlGetDeviceDieCount", c_uint(number), byref(dies)))
    device = _Device(api, number, max(1, dies.value))
    n_class = info.brand == _N_CLASS
    bdf = native.text(info.bdfId)
    return Card(
        index=number,
        pci=values.pci_address(bdf),
        unique_id=values.named(native.text(info.uuid)),
        name=values.named(native.text(info.deviceName)),
        driver=_version(api, number, _DRIVER),
        firmware=_version(api, number, _BIOS),
        board=board,
        shared=_shared(api, number, info.mode),
        quantities={**_power(api, number), **_memory(device), **_activity(device, n_class=n_class)},
        processes=partial(_processes, api, number, bdf),
        reasons={"energy_j": "MXSML has no energy counter"},
    )


def _version(api: Native, number: int, unit: int) -> str | None:
    size = c_uint(64)
    buffer = (c_char * 64)()
    failed = attempt(lambda: api.call("mxSmlGetDeviceVersion", c_uint(number), c_uint(unit), buffer, byref(size)))[1]
    return None if failed else native.text(buffer)


def _shared(api: Native, number: int, mode: int) -> str | None:
    if mode == _VIRTUAL_FUNCTION:
        return "a virtual function: others may use the rest of its board"
    slices = attempt(lambda: api.function("mxSmlGetSgpuCount", returns=c_uint)(c_uint(number)))[0]
    return f"cut into {slices} sGPU slices" if slices else None


# --- quantities -------------------------------------------------------------------------------------------------------


def _power(api: Native, number: int) -> dict[str, Quantity]:
    """The limit's call is missing from older libraries."""
    limit = partial(_limit_w, api, number)
    limit_w = attempt(limit)[0]
    raw = partial(_power_mw, api, number)
    power = Quantity(
        get=lambda: believable_w(raw() * 1e-3, limit_w), raw=raw, api="mxSmlGetBoardPowerInfo, rails summed", unit="mW"
    )
    return {"power_w": power, "power_limit_w": Quantity(get=limit, api="mxSmlGetBoardPowerLimit", unit="mW")}


def _power_mw(api: Native, number: int) -> float:
    """Sum over the rails. A rail without a reading makes the sum none. Raises: Unavailable, ProbeError."""
    name = "mxSmlGetBoardPowerInfo"
    size = c_uint(_RAILS)
    for _ in range(2):
        rails = (BoardWayElectricInfo * size.value)()
        code = api.function(name)(c_uint(number), byref(size), rails)
        if code != _INSUFFICIENT_SIZE:
            break
    if code != _CODES.ok:
        raise api.error(name, code)
    if size.value == 0:
        raise Unavailable(f"{name} tells no rail", lasting=False)
    return sum(values.number(rail.power, marks=(MARK_32,)) for rail in rails[: size.value])


def _limit_w(api: Native, number: int) -> float:
    limit_mw = c_uint()
    api.call("mxSmlGetBoardPowerLimit", c_uint(number), byref(limit_mw))
    return above_0(values.number(limit_mw.value, marks=(MARK_32,)), "power limit") * 1e-3


def _memory(device: _Device) -> dict[str, Quantity]:
    fields = {"memory_total_b": "vramTotal", "memory_used_b": "vramUse"}
    return {
        name: Quantity(get=partial(_memory_b, device, field), api=f"mxSmlGetMemoryInfo[{field}]", unit="KB")
        for name, field in fields.items()
    }


def _memory_b(device: _Device, field: str) -> int:
    told = device.each("mxSmlGetMemoryInfo", "mxSmlGetDieMemoryInfo", MemoryInfo)
    for memory in told:
        above_0(memory.vramTotal, "memory size")
    return sum(int(values.number(getattr(memory, field), marks=(MARK_64,))) for memory in told) * _KB


def _activity(device: _Device, *, n_class: bool) -> dict[str, Quantity]:
    usage = _DLA_USAGE if n_class else _XCORE_USAGE
    clock = _DLA_CLOCK if n_class else _XCORE_CLOCK
    unit = "DLA" if n_class else "XCORE"
    return {
        "utilisation": Quantity(get=partial(_usage, device, usage), api=f"mxSmlGetDeviceIpUsage({unit})", unit="%"),
        "temperature_c": Quantity(get=partial(_hottest_c, device), api="mxSmlGetTemperatureInfo(HOTSPOT)", unit="0.01 C"),
        "clock_mhz": Quantity(get=partial(_clock_mhz, device, clock), api=f"mxSmlGetClocks({unit})", unit="MHz"),
        "throttle": Quantity(get=partial(_throttle, device), api="mxSmlGetCurrentClocksThrottleReason", unit="flags"),
    }


def _usage(device: _Device, unit: int) -> float:
    told = device.each("mxSmlGetDeviceIpUsage", "mxSmlGetDieIpUsage", c_int, c_uint(unit))
    return values.share(statistics.fmean(values.number(usage.value) for usage in told))


def _hottest_c(device: _Device) -> float:
    told = device.each("mxSmlGetTemperatureInfo", "mxSmlGetDieTemperatureInfo", c_int, c_uint(_HOTSPOT))
    return above_0(max(values.number(degrees.value) for degrees in told), "temperature") / 100


def _clock_mhz(device: _Device, unit: int) -> float:
    rates = []
    for name, ids in device.calls("mxSmlGetClocks", "mxSmlGetDieClocks"):
        size, clocks = c_uint(_CLOCKS), (c_uint * _CLOCKS)()
        device.api.call(name, *ids, c_uint(unit), byref(size), clocks)
        if size.value == 0:
            raise Unavailable(f"{name} tells no clock", lasting=False)
        rates.append(values.number(clocks[0]))
    return statistics.fmean(rates)


def _throttle(device: _Device) -> tuple[str, ...]:
    told = device.each("mxSmlGetCurrentClocksThrottleReason", "mxSmlGetDieCurrentClocksThrottleReason", c_ulonglong)
    return throttle_names([int(values.number(bits.value)) for bits in told])


def _processes(api: Native, number: int, bdf: str | None) -> dict[int, int | None]:
    """Process ids and the bytes that each holds on this device, known by its address. Raises: Unavailable, ProbeError."""
    count = c_uint()
    api.call("mxSmlGetNumberOfProcess", byref(count))
    size = c_uint(count.value + _SPARE_PROCESSES)
    listed = (ProcessInfo * size.value)()
    api.call("mxSmlGetSingleGpuProcess", c_uint(number), byref(size), ctypes.cast(listed, POINTER(ProcessInfo)))
    holds: dict[int, int | None] = {}
    for process in listed[: size.value]:
        on = [gpu for gpu in process.processGpuInfo[: process.gpuNumber] if native.text(gpu.bdfId) == bdf]
        holds[process.processId] = sum(gpu.gpuMemoryUsage for gpu in on) if on else None
    return holds
