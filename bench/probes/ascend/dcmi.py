"""DCMI (libdcmi.so) through ctypes: the library started, and its chips behind either generation of calls.

Up to the 910C a chip is (card, device). The 950 refuses those calls (-8255) and has `dcmiv2_*`, where a chip is one number.
Structures and their sources: `abi`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import ProbeError
from bench.probes import native
from bench.probes.ascend import abi
from bench.probes.native import Native
from bench.probes.values import MARK_32, Unavailable, attempt

_LIBRARY = "libdcmi.so"
_DRIVER = "/usr/local/Ascend/driver"
_MOST_CARDS = 64
_MOST_PROCESSES = 256
"""Drivers write up to 64 without being told how many fit."""
_TEXT_B = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One NPU chip: `ids` are what its calls take first. `card` and `place` on it; no card where chips are one flat list."""

    api: Native
    calls: Mapping[str, tuple[str, ...]]
    ids: tuple[int, ...]
    card: int | None = None
    place: int = 0

    def name_of(self, call: str) -> str:
        """The library's name of a call. Raises: Unavailable."""
        names = self.calls.get(call, ())
        for name in names:
            if attempt(partial(self.api.function, name))[1] is None:
                return name
        raise Unavailable(f"{_LIBRARY} has no {names[0] if names else f'call for {call}'}", lasting=True)

    def read(self, call: str, *args: Any) -> None:
        """One call on this chip. Raises: Unavailable, ProbeError."""
        self.api.call(self.name_of(call), *self.ids, *args)

    def number(self, call: str, *args: int, kind: Any = ctypes.c_int) -> int:
        """The number that a call gives. Raises: Unavailable, ProbeError."""
        found = kind()
        self.read(call, *args, ctypes.byref(found))
        return int(found.value)

    def about(self, call: str, kind: type[ctypes.Structure]) -> Any:
        """The structure that a call fills. Raises: Unavailable, ProbeError."""
        found = kind()
        self.read(call, ctypes.byref(found))
        return found

    def card_power(self) -> int:
        """What the microcontroller of the whole card says, in 0.1 W. Raises: Unavailable, ProbeError."""
        found = ctypes.c_int()
        self.api.call(abi.CARD_POWER, self.card, ctypes.byref(found))
        return found.value

    def logic_id(self) -> int:
        """What the runtime's visibility variable calls it. Raises: Unavailable, ProbeError."""
        if self.card is None:
            return self.ids[0]
        found = ctypes.c_int()
        self.api.call("dcmi_get_device_logic_id", ctypes.byref(found), *self.ids)
        return found.value

    def processes(self) -> dict[int, int | None]:
        """Bytes of this chip that each process holds. Raises: Unavailable, ProbeError."""
        found = (abi.ProcessMemory * _MOST_PROCESSES)()
        count = ctypes.c_int()
        self.read("processes", found, ctypes.byref(count))
        return {one.proc_id: int(one.proc_mem_usage) for one in found[: max(0, count.value)]}

    def die(self) -> str:
        """The die's own number, as `NPU-` and five words. Raises: Unavailable, ProbeError."""
        for kind in (abi.DDIE, abi.VDIE) if self.card is None else (abi.VDIE, abi.NDIE):
            found = abi.DieId()
            failed = attempt(partial(self.read, "die", kind, ctypes.byref(found)))[1]
            if failed is None and set(found.soc_die) not in ({0}, {MARK_32}):
                return "NPU-" + "-".join(f"{word:08x}" for word in found.soc_die)
        raise Unavailable("DCMI tells no die number", lasting=True)

    def firmware(self) -> str | None:
        """Version of the firmware. Raises: Unavailable, ProbeError."""
        for component in (abi.HILINK, abi.IMU):
            buffer = (ctypes.c_char * _TEXT_B)()
            if attempt(partial(self.read, "component", component, buffer, _TEXT_B))[1] is None:
                return native.text(buffer)
        raise Unavailable("DCMI tells no firmware version", lasting=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dcmi:
    """The library, started. `failures`: cards whose chips can't be listed, with the reason."""

    chips: tuple[Chip, ...]
    driver: str | None
    failures: Mapping[str, str]


def load(env: Mapping[str, str]) -> Native:
    """The library of the driver that `ASCEND_DRIVER_PATH` names, the loader's, or the installed driver's. Raises: Unavailable."""
    roots = (env.get("ASCEND_DRIVER_PATH"), _DRIVER)
    named, installed = (Path(root) / "lib64/driver" / _LIBRARY if root else None for root in roots)
    candidates = (named, _LIBRARY, installed, Path("/usr/local/dcmi") / _LIBRARY)
    return native.load([candidate for candidate in candidates if candidate], abi.CODES)


def start(api: Native) -> Dcmi:
    """Every NPU chip, by the calls that this driver serves. Raises: Unavailable where it serves neither, ProbeError."""
    try:
        api.call("dcmi_init")
        return _by_card(api)
    except Unavailable as error:
        by_card = error
    try:
        api.call("dcmiv2_init")
        return _flat(api)
    except Unavailable as error:
        raise Unavailable(f"{by_card}; {error}", lasting=by_card.lasting and error.lasting) from error


def _by_card(api: Native) -> Dcmi:
    found = (ctypes.c_int * _MOST_CARDS)()
    count = ctypes.c_int()
    api.call("dcmi_get_card_list", ctypes.byref(count), found, _MOST_CARDS)
    chips: list[Chip] = []
    failures: dict[str, str] = {}
    for card in found[: max(0, count.value)]:
        try:
            chips += _chips_of(api, card)
        except (Unavailable, ProbeError) as error:
            failures[f"card {card}"] = str(error)
    return Dcmi(chips=tuple(chips), driver=_driver(api, "dcmi_get_driver_version"), failures=failures)


def _chips_of(api: Native, card: int) -> list[Chip]:
    count = ctypes.c_int()
    api.call("dcmi_get_device_num_in_card", card, ctypes.byref(count))
    places = (Chip(api=api, calls=abi.CARD_CALLS, ids=(card, place), card=card, place=place) for place in range(count.value))
    return [chip for chip in places if _is_npu(chip)]


def _flat(api: Native) -> Dcmi:
    found = (ctypes.c_int * _MOST_CARDS)()
    count = ctypes.c_int()
    api.call("dcmiv2_get_device_list", found, ctypes.byref(count), _MOST_CARDS)
    chips = (Chip(api=api, calls=abi.FLAT_CALLS, ids=(one,)) for one in found[: max(0, count.value)])
    driver = _driver(api, "dcmiv2_get_driver_version")
    return Dcmi(chips=tuple(chip for chip in chips if _is_npu(chip)), driver=driver, failures={})


def _is_npu(chip: Chip) -> bool:
    """Whether it is no microcontroller and no control CPU. One that does not say is taken for an NPU: a lost one, too."""
    try:
        return chip.number("type") == abi.NPU
    except (Unavailable, ProbeError):
        return True


def _driver(api: Native, name: str) -> str | None:
    buffer = (ctypes.c_char * _TEXT_B)()
    failed = attempt(partial(api.call, name, buffer, _TEXT_B))[1]
    return native.text(buffer) if failed is None else None
