"""AMD cards through `pyrsmi` (1.x wraps amdsmi, 0.2 wraps rocm_smi): watts, bytes, percent; -1 means that a call failed."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from bench.probes import values
from bench.probes.amd.library import CannotLoad
from bench.probes.cards import Card, Quantity
from bench.probes.values import Unavailable, believable_w


def load() -> Any:
    """`pyrsmi.rocml`, initialised. Raises: CannotLoad."""
    try:
        lib = importlib.import_module("pyrsmi.rocml")
        lib.smi_initialize()
    except Exception as error:  # its import and its start raise whatever their library does
        raise CannotLoad(f"pyrsmi: {type(error).__name__}: {error}") from error
    return lib


def cards(lib: Any) -> list[Card]:
    """Every GPU, in the library's order."""
    return [_card(lib, index) for index in range(int(lib.smi_get_device_count()))]


def _card(lib: Any, index: int) -> Card:
    quantities = {
        "power_w": ("smi_get_device_average_power", "W", lambda value: believable_w(value, None)),
        "memory_used_b": ("smi_get_device_memory_used", "B", int),
        "memory_total_b": ("smi_get_device_memory_total", "B", int),
        "utilisation": ("smi_get_device_utilization", "%", values.share),
    }
    name = lib.smi_get_device_name(index)
    return Card(
        index=index,
        pci=_address(lib.smi_get_device_pci_id(index)),
        name=values.named(name.decode("utf-8", "replace") if isinstance(name, bytes) else name),
        quantities={
            key: Quantity(get=partial(_read, lib, call, index, convert), api=f"pyrsmi {call}", unit=unit)
            for key, (call, unit, convert) in quantities.items()
        },
    )


def _read(lib: Any, call: str, index: int, convert: Any) -> Any:
    value = getattr(lib, call)(index)
    if value == -1:
        raise Unavailable(f"{call} failed", lasting=False)
    return convert(values.number(value))


def _address(bdf: object) -> str | None:
    """From a `BDFID` (domain in bits 32 up) or the library's own union (domain in bits 16 up); the rest is alike."""
    if not isinstance(bdf, int) or bdf < 0:
        return None
    domain = max(bdf >> 32, bdf >> 16 & 0xFFF)
    return f"{domain:04x}:{bdf >> 8 & 0xFF:02x}:{bdf >> 3 & 0x1F:02x}.{bdf & 7}"
