"""Enflame cards through the old interface of libefml.so: `Efml...`, for drivers and cards that the next one does not know.

Source: `efml.h` 1.2.3.5; units of memory as the vendor's gcu-exporter converts them. Power and limit in watts, utilisation in
percent, temperature in degrees C, clocks in MHz. What is missing is -1.
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
from bench.units import BYTES_PER_MIB

_CODES = Codes(
    names={
        1: "not initialised",
        2: "invalid argument",
        3: "not supported",
        4: "library not found",
        6: "driver not loaded",
        8: "invalid input",
        9: "function not found",
        10: "the driver's version can't be read",
        11: "driver and library of different versions",
        12: "no card",
        13: "deprecated",
        253: "timeout",
        254: "failed",
    },
    lost=frozenset({1, 6, 11, 12}),
    lasting=frozenset({2, 3, 8, 9, 13}),
)
_TEXT_B = 256
"""The header's buffers have 128."""
_MOST_PROCESSES = 256
"""The library is not told how many rows there are; the header says that it writes up to 64."""
_TEMPERATURES = ("EfmlGetDevTempV2", "EfmlGetDevTemp")
_USAGES = ("EfmlGetDevDtuUsageAsync", "EfmlGetDevDtuUsage")
"""The first is sampled by a thread of the library's, so it does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """The interface, started. Cards are known by their numbers."""

    native: Native

    @classmethod
    def started(cls, library: Native) -> Old:
        """Raises: Unavailable, ProbeError where it does not start."""
        api = cls(native=replace(library, codes=_CODES))
        api.native.call("EfmlInit", ctypes.c_bool(False))
        return api

    def count(self) -> int:
        """How many cards there are. Raises: Unavailable, ProbeError."""
        found = ctypes.c_uint32()
        self.native.call("EfmlGetDevCount", ctypes.byref(found))
        return found.value

    def close(self) -> None:
        """Let go of the library."""
        self.native.function("EfmlShutdown", returns=None)()

    def card(self, index: int) -> Card:
        """One card. Raises: ProbeError where it is lost."""
        number = ctypes.c_uint32(index)
        info = attempt(partial(self._struct, "EfmlGetDevInfo", structs.DevInfo, number))[0]
        return Card(
            index=index,
            pci=_pci(info) if info else None,
            unique_id=values.with_prefix("GCU-", attempt(partial(self._text, "EfmlGetDevUuid", number))[0]),
            name=self._name(number, info),
            driver=values.named(attempt(partial(self._text, "EfmlGetDriverVer"))[0]),
            firmware=values.named(attempt(partial(self._text, "EfmlGetFwVersion", number))[0]),
            quantities={**self._power(number), **self._memory(number), **self._rest(number)},
            processes=partial(self._processes, number),
        )

    def _name(self, number: ctypes.c_uint32, info: Any) -> str | None:
        """The model (`S60`): what `EfmlGetDevName` tells is the device node's."""
        model = values.named(attempt(partial(self._text, "EfmlGetDevSKU", number))[0])
        return model or (values.named(native.text(info.name)) if info else None)

    def _power(self, number: ctypes.c_uint32) -> dict[str, Quantity]:
        name = "EfmlGetDevPwr"

        def watts(member: str) -> float:
            return values.number(getattr(self._struct(name, structs.DevPower, number), member))

        def limit_w() -> float:
            return above_0(watts("pwr_capability"), "power limit")

        in_force_w = attempt(limit_w)[0]
        used = "cur_pwr_consumption"
        return {
            "power_w": Quantity(
                get=lambda: believable_w(watts(used), in_force_w), raw=partial(watts, used), api=f"{name}[{used}]", unit="W"
            ),
            "power_limit_w": Quantity(get=limit_w, api=f"{name}[pwr_capability]", unit="W"),
        }

    def _memory(self, number: ctypes.c_uint32) -> dict[str, Quantity]:
        name = "EfmlGetDevMem"

        def sizes_b() -> tuple[int, int]:
            told = self._struct(name, structs.DevMemory, number)
            used_b = told.mem_used * BYTES_PER_MIB
            if not 0 < told.mem_total_size < MARK_64 or used_b > told.mem_total_size:
                raise Unavailable(f"{told.mem_used} MiB of {told.mem_total_size} B are no sizes", lasting=False)
            return told.mem_total_size, used_b

        return {
            "memory_total_b": Quantity(get=lambda: sizes_b()[0], api=f"{name}[mem_total_size]", unit="B"),
            "memory_used_b": Quantity(get=lambda: sizes_b()[1], api=f"{name}[mem_used]", unit="MiB"),
        }

    def _rest(self, number: ctypes.c_uint32) -> dict[str, Quantity]:
        temperature, usage = self._having(_TEMPERATURES), self._having(_USAGES)

        def percent() -> float:
            found = ctypes.c_float()
            self.native.call(usage, number, ctypes.byref(found))
            return values.number(found.value)

        return {
            "utilisation": Quantity(get=lambda: values.share(percent()), api=usage, unit="%"),
            "temperature_c": Quantity(
                get=lambda: above_0(
                    values.number(self._struct(temperature, structs.DevTemperatures, number).cur_asic_temp), "temperature"
                ),
                api=temperature,
                unit="C",
            ),
            "clock_mhz": Quantity(
                get=lambda: above_0(
                    values.number(self._struct("EfmlGetDevClk", structs.DevClocks, number).cur_dtu_clock), "clock"
                ),
                api="EfmlGetDevClk[cur_dtu_clock]",
                unit="MHz",
            ),
        }

    def _processes(self, number: ctypes.c_uint32) -> Mapping[int, int | None]:
        """Who is on the card; nobody says in which unit their memory is."""
        rows, many = (structs.DevProcess * _MOST_PROCESSES)(), ctypes.c_uint32()
        self.native.call("EfmlGetProcessInfo", number, ctypes.byref(many), rows)
        return {row.pid: None for row in rows[: many.value]}

    def _having(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if attempt(partial(self.native.function, name))[1] is None), names[0])

    def _struct(self, name: str, kind: type[Any], number: ctypes.c_uint32) -> Any:
        found = kind()
        self.native.call(name, number, ctypes.byref(found))
        return found

    def _text(self, name: str, *number: ctypes.c_uint32) -> str | None:
        found = ctypes.create_string_buffer(_TEXT_B)
        self.native.call(name, *number, found)
        return native.text(found)


def _pci(told: Any) -> str | None:
    return values.pci_address(f"{told.domain_id:04x}:{told.bus_id:02x}:{told.dev_id:02x}.{told.func_id:x}")
