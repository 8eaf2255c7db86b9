"""Hygon DCUs through their library.

Power and caps are in uW, memory is in bytes, temperatures in 0.001 C, clocks in Hz; the energy counter tells its own unit in uJ.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_float, c_int64, c_size_t, c_uint16, c_uint32, c_uint64
from functools import partial
from typing import Any

from bench.errors import ProbeError
from bench.probes import values
from bench.probes.amd import values as amd_values
from bench.probes.cards import Card, Quantity
from bench.probes.hygon import rsmi
from bench.probes.hygon.rsmi import TEXT_B, Device, Frequencies, OldFrequencies
from bench.probes.native import Native
from bench.probes.values import MARK_64, Unavailable, attempt, believable_w

_VENDOR = 0x1D94
_VRAM, _SYSTEM_CLOCK, _NOW = 0, 0, 0
"""Kinds of memory, clock and temperature that the calls take."""
_SENSORS = {"JUNCTION": 1, "EDGE": 0, "CORE": 11}
"""Parts of the device that have a temperature, the hottest first."""
_NO_THROTTLE = "librocm_smi64 tells a mask of limits in force whose bits its header does not name"


def cards(api: Native) -> list[Card]:
    """Every DCU, in the library's order. Raises: Unavailable where it lists none, ProbeError.

    A library of the same name and calls comes with ROCm and lists AMD's cards: those are left to their own probe.
    """
    count = c_uint32()
    api.call("rsmi_num_monitor_devices", byref(count))
    devices = [Device(api, index) for index in range(count.value)]
    mine = [device for device in devices if _told(device.vendor) in (_VENDOR, None)]
    if not mine:
        raise Unavailable(f"{api.path} lists no Hygon card", lasting=False)
    driver = _told(partial(rsmi.driver, api))
    return [_card(device, driver) for device in mine]


def _told(get: Callable[[], Any]) -> Any:
    """What names a device; None where it is not told. A device that is lost is found out when its power is read."""
    try:
        return attempt(get)[0]
    except ProbeError:
        return None


def _card(device: Device, driver: str | None) -> Card:
    name = _told(partial(device.text, "rsmi_dev_name_get", c_size_t(TEXT_B)))
    device_id = _told(partial(device.number, "rsmi_dev_id_get", kind=c_uint16))
    bdf = _told(partial(device.number, "rsmi_dev_pci_id_get"))
    unique_id = _told(partial(device.number, "rsmi_dev_unique_id_get"))
    limit = partial(_limit_w, device)
    return Card(
        index=device.index,
        pci=None if bdf is None else _address(bdf),
        unique_id=None if unique_id is None else amd_values.unique_id(f"{unique_id:x}"),
        name=None if name is None or name.startswith("0x") else name,
        device_id=None if device_id is None else f"{device_id:#06x}",
        driver=driver,
        firmware=_told(partial(device.text, "rsmi_dev_vbios_version_get", c_uint32(TEXT_B))),
        quantities={
            "power_w": _power(device, _told(limit)),
            "energy_j": Quantity(get=partial(_energy_j, device), api="rsmi_dev_energy_count_get", unit="2^-16 J or as told"),
            "power_limit_w": Quantity(get=limit, api="rsmi_dev_power_cap_get", unit="uW"),
            "memory_total_b": _memory(device, "rsmi_dev_memory_total_get"),
            "memory_used_b": _memory(device, "rsmi_dev_memory_usage_get"),
            "utilisation": Quantity(get=partial(_busy, device), api="rsmi_dev_busy_percent_get", unit="%"),
            "temperature_c": _temperature(device),
            "clock_mhz": Quantity(get=partial(_clock_mhz, device), api="rsmi_dev_gpu_clk_freq_get(SYS)", unit="Hz"),
        },
        processes=partial(rsmi.processes, device),
        reasons={"throttle": _NO_THROTTLE},
    )


def _address(bdf: int) -> str:
    return f"{bdf >> 32:04x}:{bdf >> 8 & 0xFF:02x}:{bdf >> 3 & 0x1F:02x}.{bdf & 7}"


def _power(device: Device, limit_w: float | None) -> Quantity:
    """Average power, which Hygon's own tools read; where there is none the newer call that gives the current one."""
    calls = {"rsmi_dev_power_ave_get": partial(_average_uw, device), "rsmi_dev_power_get": partial(_current_uw, device)}
    name = next((name for name, read in calls.items() if _answers(read)), "rsmi_dev_power_ave_get")
    return Quantity(get=lambda: believable_w(values.number(calls[name]()) * 1e-6, limit_w), raw=calls[name], api=name, unit="uW")


