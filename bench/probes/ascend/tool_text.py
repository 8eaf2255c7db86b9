"""What `npu-smi` prints, read by the words of its headers: the table of `npu-smi info` in the layouts of 21 to 26, the lines of
`info -t common`, and the list of `info -m`. Pure.

A device has two rows, and each cell of a row holds several columns: `101.4   38   0    / 0`. A line that was cut off is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from bench.probes import boxes
from bench.probes.ascend import chips
from bench.probes.tool import Told, told, whole_lines
from bench.probes.values import Step, Unavailable, named, pci_address, quantity
from bench.units import BYTES_PER_MIB

_VERSION = re.compile(r"\bVersion:\s*(\S+)")
_REAL_POWER = ("npu real-time power", "power dissipation")
"""Labels of power that is measured. `Rated Power Dissipation` is not."""

Place = tuple[int, int]
"""Numbers of the card and of the chip on it."""
Cell = tuple[str, str | None]
"""A text, and the unit that its header names."""
Row = Mapping[str, Cell]
"""One device: its cells by their columns' names, in lower case and without units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """`info -t common` of one card: the cells of each chip, and power by its microcontroller, or why that is not told."""

    chips: Mapping[int, Row] = field(default_factory=dict)
    card_power: Cell | None = None
    failure: str = "npu-smi info -t common tells none"


def parse(text: str, logic: Mapping[Place, str] | None = None, commons: Mapping[int, Common] | None = None) -> list[Told]:
    """Every device of `npu-smi info`. `logic`: their logic ids; `commons`: what `-t common` says of cards.

    Raises: Unavailable where there is none.
    """
    rows = list(_devices(text))
    if not rows:
        raise Unavailable(f"npu-smi info lists no device: {' '.join(text.split())[-160:]!r}", lasting=False)
    driver = _VERSION.search(text)
    return [_told(row, driver[1] if driver else None, logic or {}, commons or {}) for row in rows]


def cards_by_microcontroller(text: str) -> list[int]:
    """Cards whose power only `info -t common` tells."""
    return sorted({int(row["npu"][0]) for row in _devices(text) if chips.by_microcontroller(_name(row))})


def parse_common(text: str) -> Common:
    """`info -t common -i CARD`."""
    found: dict[int, dict[str, Cell]] = {}
    chip: int | None = None
    power: Cell | None = None
    for line in whole_lines(text):
        label, colon, value = (part.strip() for part in line.partition(":"))
        name = _column(label)
        if name == "chip id" and value.isdecimal():
            chip = int(value)
        elif name == "chip name":
            chip = None  # lines of the microcontroller follow
        elif colon and chip is not None:
            found.setdefault(chip, {})[name] = (value, _unit(label))
        elif name in _REAL_POWER:
            power = (value, _unit(label))
    return Common(chips=found, card_power=power)


def parse_mapping(text: str) -> dict[Place, str]:
    """Logic ids of `npu-smi info -m`. The 950 has no column of them: there the runtime goes by the physical id."""
    found: dict[Place, str] = {}
    header: list[str] = []
    for line in whole_lines(text):
        cells = [cell.lower() for cell in re.split(r"\s{2,}|\t", line.strip())]
        if {"npu id", "chip id"} <= set(cells):
            header = cells
            continue
        row = dict(zip(header, cells, strict=False))
        card, chip = row.get("npu id", ""), row.get("chip id", "")
        logic = row.get("chip logic id", row.get("chip phy-id", ""))
        if card.isdecimal() and chip.isdecimal() and logic.isdecimal():
            found[int(card), int(chip)] = logic
    return found


# --- the table ----------------------------------------------------------------------------------------------------------


def _devices(text: str) -> Iterator[Row]:
    """The rows of each device, from their header to that of the processes."""
    headers: list[list[str]] = []
    for block in boxes.blocks(text):
        if boxes.has(block[0], "Process"):
            return
        if boxes.has(block[0], "NPU", "Power") and any(boxes.has(row, "Chip", "Bus-Id") for row in block[1:]):
            headers = block
        elif headers and len(block) % len(headers) == 0:
            for start in range(0, len(block), len(headers)):
                words = boxes.under(headers, block[start:])
                row = {_column(heading): (text, _unit(heading)) for heading, text in words.items()}
                if all(row.get(name, ("", None))[0].isdecimal() for name in ("npu", "chip")):
                    yield row


def _column(label: str) -> str:
    """`power` of `Power(W)`."""
    return label.partition("(")[0].strip().lower()


def _unit(label: str) -> str | None:
    """`W` of `Power(W)`."""
    return label.partition("(")[2].partition(")")[0].strip() or None


# --- one device ---------------------------------------------------------------------------------------------------------


def _told(row: Row, driver: str | None, logic: Mapping[Place, str], commons: Mapping[int, Common]) -> Told:
    card, chip = int(row["npu"][0]), int(row["chip"][0])
    found, reasons = told(_steps(row, chip, commons.get(card, Common())))
    return Told(
        index=chips.number(card, chip),
        pci=pci_address(row["bus-id"][0]) if "bus-id" in row else None,
        name=chips.full_name(_name(row)),
        driver=driver,
        board=f"card {card}",
        visible_as=logic.get((card, chip), row["device"][0] if "device" in row else None),
        values=found,
        reasons={**chips.NEVER_TOLD, **reasons},
    )


def _steps(row: Row, chip: int, common: Common) -> dict[str, Step]:
    return {
        "power_w": partial(_watts, row, chip, common),
        "memory_used_b": lambda: _memory(row)[0],
        "memory_total_b": lambda: _memory(row)[1],
        "utilisation": partial(_value, row, "aicore", "share"),
        "temperature_c": partial(_value, row, "temp", "temperature"),
        "clock_mhz": partial(_value, common.chips.get(chip, {}), "aicore curfreq", "clock"),
    }


def _name(row: Row) -> str | None:
    return named(row["name"][0]) if "name" in row else None


def _watts(row: Row, chip: int, common: Common) -> float:
    if chips.by_microcontroller(_name(row)):
        if chip > 0 or common.card_power is None:
            raise Unavailable(chips.CARD_S_ONLY if chip > 0 else f"{chips.CARD_S_ONLY}: {common.failure}", lasting=False)
        row = {"power": common.card_power}
    elif chip > 0:
        raise Unavailable(chips.SECOND_DIE, lasting=True)
    return _value(row, "power", "power")


def _memory(row: Row) -> tuple[float, float]:
    """Bytes used and in all: of the HBM where there is any, else of the DDR."""
    for name in ("hbm-usage", "memory-usage"):
        text, unit = row.get(name, ("0/0", None))
        used, _, total = text.partition("/")
        used_b, total_b = (quantity(part, "memory", unit or "MB") for part in (used, total))
        if total_b > 0:
            break
    if not (chips.believable_mb(total_b / BYTES_PER_MIB) and used_b <= total_b):
        raise Unavailable(f"memory of {text} {unit} is no reading", lasting=False)
    return used_b, total_b


def _value(row: Row, name: str, kind: str) -> float:
    if name not in row:
        raise Unavailable(f"npu-smi tells no {name}", lasting=False)
    text, unit = row[name]
    return quantity(text, kind, unit)
