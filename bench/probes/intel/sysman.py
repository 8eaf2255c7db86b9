"""Level Zero's loader, and the three ways in which Sysman hands things out: handles, structures, lists of structures."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_uint32, c_void_p
from typing import TypeVar

from bench.probes import native
from bench.probes.native import Codes, Native

LIBRARY = "BENCH_ZE_LOADER_LIBRARY"
"""Environment: path of the loader to load, and no other."""
_LOADER = "libze_loader.so.1"
_NAMES = {
    0x70000001: "device lost",
    0x70000006: "device requires a reset",
    0x70000007: "device is in a low power state",
    0x70010000: "insufficient permissions",
    0x70010001: "not available",
    0x70020000: "a dependency is unavailable",
    0x78000001: "no Level Zero driver is initialised",
    0x78000002: "unsupported version",
    0x78000003: "unsupported feature",
    0x78000004: "invalid argument",
    0x7FFFFFFE: "unknown error",
}
_CODES = Codes(
    names={code: f"{name}, {code:#x}" for code, name in _NAMES.items()},
    lost=frozenset({0x70000001, 0x70000006}),
    lasting=frozenset({0x70010000, 0x70020000, 0x78000001, 0x78000002, 0x78000003, 0x78000004}),
)

Struct = TypeVar("Struct", bound=ctypes.Structure)


def load(env: Mapping[str, str]) -> Native:
    """The loader, with its driver started. Raises: Unavailable, ProbeError."""
    api = native.load([env.get(LIBRARY) or _LOADER], _CODES)
    api.call("zesInit", c_uint32(0))
    return api


def handles(api: Native, name: str, *owner: c_void_p) -> list[c_void_p]:
    """What `name` lists of `owner`. Raises: Unavailable, ProbeError."""
    count = c_uint32(0)
    api.call(name, *owner, byref(count), None)
    found = (c_void_p * count.value)()
    api.call(name, *owner, byref(count), found)
    return [c_void_p(handle) for handle in found[: count.value]]


def told(api: Native, name: str, owner: c_void_p, kind: type[Struct]) -> Struct:
    """What `name` tells of `owner`, a structure with `STYPE`. Raises: Unavailable, ProbeError."""
    found = kind(stype=kind.STYPE)
    api.call(name, owner, byref(found))
    return found


def listed(api: Native, name: str, owner: c_void_p, kind: type[Struct]) -> list[Struct]:
    """The structures that `name` lists of `owner`. Raises: Unavailable, ProbeError."""
    count = c_uint32(0)
    api.call(name, owner, byref(count), None)
    found = (kind * count.value)()
    for one in found:
        one.stype = kind.STYPE
    api.call(name, owner, byref(count), found)
    return list(found[: count.value])
