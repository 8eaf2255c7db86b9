"""One NVIDIA board: what it can tell is found out once, then read at each tick.

Clock stamps stand tightly around the power and energy calls; the slower quantities are read just after.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from msgspec import structs

from bench.clock import Clock
from bench.probes.nvidia import nvml
from bench.probes.nvidia.nvml import Nvml
from bench.probes.nvidia.sensors import GAIN_ERROR, power_timing
from bench.probes.presence import Roots
from bench.probes.values import Unavailable, attempt
from bench.probes.wire import RawValue
from bench.records import DeviceInfo, Reading, Scope, SensorInfo
from bench.units import J_PER_MJ

_NVML_MEMORY_V2 = 0x02000028
_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
_UNIFIED = ("GB10", "Thor", "Orin", "N1X")
"""Parts whose GPU has no memory of its own; NVML says NOT_SUPPORTED and the host's meminfo is the answer."""
_GRACE_HOPPER = ("GH200", "Grace Hopper")
"""Their energy counter covers CPU, GPU and memory of the module, while instant power can be had for the GPU alone."""

_VIRTUAL_GPU = (2, 3, 4)
"""`NVML_GPU_VIRTUALIZATION_MODE_`: VGPU, HOST_VGPU, HOST_VSGA. Passed through whole (1) is a board like any other."""
_SPLIT_BY = ("CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
"""Variables by which HAMi and MPS give a container a part of a board."""

Get = Callable[[], Any]


@dataclass(slots=True)
class Board:
    """A measured domain. A getter is None where the device does not have the quantity."""

    info: DeviceInfo
    power_w: Get | None = None
    energy_j: Get | None = None
    extras: dict[str, Get] = field(default_factory=dict)
    unconverted: dict[str, Get] = field(default_factory=dict)
    """Power and energy as the driver gives them."""
    pids: Get | None = None
    """Processes that compute on the board."""

    def raw(self) -> tuple[RawValue, ...]:
        """Power and energy in the driver's own units. Raises: ProbeError when the device is lost."""
        found = []
        for quantity, sensor in (("power_w", self.info.power), ("energy_j", self.info.energy)):
            value = attempt(self.unconverted[quantity])[0] if sensor is not None else None
            if sensor is not None and value is not None:
                found.append(RawValue(quantity=quantity, api=sensor.api, unit=sensor.unit, value=float(value)))
        return tuple(found)

    def quick(self, clock: Clock) -> Reading:
        """Power and energy only. Raises: ProbeError when the device is lost."""
        before_ns = clock.monotonic_ns()
        energy_j = attempt(self.energy_j)[0] if self.energy_j else None
        power_w = attempt(self.power_w)[0] if self.power_w else None
        after_ns = clock.monotonic_ns()
        return Reading(uid=self.info.uid, before_ns=before_ns, after_ns=after_ns, power_w=power_w, energy_j=energy_j)

    def sample(self, clock: Clock) -> Reading:
        """Everything. Raises: ProbeError when the device is lost."""
        reading = self.quick(clock)
        rest = {name: attempt(get)[0] for name, get in self.extras.items()}
        after_ns = reading.after_ns if self.power_w or self.energy_j else clock.monotonic_ns()
        return structs.replace(reading, after_ns=after_ns, **rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    api: Nvml
    handle: Any
    name: str
    architecture: int | None
    limit_w: float | None


def open_board(api: Nvml, index: int, driver: str | None, roots: Roots) -> list[Board]:
    """The domains of board `index`. Raises: ProbeError, Unavailable when it can't even be named."""
    handle = api.call("DeviceGetHandleByIndex", index)
    reasons: dict[str, str] = {}
    limit_w = _kept(reasons, "power_limit_w", lambda: _limit_w(api, handle))
    opened = _Opened(
        api=api,
        handle=handle,
        name=nvml.text(api.call("DeviceGetName", handle)),
        architecture=attempt(lambda: int(api.call("DeviceGetArchitecture", handle)))[0],
        limit_w=limit_w,
    )
    pci = _kept(reasons, "pci", lambda: _pci(api, handle))
    uuid = _kept(reasons, "uid", lambda: nvml.text(api.call("DeviceGetUUID", handle)))
    uid = uuid or f"pci:{pci or index}"
    extras, total_b = _extras(opened, roots, reasons)
    slices = _mig_slices(api, handle)
    info = DeviceInfo(
        uid=uid,
        probe="nvidia",
        vendor="nvidia",
        name=opened.name,
        index=index,
        scope="accelerator",
        board=uid,
        covers=slices,
        pci=pci,
        driver=driver,
        memory_total_b=total_b,
        power_limit_w=limit_w,
        reasons=reasons,
        shared=_shared(api, handle, slices),
    )
    boards = _with_sensors(opened, info, extras)
    boards[0].pids = _pids_source(api, handle)
    return boards


def _with_sensors(opened: _Opened, info: DeviceInfo, extras: dict[str, Get]) -> list[Board]:
    """One domain; on Grace Hopper the GPU, with power only, and the module, with its own power and the counter."""
    reasons = dict(info.reasons)
    energy = _energy_source(opened, reasons)
    if not any(part in opened.name for part in _GRACE_HOPPER):
        return [_domain(opened, structs.replace(info, reasons=reasons), nvml.SCOPE_GPU, energy, extras)]
    gpu_reasons = {**reasons, "energy_j": "on Grace Hopper the counter covers CPU and GPU: see the module"}
    gpu = _domain(opened, structs.replace(info, reasons=gpu_reasons), nvml.SCOPE_GPU, None, extras)
    module = structs.replace(
        info, uid=f"{info.uid}/module", covers=(info.uid,), memory_total_b=None, power_limit_w=None, reasons=reasons
    )
    return [gpu, _domain(replace(opened, limit_w=None), module, nvml.SCOPE_MODULE, energy, {})]


def _domain(opened: _Opened, info: DeviceInfo, scope: int, energy: Get | None, extras: dict[str, Get]) -> Board:
    power, power_sensor, reason = _power_source(opened, scope)
    counter = SensorInfo(api="nvmlDeviceGetTotalEnergyConsumption", unit="mJ", gain_error=GAIN_ERROR)
    named: Scope = "module" if scope == nvml.SCOPE_MODULE else "accelerator"
    info = structs.replace(info, scope=named, power=power_sensor, power_reason=reason, energy=counter if energy else None)
    unconverted: dict[str, Get] = {"energy_j": lambda: _energy_mj(opened)}
    if power is None:
        return Board(info=info, energy_j=energy, extras=extras, unconverted=unconverted)
    unconverted["power_w"] = power
    believable = partial(_believable_w, power, opened.limit_w)
    return Board(info=info, power_w=believable, energy_j=energy, extras=extras, unconverted=unconverted)


def _power_source(opened: _Opened, scope: int) -> tuple[Get | None, SensorInfo | None, str | None]:
    """The first of instant power, average power and the plain call that gives a believable number [mW]; else why none does."""
    api, handle, limit_w = opened.api, opened.handle, opened.limit_w
    scope_name = "GPU" if scope == nvml.SCOPE_GPU else "MODULE"
    sources: list[tuple[str, str, Get]] = [
        ("instant", f"nvmlDeviceGetFieldValues(POWER_INSTANT, {scope_name})", lambda: api.field(handle, nvml.INSTANT, scope)),
        ("average", f"nvmlDeviceGetFieldValues(POWER_AVERAGE, {scope_name})", lambda: api.field(handle, nvml.AVERAGE, scope)),
    ]
    if scope == nvml.SCOPE_GPU:
        sources.append(("usage", "nvmlDeviceGetPowerUsage", lambda: api.call("DeviceGetPowerUsage", handle)))
    why: list[str] = []
    for kind, name, raw in sources:
        watts, reason, _ = attempt(partial(_believable_w, raw, limit_w))
        if watts is None:
            why.append(reason or name)
            continue
        timing = power_timing(kind, opened.architecture, opened.name)
        sensor = SensorInfo(
            api=name,
            unit="mW",
            averaging_window_s=timing.averaging_s,
            update_period_s=timing.update_s,
            gain_error=GAIN_ERROR,
        )
        return raw, sensor, None
    return None, None, "; ".join(why)


def _believable_w(raw: Get, limit_w: float | None) -> float:
    return nvml.plausible_w(raw(), limit_w)


def _energy_source(opened: _Opened, reasons: dict[str, str]) -> Get | None:
    def joules() -> float:
        return nvml.present(_energy_mj(opened), bits=64) * J_PER_MJ

    return joules if _kept(reasons, "energy_j", joules) is not None else None


def _energy_mj(opened: _Opened) -> int:
    return int(opened.api.call("DeviceGetTotalEnergyConsumption", opened.handle))


def _extras(opened: _Opened, roots: Roots, reasons: dict[str, str]) -> tuple[dict[str, Get], int | None]:
    """Getters of what this board has beside power, and its memory size [bytes]."""
    api, handle = opened.api, opened.handle
    memory = _memory_source(opened, roots, reasons)
    total_b = _kept(reasons, "memory_total_b", lambda: memory()[1]) if memory else None
    getters: dict[str, Get] = {
        "utilisation": lambda: nvml.present(api.call("DeviceGetUtilizationRates", handle).gpu, bits=32) / 100,
        "temperature_c": lambda: float(nvml.present(api.call("DeviceGetTemperature", handle, _TEMPERATURE_GPU), bits=32)),
        "clock_mhz": lambda: float(nvml.present(api.call("DeviceGetClockInfo", handle, _CLOCK_SM), bits=32)),
        "throttle": _throttle_source(opened),
    }
    if memory:
        getters["memory_used_b"] = lambda: memory()[0]
    kept = {}
    for name, get in getters.items():
        _, reason, lasting = attempt(get)
        if reason:
            reasons.setdefault(name, reason)
        if not lasting:
            kept[name] = get
    return kept, total_b


def _memory_source(opened: _Opened, roots: Roots, reasons: dict[str, str]) -> Callable[[], tuple[int, int]] | None:
    """(used, total) bytes. v2 keeps what the driver reserves apart from `used`; v1 counts it in."""
    api, handle = opened.api, opened.handle

    def device(*version: int) -> tuple[int, int]:
        info = api.call("DeviceGetMemoryInfo", handle, *version)
        total_b = nvml.present(int(info.total), bits=64)
        if total_b == 0:
            raise Unavailable("the driver gives a memory size of 0", lasting=True)
        return nvml.present(int(info.used), bits=64), total_b

    _, reason, lasting = attempt(lambda: device(_NVML_MEMORY_V2))
    if not lasting:
        return lambda: device(_NVML_MEMORY_V2)
    _, reason, lasting = attempt(device)
    if not lasting:
        return device
    if any(part in opened.name for part in _UNIFIED):
        reasons["memory"] = "unified with the host: total and used are /proc/meminfo's MemTotal and MemTotal - MemAvailable"
        return lambda: _unified_memory_b(roots)
    reasons["memory_used_b"] = reasons["memory_total_b"] = reason or "not given"
    return None


def _unified_memory_b(roots: Roots) -> tuple[int, int]:
    try:
        text = (roots.proc / "meminfo").read_text()
    except OSError as error:
        raise Unavailable(f"{roots.proc}/meminfo: {error.strerror}", lasting=True) from error
    kib = {name: int(value) for name, value in re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", text, re.MULTILINE)}
    if len(kib) < 2:
        raise Unavailable(f"{roots.proc}/meminfo names no MemTotal and MemAvailable", lasting=True)
    return (kib["MemTotal"] - kib["MemAvailable"]) * 1024, kib["MemTotal"] * 1024


def _throttle_source(opened: _Opened) -> Get:
    """Drivers before 535 know the call by its old name."""
    api, handle = opened.api, opened.handle
    names = ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")
    known = names[1] if attempt(lambda: api.call(names[0], handle))[2] else names[0]
    return lambda: nvml.throttle_names(int(api.call(known, handle)))


def _limit_w(api: Nvml, handle: Any) -> float:
    milliwatts = nvml.present(int(api.call("DeviceGetEnforcedPowerLimit", handle)), bits=32)
    if milliwatts == 0:
        raise Unavailable("the driver gives a power limit of 0", lasting=True)
    return milliwatts / 1000


def _pci(api: Nvml, handle: Any) -> str:
    """As sysfs writes it, with a domain of four digits where four are enough."""
    domain, _, rest = nvml.text(api.call("DeviceGetPciInfo", handle).busId).lower().partition(":")
    return f"{domain.removeprefix('0000') if len(domain) == 8 else domain}:{rest}"


def _mig_slices(api: Nvml, handle: Any) -> tuple[str, ...]:
    """UUIDs of the MIG instances. Power exists only for the whole board, so the slices are covered, never listed."""
    mode, _, _ = attempt(lambda: api.call("DeviceGetMigMode", handle))
    if not mode or not mode[0]:
        return ()
    slots, _, _ = attempt(lambda: int(api.call("DeviceGetMaxMigDeviceCount", handle)))
    found = []
    for slot in range(slots or 0):
        uuid, _, _ = attempt(partial(_mig_uuid, api, handle, slot))
        if uuid is not None:
            found.append(uuid)
    return tuple(found)


def _shared(api: Nvml, handle: Any, slices: tuple[str, ...]) -> str | None:
    """Why the board's power is not one engine's, where the driver or the environment says that it is split."""
    if len(slices) > 1:
        return f"MIG: {len(slices)} slices share the board's power, and none has a sensor of its own"
    mode, _, _ = attempt(lambda: int(api.call("DeviceGetVirtualizationMode", handle)))
    if mode in _VIRTUAL_GPU:
        return "vGPU: other guests may use the same board"
    split = next((name for name in sorted(os.environ) if name.startswith(_SPLIT_BY)), None)
    return f"{split} is set: the board is split among containers" if split else None


def _pids_source(api: Nvml, handle: Any) -> Get | None:
    def pids() -> tuple[int, ...]:
        return tuple(int(process.pid) for process in api.call("DeviceGetComputeRunningProcesses_v3", handle))

    return None if attempt(pids)[2] else pids


def _mig_uuid(api: Nvml, handle: Any, slot: int) -> str:
    return nvml.text(api.call("DeviceGetUUID", api.call("DeviceGetMigDeviceHandleByIndex", handle, slot)))


def _kept(reasons: dict[str, str], name: str, get: Get) -> Any:
    """The value, or None with the reason noted."""
    value, reason, _ = attempt(get)
    if reason:
        reasons[name] = reason
    return value
