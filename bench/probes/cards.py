"""Devices put together from several ways to the same cards: a vendor's library, the kernel's files, a tool.

Each quantity comes from the first way that has it, and says which one that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from bench.clock import Clock
from bench.errors import ProbeError
from bench.probes.values import attempt
from bench.probes.wire import RawValue
from bench.records import DeviceInfo, ProbeProblem, Quality, Reading, Scope, SensorInfo

EXTRAS = ("memory_used_b", "utilisation", "temperature_c", "clock_mhz", "throttle")
UNTOLD = "no way to this card tells it"
LOST_FIX = "the vendor's tool and dmesg tell more; the other devices are measured"

Get = Callable[[], Any]
Span = Callable[[], tuple[int, int] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity as one way reads it: `get` in our unit, `raw` in the vendor's, `unit`; the vendor's call.

    `span`: when a value that a thread fetches was taken [ns]. `preferred`: comes before what earlier ways tell. The rest as in
    `SensorInfo`.
    """

    get: Get
    api: str
    unit: str
    raw: Get | None = None
    span: Span | None = None
    preferred: bool = False
    averaging_window_s: float | None = None
    gain_error: float | None = None
    wrap_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One logical device (a die, a chip, a partition) as one way sees it.

    `unique_id` becomes its uid where no other device has the same. `board`: a word that all devices of one physical board share.
    `visible_as`: what the vendor's visibility variable calls it, where that is not `index`. `processes` gives process ids and the
    bytes that each holds on the device (None where that is not told). `reasons`: what it will never tell, and why.
    """

    index: int
    pci: str | None = None
    unique_id: str | None = None
    name: str | None = None
    device_id: str | None = None
    driver: str | None = None
    firmware: str | None = None
    scope: Scope = "accelerator"
    quality: Quality = "measured"
    board: str | None = None
    visible_as: str | None = None
    shared: str | None = None
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    processes: Callable[[], Mapping[int, int | None]] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Board:
    """A device to sample. A quantity that is None can't be read. `cards`: how each way sees it, in the order of the ways."""

    info: DeviceInfo
    cards: tuple[Card, ...]
    power: Quantity | None = None
    energy: Quantity | None = None
    extras: dict[str, Quantity] = field(default_factory=dict)

    def quick(self, clock: Clock) -> Reading:
        """Power and energy with stamps around the two calls. Raises: ProbeError when the device is lost."""
        before_ns = clock.monotonic_ns()
        energy_j = attempt(self.energy.get)[0] if self.energy else None
        power_w = attempt(self.power.get)[0] if self.power else None
        after_ns = clock.monotonic_ns()
        taken = self.power.span() if self.power and self.power.span else None
        if taken is not None:
            before_ns, after_ns = taken
        return Reading(uid=self.info.uid, before_ns=before_ns, after_ns=after_ns, power_w=power_w, energy_j=energy_j)

    def sample(self, clock: Clock) -> Reading:
        """All quantities. Raises: ProbeError when the device is lost."""
        reading = self.quick(clock)
        return replace(reading, **{name: attempt(quantity.get)[0] for name, quantity in self.extras.items()})

    def raw(self) -> tuple[RawValue, ...]:
        """Power and energy in the vendor's own units. Raises: ProbeError."""
        found = []
        for name, quantity in (("power_w", self.power), ("energy_j", self.energy)):
            value = attempt(quantity.raw)[0] if quantity and quantity.raw else None
            if quantity is not None and value is not None:
                found.append(RawValue(quantity=name, api=quantity.api, unit=quantity.unit, value=float(value)))
        return tuple(found)

    @property
    def processes(self) -> Callable[[], Mapping[int, int | None]] | None:
        """The first way that lists processes."""
        return next((card.processes for card in self.cards if card.processes is not None), None)

    def without_power(self, why: str, board: str) -> None:
        """This device is measured with another one of its board."""
        self.power = self.energy = None
        self.info = replace(
            self.info,
            board=board,
            power=None,
            energy=None,
            power_reason=why,
            power_limit_w=None,
            reasons={**self.info.reasons, "energy_j": why},
        )


def join(sources: Sequence[Sequence[Card]]) -> list[list[Card]]:
    """The cards of all ways, those of one device together, in the order of the ways.

    A card is known by its PCI address, else by its unique id, else by its number. What only a later way sees comes last.
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
    if (addresses := {c.pci for c in device} - {None}) and card.pci and card.pci not in addresses:
        return False
    if (ids := {c.unique_id for c in device} - {None}) and card.unique_id:
        return card.unique_id in ids
    return True if addresses and card.pci else card.index == device[0].index


def first_of(cards: Iterable[Card], attribute: str) -> Any:
    """The first way's word on a name, id or driver."""
    return next((value for card in cards if (value := getattr(card, attribute)) is not None), None)


def boards(probe: str, label: str, sources: Sequence[Sequence[Card]]) -> tuple[list[Board], list[ProbeProblem]]:
    """Every device that answers, and a problem for each that is lost."""
    devices = join(sources)
    made: list[Board] = []
    problems: list[ProbeProblem] = []
    for index, (cards, uid) in enumerate(zip(devices, _uids(probe, devices), strict=True)):
        try:
            made.append(_board(probe, label, cards, index, uid))
        except ProbeError as error:
            problems.append(ProbeProblem(probe=probe, subject=uid, problem=str(error), fix=error.hint or LOST_FIX))
    return made, problems


