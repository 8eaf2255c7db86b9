"""Enflame cards through the interface that `efml.h` calls next: `efmlDevice...`.

Source: `efml.h` 1.2.3.5; `efmlDeviceGetUUID`, which later libraries have, as torch_gcu calls it. Power and limit in milliwatts,
memory in bytes, utilisation in percent over the past sample period, temperature in degrees C, clocks in MHz.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.probes import native, values
from bench.probes.cards import Card, Quantity
from bench.probes.enflame import structs
from bench.probes.native import Codes, Native
from bench.probes.values import MARK_64, Unavailable, above_0, attempt, believable_w

_CODES = Codes(
    names={
        1: "not initialised",
        2: "invalid argument",
        3: "not supported",
        4: "no permission",
        6: "not found",
        7: "insufficient size",
        8: "insufficient power",
        9: "driver not loaded",
        10: "timeout",
        11: "interrupt issue",
        13: "function not found",
        15: "the card is lost",
        16: "reset required",
        17: "blocked by the operating system",
        18: "driver and library of different versions",
        19: "in use",
        21: "no data",
        25: "another version of the structure",
        26: "deprecated",
        27: "not ready",
        28: "no card found",
        999: "unknown error",
    },
    lost=frozenset({1, 9, 15, 16, 18}),
    lasting=frozenset({2, 3, 4, 13, 25, 26}),
)
_TOO_SMALL = 7
_TEXT_B = 96
_CHIP = 0
_CLOCK_SIP = 1
_FEWEST_PROCESSES = 64
_MOST_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The interface, started."""

    native: Native

    @classmethod
    def started(cls, library: Native) -> Next:
        """Raises: Unavailable, ProbeError where it does not start."""
        api = cls(native=replace(library, codes=_CODES))
        api.native.call(_either(api.native, "efmlInit_v2", "efmlInit"))
        return api

    def count(self) -> int:
        """How many cards there are. Raises: Unavailable, ProbeError."""
        return self._unsigned("efmlDeviceGetCount_v2")

    def close(self) -> None:
        """Let go of the library."""
        self.native.function("efmlShutdown")()

    def card(self, index: int) -> Card:
        """One card. Raises: Unavailable, ProbeError where it can't be opened."""
        device = ctypes.c_void_p()
        self.native.call("efmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
        return Card(
            index=index,
            pci=attempt(lambda: _pci(self._struct("efmlDeviceGetPciInfo_v3", structs.Pci, device)))[0],
            unique_id=values.with_prefix("GCU-", attempt(partial(self._text, "efmlDeviceGetUUID", device))[0]),
            name=values.named(attempt(partial(self._text, "efmlDeviceGetName", device))[0]),
            quantities={**self._power(device), **self._memory(device), **self._rest(device)},
            processes=partial(self._processes, device),
        )

    def _power(self, device: ctypes.c_void_p) -> dict[str, Quantity]:
        usage, limit = "efmlDeviceGetPowerUsage", "efmlDeviceGetEnforcedPowerLimit"

        def milliwatts(name: str) -> float:
            return values.number(self._unsigned(name, device))

        def limit_w() -> float:
            told = milliwatts(limit)
            if told == 0:
                raise Unavailable("the driver gives a limit of 0", lasting=True)
            return told / 1000

        in_force_w = attempt(limit_w)[0]
        return {
            "power_w": Quantity(
                get=lambda: believable_w(milliwatts(usage) / 1000, in_force_w),
                raw=partial(milliwatts, usage),
                api=usage,
                unit="mW",
            ),
            "power_limit_w": Quantity(get=limit_w, api=limit, unit="mW"),
        }

    def _memory(self, device: ctypes.c_void_p) -> dict[str, Quantity]:
        name = "efmlDeviceGetMemoryInfo"

        def size_b(member: str) -> int:
            told = self._struct(name, structs.Memory, device)
            if not 0 < told.total < MARK_64 or max(told.used, told.free) > told.total:
                raise Unavailable(f"{told.used} and {told.free} of {told.total} B are no sizes", lasting=False)
            return int(getattr(told, member))

        members = {"memory_total_b": "total", "memory_used_b": "used"}
        return {key: Quantity(get=partial(size_b, member), api=f"{name}[{member}]", unit="B") for key, member in members.items()}

    def _rest(self, device: ctypes.c_void_p) -> dict[str, Quantity]:
        usage, temperature, clock = "efmlDeviceGetUtilizationRates", "efmlDeviceGetTemperature", "efmlDeviceGetClockInfo"

        def celsius() -> float:
            found = ctypes.c_int()
            self.native.call(temperature, device, _CHIP, ctypes.byref(found))
            return above_0(values.number(found.value), "temperature")

        return {
            "utilisation": Quantity(
                get=lambda: values.share(values.number(self._struct(usage, structs.Utilisation, device).gcu)),
                api=f"{usage}[gcu]",
                unit="%",
            ),
            "temperature_c": Quantity(get=celsius, api=temperature, unit="C"),
            "clock_mhz": Quantity(
                get=lambda: above_0(values.number(self._unsigned(clock, device, _CLOCK_SIP)), "clock"),
                api=f"{clock}[SIP]",
                unit="MHz",
            ),
        }

    def _processes(self, device: ctypes.c_void_p) -> Mapping[int, int | None]:
        name = "efmlDeviceGetComputeRunningProcesses_v3"
        many = ctypes.c_uint(_FEWEST_PROCESSES)
        code = _TOO_SMALL
        for _ in range(_MOST_TRIES):  # more may come between two calls
            rows = (structs.Process * many.value)()
            code = self.native.function(name)(device, ctypes.byref(many), rows)
            if code == _CODES.ok:
                return {row.pid: None if row.usedGcuMemory == MARK_64 else row.usedGcuMemory for row in rows[: many.value]}
            if code != _TOO_SMALL:
                break
        raise self.native.error(name, code)

    def _unsigned(self, name: str, *args: Any) -> int:
        found = ctypes.c_uint()
        self.native.call(name, *args, ctypes.byref(found))
        return found.value

    def _struct(self, name: str, kind: type[Any], device: ctypes.c_void_p) -> Any:
        found = kind()
        self.native.call(name, device, ctypes.byref(found))
        return found

    def _text(self, name: str, device: ctypes.c_void_p) -> str | None:
        found = ctypes.create_string_buffer(_TEXT_B)
        self.native.call(name, device, found, _TEXT_B)
        return native.text(found)


def _either(library: Native, *names: str) -> str:
    """The first of these functions that the library has, else the last."""
    return next((name for name in names if attempt(partial(library.function, name))[1] is None), names[-1])


def _pci(told: Any) -> str | None:
    return values.pci_address(f"{told.domain:04x}:{told.bus:02x}:{told.device:02x}.{told.function:x}")
