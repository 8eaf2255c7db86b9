"""Intel GPUs through Level Zero Sysman (`libze_loader.so.1`).

Source: the Level Zero specification 1.8, and Intel's implementation of it (compute-runtime). Energy in microjoules with a stamp
of its own, limits in milliwatts, memory in bytes, activity in microseconds, temperatures in degrees C, frequencies in MHz. There
is no power reading: it is the rise of the energy counter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_void_p
from functools import partial

from bench.errors import ProbeError
from bench.probes import native, values
from bench.probes.cards import Card
from bench.probes.intel import affinity, power, state, structs, sysman
from bench.probes.native import Native
from bench.probes.values import Unavailable, attempt

_GPU_TYPES = (0, 1)
"""GPU, and what older drivers leave unset; no NPU."""
_INTEGRATED = 0x1


def devices(api: Native) -> list[c_void_p]:
    """Every device of every driver, integrated and other ones too. Raises: Unavailable, ProbeError."""
    drivers = sysman.handles(api, "zesDriverGet")
    return [device for driver in drivers for device in sysman.handles(api, "zesDeviceGet", driver)]


def numbers(api: Native, listed: Sequence[c_void_p], env: Mapping[str, str]) -> list[str | None]:
    """What an affinity mask calls each of all devices; nothing where one of them does not tell its place."""
    try:
        places = sorted((_address(api, device), index, _stacks(api, device)) for index, device in enumerate(listed))
    except (Unavailable, ProbeError):
        return [None] * len(listed)
    called = affinity.numbers([stacks for _, _, stacks in places], env)
    by_index = {index: name for (_, index, _), name in zip(places, called, strict=True)}
    return [by_index[index] for index in range(len(listed))]


def card(api: Native, device: c_void_p, index: int, visible_as: str | None) -> Card | None:
    """One device; None for what is no GPU, and for a CPU's own GPU that counts no energy. Raises: Unavailable, ProbeError."""
    about = _about(api, device)
    integrated = bool(about.core.flags & _INTEGRATED)
    if about.core.type not in _GPU_TYPES:
        return None
    energy, untold = power.of_device(api, device)
    if integrated and not energy:
        return None
    driver = values.named(native.text(about.driverVersion))
    return Card(
        index=index,
        pci=attempt(partial(_pci, api, device))[0],
        unique_id=uuid(bytes(about.core.uuid)),
        name=values.named(native.text(about.core.name)) or values.named(native.text(about.modelName)),
        device_id=f"{about.core.deviceId:#06x}" if about.core.deviceId else None,
        driver=None if driver is None else f"Level Zero {driver}",
        scope="module" if integrated else "accelerator",
        visible_as=visible_as,
        quantities={**energy, **state.memory(api, device), **state.sensors(api, device)},
        processes=partial(state.processes, api, device),
        reasons=untold,
    )


def uuid(raw: bytes) -> str | None:
    """As `xpu-smi` writes it, last byte first; None where the driver leaves it empty."""
    digits = raw[::-1].hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts) if any(raw) else None


def _about(api: Native, device: c_void_p) -> structs.DeviceProperties:
    return sysman.told(api, "zesDeviceGetProperties", device, structs.DeviceProperties)


def _stacks(api: Native, device: c_void_p) -> int:
    return max(1, int(_about(api, device).numSubdevices))


def _address(api: Native, device: c_void_p) -> tuple[int, int, int, int]:
    found = sysman.told(api, "zesDevicePciGetProperties", device, structs.PciProperties).address
    return found.domain, found.bus, found.device, found.function


def _pci(api: Native, device: c_void_p) -> str:
    domain, bus, slot, function = _address(api, device)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
