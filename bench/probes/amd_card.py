"""What the ways to an AMD card have in common, and devices put together from them.

Each quantity comes from the first way that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.clock import Clock
from bench.probes.values import attempt
from bench.records import DeviceInfo, Reading, Scope, SensorInfo

EXTRAS = ("memory_used_b", "utilisation", "temperature_c", "clock_mhz", "throttle")
_PAIRED = ("MI250",)
"""Two dies on one board, one power sensor: the primary die's reading is both."""
_PAIRED_IDS = ("0x7408", "0x740c")
_NO_SOURCE = "neither ROCm's library nor the kernel's files tell it"

Get = Callable[[], Any]
Span = Callable[[], tuple[int, int] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity as one source reads it: `get` in our unit; the vendor's call and its raw unit. `span`: when a value that a
    thread fetches was taken [ns].
    """

    get: Get
    api: str
    unit: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One logical device as one source sees it."""

    index: int
    pci: str | None = None
    unique_id: str | None = None
    name: str | None = None
    device_id: str | None = None
    driver: str | None = None
    apu: bool = False
    quantities: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Board:
    """A device to sample. A quantity that is None can't be read."""

    info: DeviceInfo
    power: Quantity | None = None
    energy: Quantity | None = None
    extras: dict[str, Quantity] = field(default_factory=dict)

    def sample(self, clock: Clock) -> Reading:
        """Stamps stand around the power and energy calls. Raises: ProbeError when the device is lost."""
        before_ns = clock.monotonic_ns()
        energy_j = attempt(self.energy.get)[0] if self.energy else None
        power_w = attempt(self.power.get)[0] if self.power else None
        after_ns = clock.monotonic_ns()
        rest = {name: attempt(quantity.get)[0] for name, quantity in self.extras.items()}
        taken = self.power.span() if self.power and self.power.span else None
        if taken is not None:
            before_ns, after_ns = taken
        return Reading(uid=self.info.uid, before_ns=before_ns, after_ns=after_ns, power_w=power_w, energy_j=energy_j, **rest)


def join(sources: Sequence[Sequence[Card]]) -> list[list[Card]]:
    """The cards of all sources, those of one device together, in the order of the sources.

    A card is known by its PCI address, else by its unique id, else by its number. What only a later source sees comes last.
    """
    devices: list[list[Card]] = []
    for cards in sources:
        known = list(devices)
        for card in cards:
            same = next((device for device in known if _is_same(device, card)), None)
            if same is None:
                devices.append([card])
            else:
                known.remove(same)
                same.append(card)
    return devices


def _is_same(device: Sequence[Card], card: Card) -> bool:
    addresses, ids = {c.pci for c in device} - {None}, {c.unique_id for c in device} - {None}
    if card.pci and addresses:
        return card.pci in addresses
    if card.unique_id and ids:
        return card.unique_id in ids
    return card.index == device[0].index


def first_of(cards: Iterable[Card], attribute: str) -> Any:
    """The first source's word on a name, id or driver."""
    return next((value for card in cards if (value := getattr(card, attribute)) is not None), None)


def boards(sources: Sequence[Sequence[Card]]) -> list[Board]:
    """Every device, with boards of two dies or several partitions put together. Raises: ProbeError for a lost device."""
    devices = join(sources)
    uids = _uids(devices)
    made = [_board(cards, index, uid) for index, (cards, uid) in enumerate(zip(devices, uids, strict=True))]
    for group in (*_partitions(made), *_pairs(made, devices)):
        _gather(group)
    return made


def _uids(devices: Sequence[Sequence[Card]]) -> list[str]:
    """`GPU-<unique id>` as ROCr writes it where that names one device only, else the PCI address."""
    ids = [first_of(cards, "unique_id") for cards in devices]
    places = [first_of(cards, "pci") or str(index) for index, cards in enumerate(devices)]
    return [f"GPU-{own}" if own and ids.count(own) == 1 else f"amd:pci:{place}" for own, place in zip(ids, places, strict=True)]


def _board(cards: Sequence[Card], index: int, uid: str) -> Board:
    reasons: dict[str, str] = {}
    apu = any(card.apu for card in cards)
    found = {name: _choose(_ranked(cards, name, apu=apu), name, reasons) for name in ("power_w", "energy_j", *EXTRAS)}
    total, limit = (_constant(cards, name, reasons, apu=apu) for name in ("memory_total_b", "power_limit_w"))
    power, energy = found["power_w"], found["energy_j"]
    power_reason = reasons.pop("power_w", _NO_SOURCE) if power is None else None
    if apu:
        reasons["memory"] = "unified with the host: carve-out and GTT together"
    scope: Scope = "module" if apu else "accelerator"
    info = DeviceInfo(
        uid=uid,
        probe="amd",
        vendor="amd",
        name=first_of(cards, "name") or f"AMD GPU {first_of(cards, 'device_id') or ''}".rstrip(),
        index=index,
        scope=scope,
        board=uid,
        pci=first_of(cards, "pci"),
        driver=first_of(cards, "driver"),
        memory_total_b=None if total is None else int(total),
        power_limit_w=limit,
        power=_sensor(power),
        energy=_sensor(energy),
        power_reason=power_reason,
        reasons=reasons,
    )
    extras = {name: quantity for name in EXTRAS if (quantity := found[name]) is not None}
    return Board(info=info, power=power, energy=energy, extras=extras)


def _sensor(quantity: Quantity | None) -> SensorInfo | None:
    return None if quantity is None else SensorInfo(api=quantity.api, unit=quantity.unit)


def _ranked(cards: Sequence[Card], name: str, *, apu: bool) -> list[Quantity]:
    """Candidates for a quantity. Of an APU the library knows the carve-out only: the kernel's files come first."""
    found = [quantity for card in cards if (quantity := card.quantities.get(name)) is not None]
    if apu and name.startswith("memory"):
        found.sort(key=lambda quantity: "gtt" not in quantity.api)
    return found


def _choose(candidates: Sequence[Quantity], name: str, reasons: dict[str, str]) -> Quantity | None:
    """The first that gives a value now; of the lesser quantities else the first that may give one later."""
    why: list[str] = []
    later: Quantity | None = None
    for candidate in candidates:
        _, reason, lasting = attempt(candidate.get)
        if reason is None:
            return candidate
        why.append(f"{candidate.api}: {reason}")
        if later is None and not lasting and name in EXTRAS:
            later = candidate
    reasons[name] = "; ".join(why) or _NO_SOURCE
    return later


def _constant(cards: Sequence[Card], name: str, reasons: dict[str, str], *, apu: bool) -> float | None:
    quantity = _choose(_ranked(cards, name, apu=apu), name, reasons)
    return None if quantity is None else float(quantity.get())


# --- boards of several devices ----------------------------------------------------------------------------------------


def _partitions(made: Sequence[Board]) -> list[list[Board]]:
    """Devices that share bus and slot are partitions of one accelerator (DPX, CPX): functions of one PCI device."""
    slots: dict[str, list[Board]] = {}
    for board in made:
        if board.info.pci is not None:
            slots.setdefault(board.info.pci.rpartition(".")[0], []).append(board)
    return [group for group in slots.values() if len(group) > 1]


def _pairs(made: Sequence[Board], devices: Sequence[Sequence[Card]]) -> list[list[Board]]:
    """Neighbouring dies of MI250 boards."""
    dies = [
        board
        for board, cards in zip(made, devices, strict=True)
        if any(part in board.info.name for part in _PAIRED) or first_of(cards, "device_id") in _PAIRED_IDS
    ]
    return [list(pair) for pair in zip(dies[::2], dies[1::2], strict=False)]


def _gather(group: Sequence[Board]) -> None:
    """One device of the group measures all of it: the first with power. Where each has its own, each stays by itself."""
    powered = [board for board in group if board.power is not None]
    if len(powered) != 1:
        return
    primary = powered[0]
    others = [board for board in group if board is not primary]
    primary.info = replace(primary.info, covers=tuple(board.info.uid for board in others))
    for board in others:
        why = f"measured with {primary.info.uid}: one sensor for the whole board"
        board.power = board.energy = None
        board.info = replace(
            board.info,
            board=primary.info.uid,
            power=None,
            energy=None,
            power_reason=why,
            power_limit_w=None,
            reasons={**board.info.reasons, "energy_j": why},
        )


def needs(board: Board, quantities: Iterable[str]) -> bool:
    """Whether a device lacks one of these, which another source may have."""
    have = {"power_w": board.power, **{name: board.extras.get(name) for name in EXTRAS}}
    return any(have.get(name) is None for name in quantities)
