"""Ascend chips through DCMI: who they are, and each quantity with its call.

Power is a chip's. But on a card of two dies (910C) the first die's is the card's, and on a 310P only the card's microcontroller
has any: there the first device of the card carries it and covers the others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.clock import Clock
from bench.errors import ProbeError
from bench.probes import native, values
from bench.probes.ascend import abi, chips, dcmi
from bench.probes.ascend.dcmi import Chip
from bench.probes.background import Poller
from bench.probes.cards import Card, Quantity
from bench.probes.values import Unavailable, attempt, believable_w
from bench.units import BYTES_PER_MIB, NS_PER_S

_CARD_MARKS = (0x7FFD, 0x7FFF, values.MARK_16, values.MARK_32)
"""What the microcontroller gives where it has no reading. Source: the fan control of Huawei's own servers."""
_DEAREST_S = 0.02
_EVERY_S = 1.0
_FIRST_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the library lists. `failures`: what can't be read of it, by its name, with the reason."""

    cards: Sequence[Card]
    failures: Mapping[str, str]
    close: Callable[[], None]


def open_cards(env: Mapping[str, str], clock: Clock) -> Found:
    """Every chip that answers. Raises: Unavailable, ProbeError."""
    started = dcmi.start(dcmi.load(env))
    found: list[Card] = []
    failures = dict(started.failures)
    pollers: list[Poller[float]] = []
    for chip in started.chips:
        try:
            found.append(_card(chip, started.driver, clock, pollers))
        except ProbeError as error:
            failures[_place(chip)] = str(error)

    def close() -> None:
        for poller in pollers:
            poller.close()

    return Found(cards=found, failures=failures, close=close)


def _card(chip: Chip, driver: str | None, clock: Clock, pollers: list[Poller[float]]) -> Card:
    name = attempt(partial(_name, chip))[0]
    return Card(
        index=chips.number(chip.ids[0], chip.place),
        pci=attempt(partial(_pci, chip))[0],
        unique_id=attempt(chip.die)[0],
        name=chips.full_name(name),
        driver=driver,
        firmware=attempt(chip.firmware)[0],
        board=None if chip.card is None else f"card {chip.card}",
        visible_as=attempt(lambda: str(chip.logic_id()))[0],
        quantities={
            **_power(chip, name),
            **_memory(chip),
            "utilisation": _use(chip, clock, pollers),
            "temperature_c": _quantity(chip, "temperature", "C", lambda: values.number(chip.number("temperature"))),
            "clock_mhz": _quantity(chip, "frequency", "MHz", lambda: values.number(chip.number("frequency", abi.AICORE_CLOCK))),
        },
        processes=chip.processes,
        reasons=chips.NEVER_TOLD | _no_power(chip, name),
    )


def _place(chip: Chip) -> str:
    return f"NPU {chip.ids[0]}" if chip.card is None else f"card {chip.card} chip {chip.place}"


def _name(chip: Chip) -> str | None:
    return values.named(native.text(chip.about("chip", abi.ChipInfo).chip_name))


def _pci(chip: Chip) -> str | None:
    at = chip.about("pcie", abi.PcieInfo)
    return values.pci_address(f"{at.domain:04x}:{at.bdf_busid:02x}:{at.bdf_deviceid:02x}.{at.bdf_funcid:x}")


def _quantity(chip: Chip, call: str, unit: str, get: Callable[[], float]) -> Quantity:
    return Quantity(get=get, api=chip.calls[call][0], unit=unit)


def _power(chip: Chip, name: str | None) -> dict[str, Quantity]:
    if chip.place > 0:
        return {}
    if chips.by_microcontroller(name):
        return {"power_w": _deciwatts(abi.CARD_POWER, chip.card_power, _CARD_MARKS)}
    return {"power_w": _deciwatts(chip.calls["power"][0], partial(chip.number, "power"), (values.MARK_16, values.MARK_32))}


def _no_power(chip: Chip, name: str | None) -> dict[str, str]:
    if chip.place == 0:
        return {}
    return {"power_w": chips.CARD_S_ONLY if chips.by_microcontroller(name) else chips.SECOND_DIE}


def _deciwatts(api: str, read: Callable[[], int], marks: tuple[int, ...]) -> Quantity:
    def watts() -> float:
        return believable_w(values.number(read(), marks=marks) / 10, None)

    return Quantity(get=watts, api=api, unit="0.1 W", raw=read)


def _memory(chip: Chip) -> dict[str, Quantity]:
    """Of the HBM where there is any, else of the DDR (310P)."""

    def hbm() -> tuple[int, int]:
        told = chip.about("hbm", abi.HbmInfo)
        return told.memory_size, told.memory_usage

    def ddr() -> tuple[int, int]:
        told = chip.about("ddr", abi.DdrInfo)
        return told.memory_size, told.memory_size - told.memory_available

    has_hbm = attempt(partial(_bytes, hbm, 0))[1] is None
    by_ddr = not has_hbm and attempt(partial(_bytes, ddr, 0))[1] is None
    api, sizes = (chip.calls["ddr"][0], ddr) if by_ddr else (chip.calls["hbm"][0], hbm)
    return {
        "memory_total_b": Quantity(get=partial(_bytes, sizes, 0), api=api, unit="MB"),
        "memory_used_b": Quantity(get=partial(_bytes, sizes, 1), api=api, unit="MB"),
    }


def _bytes(sizes: Callable[[], tuple[int, int]], which: int) -> int:
    told = sizes()
    if not chips.believable_mb(told[0]) or not 0 <= told[1] <= told[0]:
        raise Unavailable(f"{told[1]} of {told[0]} MB is no reading", lasting=False)
    return told[which] * BYTES_PER_MIB


def _use(chip: Chip, clock: Clock, pollers: list[Poller[float]]) -> Quantity:
    """By the newer call, else the older one. Some drivers take 36 ms for it: then a thread asks, and power need not wait."""

    def by_both() -> float:
        return values.share(chip.about("use", abi.MultiUse).aicore_util)

    def by_one() -> float:
        return values.share(chip.number("use_of", abi.AICORE_USE, kind=ctypes.c_uint))

    call, share = ("use", by_both) if attempt(by_both)[1] is None else ("use_of", by_one)
    before_ns = clock.monotonic_ns()
    failed = attempt(share)[1]
    took_s = (clock.monotonic_ns() - before_ns) / NS_PER_S
    if failed is not None or took_s <= _DEAREST_S:
        return _quantity(chip, call, "%", share)
    poller = Poller(f"{_place(chip)} use", partial(_unless_lost, share), _EVERY_S, clock)
    pollers.append(poller)
    attempt(partial(poller.first, _FIRST_S))
    return _quantity(chip, call, "%", lambda: poller.latest().value)


def _unless_lost(read: Callable[[], float]) -> float:
    try:
        return read()
    except ProbeError as error:  # the sampling thread tells of lost devices
        raise Unavailable(str(error), lasting=False) from error