def _answers(read: Callable[[], Any]) -> bool:
    try:
        return attempt(read)[1] is None
    except ProbeError:
        return True  # for now it is lost: it may come back


def _average_uw(device: Device) -> int:
    return device.number("rsmi_dev_power_ave_get", c_uint32(0))


def _current_uw(device: Device) -> int:
    power, kind = c_uint64(), c_uint32()
    device.call("rsmi_dev_power_get", byref(power), byref(kind))
    return power.value


def _limit_w(device: Device) -> float:
    cap_uw = values.number(device.number("rsmi_dev_power_cap_get", c_uint32(0)))
    if cap_uw == 0:
        raise Unavailable("the driver gives a power cap of 0", lasting=True)
    return cap_uw * 1e-6


def _energy_j(device: Device) -> float:
    counts, resolution_uj, stamp = c_uint64(), c_float(), c_uint64()
    device.call("rsmi_dev_energy_count_get", byref(counts), byref(resolution_uj), byref(stamp))
    told = values.number(counts.value, marks=(MARK_64,))
    if told == 0:
        raise Unavailable("the energy counter is 0", lasting=False)
    return told * amd_values.joules_per_count(resolution_uj.value)


def _memory(device: Device, call: str) -> Quantity:
    def size_b() -> int:
        size = int(values.number(device.number(call, c_uint32(_VRAM)), marks=(MARK_64,)))
        if size == 0 and call == "rsmi_dev_memory_total_get":
            raise Unavailable("the driver gives a memory size of 0", lasting=True)
        return size

    return Quantity(get=size_b, api=f"{call}(VRAM)", unit="B")


def _busy(device: Device) -> float:
    return values.share(values.number(device.number("rsmi_dev_busy_percent_get", kind=c_uint32)))


def _temperature(device: Device) -> Quantity:
    def celsius(sensor: str) -> float:
        args = (c_uint32(_SENSORS[sensor]), c_uint32(_NOW))
        told = values.number(device.number("rsmi_dev_temp_metric_get", *args, kind=c_int64)) * 1e-3
        if told == 0:
            raise Unavailable("a temperature of 0 is no reading", lasting=False)
        return told

    sensor = next((name for name in _SENSORS if _answers(partial(celsius, name))), "JUNCTION")
    return Quantity(get=partial(celsius, sensor), api=f"rsmi_dev_temp_metric_get({sensor})", unit="mC")


def _clock_mhz(device: Device) -> float:
    """The structure begins otherwise in 2.8 and in 7.6: read as the wrong one, what it counts does not fit."""
    new = Frequencies()
    device.call("rsmi_dev_gpu_clk_freq_get", c_uint32(_SYSTEM_CLOCK), byref(new))
    old = OldFrequencies.from_buffer(new)
    forms: list[Frequencies | OldFrequencies] = [new, old] if new.has_deep_sleep <= 1 else [old]
    for form in forms:
        if form.current < form.num_supported <= len(form.frequency):
            mhz = values.number(form.frequency[form.current]) * 1e-6
            if mhz >= 1:
                return mhz
    raise Unavailable("rsmi_dev_gpu_clk_freq_get: no clock of the list is the current one", lasting=False)
