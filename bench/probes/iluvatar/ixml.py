"""`libixml.so`, which exports NVML's names: structures, codes, calls. Loaded late, and only in the probe's own process.

Source: `api.h` of IX-ML 4.4.0, as published with the vendor's Go binding. Where NVML has several versions of a call, this is the
one that the vendor's own programs make: the second memory structure, for one, wants another version number than NVIDIA's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from ctypes import byref, c_char, c_uint, c_ulonglong
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.probes import native, values
from bench.probes.native import Codes, Native
from bench.probes.values import MARK_32, MARK_64, Unavailable

LIBRARY = "libixml.so"
_INIT = "nvmlInit_v2"
_CODES = Codes(
    names={
        1: "not initialised",
        2: "invalid argument",
        3: "not supported",
        4: "no permission",
        6: "not found",
        7: "insufficient size",
        9: "driver not loaded",
        10: "timeout",
        13: "function not found",
        15: "the GPU is lost",
        16: "the GPU needs a reset",
        17: "the operating system has blocked the device",
        999: "unknown error",
    },
    lost=frozenset({1, 9, 15, 16}),
    lasting=frozenset({2, 3, 4, 13}),
)
_TEXT_B = 96
_INSUFFICIENT_SIZE = 7
_FEW_PROCESSES, _MOST_PROCESSES = 8, 4096
"""Room for processes, at first and where the library wants ever more."""


class PciInfo(ctypes.Structure):
    """`nvmlPciInfo_t`."""

    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


class Memory(ctypes.Structure):
    """`nvmlMemory_t` [bytes]."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Utilization(ctypes.Structure):
    """`nvmlUtilization_t` [%]."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class ProcessInfo(ctypes.Structure):
    """`nvmlProcessInfo_v1_t` [bytes]: what the call without a version fills."""

    _fields_ = (("pid", c_uint), ("usedGpuMemory", c_ulonglong))


@dataclass(frozen=True, slots=True)
class Device:
    """A chip: its number in the library, and its handle (a structure of one pointer, which is passed as the pointer is)."""

    api: Native
    index: int
    handle: ctypes.c_void_p

    def call(self, name: str, *args: Any) -> None:
        """`name(handle, *args)`. Raises: Unavailable, ProbeError."""
        self.api.call(name, self.handle, *args)

    def number(self, name: str, *before: Any, kind: Any = c_uint) -> int:
        """What a call writes to its last argument. Raises: Unavailable, ProbeError."""
        value = kind()
        self.call(name, *before, byref(value))
        return int(value.value)

    def text(self, name: str) -> str | None:
        """A text. Raises: Unavailable, ProbeError."""
        buffer = ctypes.create_string_buffer(_TEXT_B)
        self.call(name, buffer, c_uint(_TEXT_B))
        return values.named(native.text(buffer))

    def processes(self) -> dict[int, int | None]:
        """Process ids with what each holds [bytes]. Raises: Unavailable, ProbeError."""
        name, room = "nvmlDeviceGetComputeRunningProcesses", _FEW_PROCESSES
        while True:
            infos, count = (ProcessInfo * room)(), c_uint(room)
            code = self.api.function(name)(self.handle, byref(count), infos)
            if code != _INSUFFICIENT_SIZE or room > _MOST_PROCESSES:
                break
            room = 2 * max(room, min(count.value, _MOST_PROCESSES))
        if code != self.api.codes.ok:
            raise self.api.error(name, code)
        found = infos[: min(count.value, room)]
        if any(info.pid == MARK_32 for info in found):
            raise Unavailable("the driver tells no process ids here", lasting=False)
        return {info.pid: None if info.usedGpuMemory == MARK_64 else info.usedGpuMemory for info in found}


def corex_folders(env: Mapping[str, str]) -> list[Path]:
    """Where CoreX may be: as the environment says, else under /usr/local, newest first."""
    named = [Path(root)] if (root := env.get("COREX_HOME")) else []
    return [*named, Path("/usr/local/corex"), *sorted(Path("/usr/local").glob("corex-*"), reverse=True)]


def load(env: Mapping[str, str]) -> Native:
    """The library, initialised. Raises: Unavailable, ProbeError.

    A library of the same name belongs to UPnP's XML parser: what can't start NVML is passed over.
    """
    why: list[str] = []
    for candidate in _candidates(env):
        try:
            api = native.load([candidate], _CODES)
            api.function(_INIT)
        except Unavailable as error:
            why.append(str(error))
            continue
        api.call(_INIT)
        return api
    raise Unavailable("; ".join(dict.fromkeys(why)), lasting=True)


def _candidates(env: Mapping[str, str]) -> Iterator[str | Path]:
    paths = (folder / below / LIBRARY for folder in corex_folders(env) for below in ("lib64", "lib"))
    yield from (path for path in paths if path.is_file())
    yield LIBRARY


def close(api: Native) -> None:
    """Let go of the library."""
    api.function("nvmlShutdown")()


def count(api: Native) -> int:
    """Number of chips. Raises: Unavailable, ProbeError."""
    found = c_uint()
    api.call("nvmlDeviceGetCount_v2", byref(found))
    return found.value


def device(api: Native, index: int) -> Device:
    """A chip by its number. Raises: Unavailable, ProbeError."""
    handle = ctypes.c_void_p()
    api.call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
    return Device(api, index, handle)


def driver(api: Native) -> str | None:
    """Version of the driver. Raises: Unavailable, ProbeError."""
    buffer = ctypes.create_string_buffer(_TEXT_B)
    api.call("nvmlSystemGetDriverVersion", buffer, c_uint(_TEXT_B))
    return values.named(native.text(buffer))