def _uids(probe: str, devices: Sequence[Sequence[Card]]) -> list[str]:
    """The unique id where it names one device only, else the PCI address where that does, else the number."""
    ids = [first_of(cards, "unique_id") for cards in devices]
    places = [first_of(cards, "pci") for cards in devices]
    uids = []
    for index, (own, place) in enumerate(zip(ids, places, strict=True)):
        if own and ids.count(own) == 1:
            uids.append(str(own))
        else:
            uids.append(f"{probe}:pci:{place}" if place and places.count(place) == 1 else f"{probe}:{index}")
    return uids


def _board(probe: str, label: str, cards: Sequence[Card], index: int, uid: str) -> Board:
    untold = {name: why for card in reversed(cards) for name, why in card.reasons.items()}
    reasons = dict(untold)
    found = {name: _choose(cards, name, reasons, untold) for name in ("power_w", "energy_j", *EXTRAS)}
    total, limit = (_constant(cards, name, reasons, untold) for name in ("memory_total_b", "power_limit_w"))
    power, energy = found["power_w"], found["energy_j"]
    power_reason = reasons.pop("power_w", UNTOLD) if power is None else None
    info = DeviceInfo(
        uid=uid,
        probe=probe,
        vendor=probe,
        name=first_of(cards, "name") or f"{label} {first_of(cards, 'device_id') or ''}".rstrip(),
        index=index,
        scope=next((card.scope for card in cards if card.scope != "accelerator"), "accelerator"),
        quality=next((card.quality for card in cards if card.quality != "measured"), "measured"),
        board=uid,
        pci=first_of(cards, "pci"),
        driver=first_of(cards, "driver"),
        firmware=first_of(cards, "firmware"),
        visible_as=first_of(cards, "visible_as"),
        shared=first_of(cards, "shared"),
        memory_total_b=None if total is None else int(total),
        power_limit_w=limit,
        power=_sensor(power),
        energy=_sensor(energy),
        power_reason=power_reason,
        reasons=reasons,
    )
    extras = {name: quantity for name in EXTRAS if (quantity := found[name]) is not None}
    return Board(info=info, cards=tuple(cards), power=power, energy=energy, extras=extras)


def _sensor(quantity: Quantity | None) -> SensorInfo | None:
    if quantity is None:
        return None
    return SensorInfo(
        api=quantity.api,
        unit=quantity.unit,
        averaging_window_s=quantity.averaging_window_s,
        gain_error=quantity.gain_error,
        wrap_j=quantity.wrap_j,
    )


def _choose(cards: Sequence[Card], name: str, reasons: dict[str, str], untold: Mapping[str, str]) -> Quantity | None:
    """The first that gives a value now; of the lesser quantities else the first that may give one later."""
    candidates = [quantity for card in cards if (quantity := card.quantities.get(name)) is not None]
    candidates.sort(key=lambda quantity: not quantity.preferred)
    why: list[str] = []
    later: Quantity | None = None
    for candidate in candidates:
        _, reason, lasting = attempt(candidate.get)
        if reason is None:
            reasons.pop(name, None)
            return candidate
        why.append(f"{candidate.api}: {reason}")
        if later is None and not lasting and name in EXTRAS:
            later = candidate
    reasons[name] = "; ".join(why) or untold.get(name, UNTOLD)
    return later


def _constant(cards: Sequence[Card], name: str, reasons: dict[str, str], untold: Mapping[str, str]) -> float | None:
    quantity = _choose(cards, name, reasons, untold)
    return None if quantity is None else float(quantity.get())


def of_one_board(made: Sequence[Board]) -> list[list[Board]]:
    """Devices whose ways name the same physical board."""
    groups: dict[str, list[Board]] = {}
    for board in made:
        if (key := first_of(board.cards, "board")) is not None:
            groups.setdefault(key, []).append(board)
    return [group for group in groups.values() if len(group) > 1]


def gather(group: Sequence[Board], *, repeated: bool = False) -> None:
    """One device of a board measures all of it: the first with power. Where several have their own, each is a board to itself
    (of one board only one would be counted), or belongs to the first where it measures another scope. `repeated`: each tells the
    power of the whole board.
    """
    powered = [board for board in group if board.power is not None or board.energy is not None]
    if not powered:
        return
    primary = powered[0]
    others = [board for board in group if board is not primary]
    if len(powered) > 1 and not repeated:
        for board in others:
            if board not in powered or board.info.scope != primary.info.scope:
                board.info = replace(board.info, board=primary.info.uid)
        return
    primary.info = replace(primary.info, covers=tuple(board.info.uid for board in others))
    why = f"measured with {primary.info.uid}: one sensor for the whole board"
    for board in others:
        board.without_power(why, primary.info.uid)


def lacks(board: Board, quantities: Iterable[str]) -> bool:
    """Whether a device lacks one of these. A counter stands for power."""
    have = {"power_w": board.power or board.energy, **{name: board.extras.get(name) for name in EXTRAS}}
    return any(have.get(name) is None for name in quantities)
