"""Struct layouts of a compiled fake (`layout.h`) beside those of the probe's ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def of_fake(library: Path) -> dict[str, int]:
    """Sizes by struct, and offsets by `struct.member`, as the compiler laid them out."""
    fake = ctypes.CDLL(str(library))
    fake.fake_layout_name.restype = ctypes.c_char_p
    fake.fake_layout_value.restype = ctypes.c_ulong
    found: dict[str, int] = {}
    while (name := fake.fake_layout_name(len(found))) is not None:
        found[name.decode()] = fake.fake_layout_value(len(found))
    return found


def of_ctypes(structs: Mapping[str, type[Any]], names: Mapping[str, int]) -> dict[str, int]:
    """The same of our structures, by the C names of `structs`, for the `names` that a fake hands out."""
    found: dict[str, int] = {}
    for name in names:
        struct, _, member = name.partition(".")
        kind = structs[struct]
        found[name] = getattr(kind, member).offset if member else ctypes.sizeof(kind)
    return found
