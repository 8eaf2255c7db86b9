"""`librocm_smi64.so`, Hygon's fork of ROCm SMI: structures, codes, calls. Loaded late, and only in the probe's own process.

Source: `rocm_smi.h` of 2.8 (DTK 24.04) and 7.6 (DTK 26.04), as published with Hygon's DCGM.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from ctypes import byref, c_uint8, c_uint16, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.probes import native, values
from bench.probes.native import Codes, Native
from bench.probes.values import MARK_64, attempt

_NAME = "librocm_smi64.so"
_DRIVER_FOLDERS = ("/opt/hyhal/lib", "/usr/local/hyhal/lib")
_BELOW_DTK = ("lib", "rocm_smi/lib", ".hyhal/rocm_smi/lib")
_CODES = Codes(
    names={
        1: "invalid arguments",
        2: "not supported",
        3: "a file can't be read",
        4: "permission denied",
        5: "out of resources",
        6: "internal exception",
        7: "input out of bounds",
        8: "not initialised",
        9: "not yet implemented",
        10: "not found",
        11: "insufficient size",
        12: "interrupted",
        13: "unexpected size",
        14: "no data",
        15: "unexpected data",
        16: "busy",
        18: "setting unavailable",
        -1: "unknown error",
    },
    lost=frozenset({8}),
    lasting=frozenset({1, 2, 4, 7, 9}),
)
_FREQUENCIES = 33
_DRIVER = 0
TEXT_B = 256
"""Room for a text."""
_SPARE_PROCESSES = 8
"""Room for processes that come between the call that counts them and the one that lists them."""


class Frequencies(ctypes.Structure):
    """`rsmi_frequencies_t` of 7.6 [Hz]."""

    _fields_ = (
        ("has_deep_sleep", c_uint8),
        ("num_supported", c_uint32),
        ("current", c_uint32),
        ("frequency", c_uint64 * _FREQUENCIES),
    )


class OldFrequencies(ctypes.Structure):
    """`rsmi_frequencies_t` of 2.8 [Hz]."""

    _fields_ = (("num_supported", c_uint32), ("current", c_uint32), ("frequency", c_uint64 * 32))


class ProcessInfo(ctypes.Structure):
    """`rsmi_process_info_t`, alike in both."""

    _fields_ = (
        ("process_id", c_uint32),
        ("pasid", c_uint32),
        ("vram_usage", c_uint64),
        ("sdma_usage", c_uint64),
        ("cu_occupancy", c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its number in the library."""

    api: Native
    index: int

    def call(self, name: str, *args: Any) -> None:
        """`name(index, *args)`. Raises: Unavailable, ProbeError."""
        self.api.call(name, c_uint32(self.index), *args)

    def number(self, name: str, *before: Any, kind: Any = c_uint64) -> int:
        """What a call writes to its last argument. Raises: Unavailable, ProbeError."""
        value = kind()
        self.call(name, *before, byref(value))
        return int(value.value)

    def vendor(self) -> int:
        """PCI vendor id. Raises: Unavailable, ProbeError."""
        return self.number("rsmi_dev_vendor_id_get", kind=c_uint16)

    def text(self, name: str, length: Any) -> str | None:
        """A text. Raises: Unavailable, ProbeError."""
        buffer = ctypes.create_string_buffer(TEXT_B)
        self.call(name, buffer, length)
        return values.named(native.text(buffer))


def dtk_folders(env: Mapping[str, str]) -> list[Path]:
    """Where the DTK is, as the environment says or under /opt, newest first. Its variables are also those of AMD's ROCm."""
    named = [Path(env.get(name, "")) for name in ("ROCM_HOME", "ROCM_PATH")]
    found = [*named, Path("/opt/dtk"), *sorted(Path("/opt").glob("dtk-*"), reverse=True)]
    return [folder for folder in found if folder.name.startswith("dtk")]


def load(env: Mapping[str, str]) -> Native:
    """The library, initialised. Raises: Unavailable, ProbeError."""
    folders = [
        *(Path(folder) for folder in (env.get("ROCM_SMI_LIB_PATH"), *_DRIVER_FOLDERS) if folder),
        *(dtk / below for dtk in dtk_folders(env) for below in _BELOW_DTK),
        Path("/opt/rocm/lib"),
    ]
    found = [folder / _NAME for folder in folders if (folder / _NAME).is_file()]
    api = native.load([*found, _NAME], _CODES)
    api.call("rsmi_init", c_uint64(0))
    return api


def close(api: Native) -> None:
    """Let go of the library."""
    api.function("rsmi_shut_down")()


def driver(api: Native) -> str | None:
    """Version of the driver. Raises: Unavailable, ProbeError."""
    buffer = ctypes.create_string_buffer(TEXT_B)
    api.call("rsmi_version_str_get", c_uint32(_DRIVER), buffer, c_uint32(TEXT_B))
    return values.named(native.text(buffer))


def processes(device: Device) -> dict[int, int | None]:
    """Process ids with what each holds on the device [bytes]."""
    return {pid: _held_b(device, pid) for pid in _pids(device.api) if device.index in _devices_of(device.api, pid)}


def _pids(api: Native) -> Iterator[int]:
    """Every process on any device."""
    count = c_uint32()
    api.call("rsmi_compute_process_info_get", None, byref(count))
    room = count.value + _SPARE_PROCESSES
    infos, count = (ProcessInfo * room)(), c_uint32(room)
    api.call("rsmi_compute_process_info_get", infos, byref(count))
    yield from (info.process_id for info in infos[: min(count.value, room)])


def _devices_of(api: Native, pid: int) -> list[int]:
    """Devices that a process uses; none where it has ended meanwhile."""

    def indices() -> list[int]:
        count = c_uint32()
        api.call("rsmi_compute_process_gpus_get", c_uint32(pid), None, byref(count))
        room = count.value
        used, count = (c_uint32 * room)(), c_uint32(room)
        api.call("rsmi_compute_process_gpus_get", c_uint32(pid), used, byref(count))
        return used[: min(count.value, room)]

    return attempt(indices)[0] or []


def _held_b(device: Device, pid: int) -> int | None:
    def held() -> int:
        info = ProcessInfo()
        device.api.call("rsmi_compute_process_info_by_device_get", c_uint32(pid), c_uint32(device.index), byref(info))
        return int(values.number(info.vram_usage, marks=(MARK_64,)))

    held_b: int | None = attempt(held)[0]
    return held_b
