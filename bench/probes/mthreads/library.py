"""Moore Threads GPUs through `pymtml`, the binding of libmtml in PyPI's mthreads-ml-py. It is loaded late, and only in the
probe's own process.

Source: `mtml.h` (with MPC and MtLink) and mthreads-ml-py 2.4.3; earlier ones lay device properties out otherwise. Power is of a
device and its associated circuitry, in milliwatts; memory in bytes, use in percent, temperatures in degrees C, clocks in MHz.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from bench.errors import ProbeError
from bench.probes import values
from bench.probes.cards import Card, Quantity
from bench.probes.native import Codes
from bench.probes.values import MARK_32, MARK_64, Unavailable, above_0, attempt, believable_w

_CODES = Codes(
    names={
        1: "driver not loaded",
        2: "driver failure",
        3: "invalid argument",
        4: "not supported",
        5: "no permission",
        6: "insufficient size",
        7: "not found",
        8: "insufficient memory",
        9: "driver too old",
        10: "driver too new",
        11: "timeout",
        12: "resource busy",
        667: "no such function in this libmtml",
        669: "GPU is lost",
        999: "unknown error",
    },
    lost=frozenset({1, 669}),
    lasting=frozenset({3, 4, 5, 9, 10, 667}),
)
_GUEST = 2
"""`MTML_VIRT_ROLE_GUEST_VIRTDEVICE`: a virtual machine's part of a card."""
_PARENT, _INSTANCE = 1, 2
"""`MtmlMpcType`: a card cut into instances is listed beside them."""
_UNTOLD = {
    "energy_j": "MTML has no energy counter",
    "power_limit_w": "MTML tells no power limit",
    "throttle": "MTML tells no limits in force",
}

Get = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Mtml:
    """The binding's module, with its errors translated: `Unavailable` for one value, `ProbeError` for a lost device."""

    lib: Any

    def call(self, name: str, *args: Any) -> Any:
        """`mtml<name>(*args)`. Raises: Unavailable, ProbeError."""
        function = getattr(self.lib, f"mtml{name}", None)
        if function is None:
            raise Unavailable(f"this mthreads-ml-py has no mtml{name}", lasting=True)
        try:
            return function(*args)
        except self.lib.MTMLError as error:
            raise _CODES.error(f"mtml{name}", error.value) from error
        except UnicodeDecodeError as error:
            raise Unavailable(f"mtml{name}: no text ({error.object[:20]!r})", lasting=False) from error

    def close(self) -> None:
        """Let go of the library. Its handles are void then."""
        attempt(lambda: self.call("LibraryShutDown"))


def load() -> Mtml:
    """The binding on libmtml, started. Raises: Unavailable, ProbeError."""
    try:
        lib = importlib.import_module("pymtml")
    except ImportError as error:
        raise Unavailable(f"mthreads-ml-py: {error}", lasting=True) from error
    if not hasattr(lib, "mtmlLibraryInit"):
        raise Unavailable("the package pymtml installed here is not the binding, which mthreads-ml-py brings", lasting=True)
    api = Mtml(lib)
    try:
        api.call("LibraryInit")
    except OSError as error:
        raise Unavailable(" ".join(str(error).split()), lasting=True) from error
    return api


def cards(api: Mtml) -> tuple[list[Card], list[tuple[str, str]]]:
    """Every device that answers, and (device, reason) for those that don't. Raises: Unavailable, ProbeError."""
    driver = attempt(lambda: api.call("SystemGetDriverVersion", api.call("LibraryInitSystem")))[0]
    found: list[Card] = []
    refused: list[tuple[str, str]] = []
    parents = 0
    for index in range(api.call("LibraryCountDevice")):
        try:
            device = api.call("LibraryInitDeviceByIndex", index)
            card = _card(api, device, index)
        except (Unavailable, ProbeError) as error:
            refused.append((f"device {index}", str(error)))
            continue
        found.append(replace(card, driver=driver, visible_as=str(index - parents) if parents else None))
        parents += _mpc_type(api, device) == _PARENT
    return found, refused


def _card(api: Mtml, device: Any, index: int) -> Card:
    """Raises: ProbeError where the device is lost."""
    uuid = attempt(lambda: api.call("DeviceGetUUID", device))[0]
    pci = attempt(lambda: api.call("DeviceGetPciInfo", device).sbdf)[0]
    mpc = _mpc_type(api, device)
    power = {} if mpc == _INSTANCE else {"power_w": _power(api, device)}
    untold = {"power_w": "an MPC instance has no power sensor of its own"} if mpc == _INSTANCE else {}
    return Card(
        index=index,
        pci=values.pci_address(pci),
        unique_id=values.named(uuid),
        name=values.named(attempt(lambda: api.call("DeviceGetName", device))[0]),
        firmware=values.named(attempt(lambda: api.call("DeviceGetMtBiosVersion", device))[0]),
        board=_parent_uuid(api, device) if mpc == _INSTANCE else uuid,
        shared=_shared(api, device, mpc),
        quantities={**power, **_memory(api, device), **_activity(api, device)},
        reasons={**_UNTOLD, **untold},
    )


def _mpc_type(api: Mtml, device: Any) -> int:
    return int(attempt(lambda: api.call("DeviceGetProperty", device).mpcType)[0] or 0)


def _parent_uuid(api: Mtml, device: Any) -> str | None:
    uuid: str | None = attempt(lambda: api.call("DeviceGetUUID", api.call("DeviceGetMpcParentDevice", device)))[0]
    return uuid


def _shared(api: Mtml, device: Any, mpc: int) -> str | None:
    if attempt(lambda: api.call("DeviceGetProperty", device).virtRole)[0] == _GUEST:
        return "a virtual device: others may use the rest of its card"
    instances = attempt(lambda: api.call("DeviceCountMpcInstances", device))[0] if mpc == _PARENT else None
    return f"cut into {instances} MPC instances" if instances and instances > 1 else None


# --- quantities -------------------------------------------------------------------------------------------------------


def _power(api: Mtml, device: Any) -> Quantity:
    def milliwatts() -> float:
        return values.number(api.call("DeviceGetPowerUsage", device), marks=(MARK_32,))

    return Quantity(get=lambda: believable_w(milliwatts() * 1e-3, None), raw=milliwatts, api="mtmlDeviceGetPowerUsage", unit="mW")


def _memory(api: Mtml, device: Any) -> dict[str, Quantity]:
    memory = cache(partial(api.call, "DeviceInitMemory", device))
    calls = {"memory_total_b": "MemoryGetTotal", "memory_used_b": "MemoryGetUsed"}
    return {name: Quantity(get=partial(_size_b, api, call, memory), api=f"mtml{call}", unit="B") for name, call in calls.items()}


def _size_b(api: Mtml, call: str, memory: Get) -> int:
    size_b = values.number(api.call(call, memory()), marks=(MARK_64,))
    return int(above_0(size_b, "memory size") if call == "MemoryGetTotal" else size_b)


def _activity(api: Mtml, device: Any) -> dict[str, Quantity]:
    gpu = cache(partial(api.call, "DeviceInitGpu", device))

    def told(call: str) -> float:
        return values.number(api.call(call, gpu()))

    return {
        "utilisation": Quantity(get=lambda: values.share(told("GpuGetUtilization")), api="mtmlGpuGetUtilization", unit="%"),
        "temperature_c": Quantity(
            get=lambda: above_0(told("GpuGetTemperature"), "temperature"), api="mtmlGpuGetTemperature", unit="C"
        ),
        "clock_mhz": Quantity(get=lambda: told("GpuGetClock"), api="mtmlGpuGetClock", unit="MHz"),
    }
