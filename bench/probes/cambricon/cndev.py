"""libcndev.so, loaded late and only in the probe's own process: its return codes, and the versions of its structures.

Source: `cndev.h` with CNDEV_VERSION_6 (Cambricon/mlu-exporter, drivers 5.10 to 6). Most structures carry the version of the
interface that the caller speaks: newer libraries want 6, older ones 5, and a library refuses all others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.probes import native
from bench.probes.cambricon import structs
from bench.probes.native import Codes, Native
from bench.probes.values import Unavailable

VERSIONS = (6, 5)
"""Versions of the interface to offer, newest first."""
UNSUPPORTED_VERSION = 3
TOO_SMALL = 9
ENERGY = 71
"""cndevFieldTotalEnergyConsumption: mJ since the driver was loaded."""

CODES = Codes(
    names={
        1: "no driver",
        2: "driver too old",
        UNSUPPORTED_VERSION: "unsupported API version",
        4: "not initialised",
        5: "invalid argument",
        6: "invalid device",
        7: "unknown error",
        8: "out of memory",
        TOO_SMALL: "insufficient space",
        10: "not supported",
        11: "invalid link",
        12: "no devices",
        13: "no permission",
        14: "not found",
        15: "in use",
        16: "duplicate",
        17: "timeout",
        18: "the device is in problem",
    },
    lost=frozenset({1, 4, 6, 12, 18}),
    lasting=frozenset({2, UNSUPPORTED_VERSION, 5, 10, 13}),
)

_SPARE_B = 4096
"""Room behind each structure: a later library may know a longer one."""
_FEWEST_PROCESSES = 16
_MOST_TRIES = 4
_BYTES_PER_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cndev:
    """The library, with each structure in the version that it takes."""

    native: Native
    _spoken: dict[str, int] = field(default_factory=dict)

    def ask(self, name: str, kind: type[Any], device: int) -> Any:
        """The structure that `name(&structure, device)` fills. Raises: Unavailable, ProbeError."""
        return self._versioned(name, kind, lambda found: self.native.function(name)(ctypes.byref(found), device))

    def count(self) -> int:
        """How many devices there are. Raises: Unavailable, ProbeError."""
        name = "cndevGetDeviceCount"
        found = self._versioned(name, structs.CardInfo, lambda card: self.native.function(name)(ctypes.byref(card)))
        return int(found.number)

    def handle(self, index: int) -> int:
        """What the other calls know the device by. Raises: Unavailable, ProbeError."""
        found = ctypes.c_int32()
        self.native.call("cndevGetDeviceHandleByIndex", index, ctypes.byref(found))
        return found.value

    def name(self, device: int) -> str | None:
        """Product name. Raises: Unavailable."""
        found = self.native.function("cndevGetCardNameStringByDevId", returns=ctypes.c_char_p)(device)
        return native.text(found) if found else None

    def field_value(self, field_id: int, device: int) -> Any:
        """One field of the device, a number in its own unit. Raises: Unavailable, ProbeError."""
        found = structs.FieldValue(fieldId=field_id)
        name = "cndevDeviceGetFieldValues"
        self.native.call(name, device, 1, ctypes.byref(found))
        if found.ret != CODES.ok:
            raise self.native.error(f"{name}[{field_id}]", found.ret)
        if not 0 <= found.valueType < len(structs.MEMBERS):
            raise Unavailable(f"{name}[{field_id}] is of the unknown type {found.valueType}", lasting=True)
        return getattr(found.value, structs.MEMBERS[found.valueType])

    def processes(self, device: int) -> Mapping[int, int | None]:
        """Bytes of the device's memory that each process holds. Raises: Unavailable, ProbeError."""
        name = "cndevGetProcessInfo"
        room = ctypes.c_uint(_FEWEST_PROCESSES)
        code = TOO_SMALL
        for _ in range(_MOST_TRIES):  # more may come between two calls
            rows, code = self._process_rows(name, room, device)
            if code == CODES.ok:
                held: dict[int, int | None] = {}
                for row in rows[: room.value]:
                    held[row.pid] = (held.get(row.pid) or 0) + row.physicalMemoryUsed * _BYTES_PER_KIB
                return held
            if code != TOO_SMALL:
                break
        raise self.native.error(name, code)

    def close(self) -> None:
        """Let go of the library."""
        self.native.function("cndevRelease")()

    def _process_rows(self, name: str, room: ctypes.c_uint, device: int) -> tuple[Any, int]:
        """The rows, and the return code. `room` says how many rows fit, and then how many there are."""
        fits = room.value

        def call(rows: Any) -> int:
            room.value = fits
            return int(self.native.function(name)(ctypes.byref(room), rows, device))

        return self._offered(name, structs.Process * fits, call)

    def _versioned(self, name: str, kind: type[Any], call: Callable[[Any], int]) -> Any:
        found, code = self._offered(name, kind, call)
        if code != CODES.ok:
            raise self.native.error(name, code)
        return found

    def _offered(self, name: str, kind: type[Any], call: Callable[[Any], int]) -> tuple[Any, int]:
        """A structure, or an array of them, in the first version that `call` does not refuse; and its return code."""
        last = self._spoken.get(name)
        found, code = None, UNSUPPORTED_VERSION
        for version in sorted(VERSIONS, key=lambda one: one != last):
            found = kind.from_buffer(bytearray(ctypes.sizeof(kind) + _SPARE_B))
            for one in found if isinstance(found, ctypes.Array) else (found,):
                if hasattr(one, "version"):
                    one.version = version
            code = call(found)
            if code != UNSUPPORTED_VERSION:
                self._spoken[name] = version
                break
        return found, code


def load(candidates: Sequence[str]) -> Cndev:
    """The first library that loads, initialised. Raises: Unavailable, ProbeError."""
    library = native.load(candidates, CODES)
    library.call("cndevInit", 0)
    return Cndev(native=library)
