"""The fake was written from the header, the binding was generated from it: their memory layouts must agree to the byte."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from tests.probes.amd.fake_amdsmi import FakeAmdsmi

_STRUCTS = (
    "power_info",
    "power_cap_info",
    "asic_info",
    "board_info",
    "driver_info",
    "bdf",
    "vram_usage",
    "engine_usage",
    "clk_info",
    "violation_status",
)


@pytest.fixture
def library(amd_rocm: Path) -> Any:
    library = ctypes.CDLL(str(amd_rocm / "lib/libamd_smi.so"))
    library.fake_layout_name.restype = ctypes.c_char_p
    library.fake_layout_value.restype = ctypes.c_ulong
    return library


def _layout(library: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    while (name := library.fake_layout_name(len(found))) is not None:
        found[name.decode()] = library.fake_layout_value(len(found))
    return found


def test_sizes_and_offsets_agree(library: Any, bound: FakeAmdsmi) -> None:
    from amdsmi import amdsmi_wrapper

    layout = _layout(library)
    assert len(layout) > 30
    for name, value in layout.items():
        struct, _, member = name.partition(".")
        kind = getattr(amdsmi_wrapper, struct)
        assert (getattr(kind, member).offset if member else ctypes.sizeof(kind)) == value, name
    assert {name.partition(".")[0] for name in layout} == {f"amdsmi_{struct}_t" for struct in _STRUCTS}


def test_every_symbol_that_the_binding_looks_up_is_there(library: Any, bound: FakeAmdsmi) -> None:
    from amdsmi import amdsmi_wrapper

    wrapper = Path(amdsmi_wrapper.__file__ or "").read_text(encoding="utf-8")
    wanted = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper))
    assert len(wanted) > 150
    assert [name for name in sorted(wanted) if not hasattr(library, name)] == []
