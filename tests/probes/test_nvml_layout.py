"""The fake and the binding were written from the header independently: their memory layouts must agree to the byte."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml
import pytest

_BINDING = {
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlValue_t": pynvml.c_nvmlValue_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_v3_t,
}


@pytest.fixture
def library(nvml_library: Path) -> Any:
    library = ctypes.CDLL(str(nvml_library))
    library.fake_layout_name.restype = ctypes.c_char_p
    library.fake_layout_value.restype = ctypes.c_ulong
    return library


def _layout(library: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    while (name := library.fake_layout_name(len(found))) is not None:
        found[name.decode()] = library.fake_layout_value(len(found))
    return found


def test_sizes_and_offsets_agree(library: Any) -> None:
    layout = _layout(library)
    assert len(layout) > 15
    for name, value in layout.items():
        struct, _, member = name.partition(".")
        kind = _BINDING[struct]
        assert (getattr(kind, member).offset if member else ctypes.sizeof(kind)) == value, name


def test_every_structure_is_checked(library: Any) -> None:
    assert {name.partition(".")[0] for name in _layout(library)} == set(_BINDING)


def test_the_version_word_is_the_size_and_the_number(library: Any) -> None:
    assert library.fake_memory_v2_version() == pynvml.nvmlMemory_v2
