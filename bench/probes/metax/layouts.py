"""What `mx-smi` prints, read into devices. Pure.

The table changed with 2.1.12, 2.2.8 and 2.2.9: cells and the words in them are known by the headers above them, never by their
place. Since 2.2.9 power stands in a column of the board, which may hold several devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.probes import boxes, tool, values
from bench.probes.tool import Told, whole_lines
from bench.probes.values import Step, Unavailable
from bench.units import BYTES_PER_MIB

_MEMORY = re.compile(r"(\d+)\s*(?:MiB)?\s*/\s*(\d+)\s*(?:MiB)?", re.IGNORECASE)
_SECTION = re.compile(r"GPU#(\d+)\s")
_LISTED = re.compile(r"GPU#(\d+)\s+\S+\s+(\S+)\s+(.+)")
_UUID = re.compile(r"UUID:\s*([^\s)]+)")
_FINER = {
    "power_w": ("power", re.compile(r"\btotal\b.*?([\d.]+\s*m?W)\s*$", re.IGNORECASE)),
    "temperature_c": ("temperature", re.compile(r"\bhotspot\b.*?:\s*([\d.]+\s*C)\s*$", re.IGNORECASE)),
}
_DRIVER = re.compile(r"Driver Version:\s*([^\s|]+)")
_BIOS = re.compile(r"BIOS Version:\s*([^\s|]+)")


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of `mx-smi -L`. `faulty`: why the device can't be used, None where it can."""

    uuid: str | None
    pci: str | None
    faulty: str | None


def table(text: str) -> list[Told]:
    """Devices of `mx-smi` without arguments. Raises: Unavailable where there is no such table."""
    lines = whole_lines(text)
    driver, bios = _first(_DRIVER, lines), _first(_BIOS, lines)
    found: list[Told] = []
    board: str | None = None
    for words in _devices(lines):
        board = words.get("board", board)
        if words.get("gpu", "").isdecimal():
            found.append(_told(words, board, driver, bios))
    if not found:
        raise Unavailable(f"mx-smi's table can't be read: {' '.join(text.split())[:80]!r}", lasting=False)
    return found


def listing(text: str) -> dict[int, Listed]:
    """Devices of `mx-smi -L` by number, faulty ones too."""
    listed = {}
    for found in filter(None, (_LISTED.match(line.strip()) for line in whole_lines(text))):
        number, where, state = found.groups()
        uuid = _UUID.search(state)
        faulty = state.strip() if "not available" in state.lower() else None
        listed[int(number)] = Listed(uuid=uuid[1] if uuid else None, pci=values.pci_address(where), faulty=faulty)
    return listed


def sections(text: str) -> dict[int, dict[str, float]]:
    """By device, what `mx-smi --show-board-power --show-temperature` tells more exactly than the table."""
    steps: dict[int, dict[str, Step]] = {}
    at: dict[str, Step] = {}
    for line in whole_lines(text):
        if begins := _SECTION.match(line):
            at = steps.setdefault(int(begins[1]), {})
        for name, (kind, pattern) in _FINER.items():
            if found := pattern.search(line):
                at[name] = partial(values.quantity, found[1], kind)
    return {number: tool.told(told)[0] for number, told in steps.items()}


def refined(told: Sequence[Told], listed: Mapping[int, Listed], finer: Mapping[int, Mapping[str, float]]) -> list[Told]:
    """The table's devices with their ids, and with finer values of what the table tells too."""
    better = []
    for one in told:
        known = listed.get(one.index)
        more = {name: value for name, value in finer.get(one.index, {}).items() if name in one.values}
        better.append(replace(one, values={**one.values, **more}, unique_id=known.uuid if known else None))
    return better


# --- the table ----------------------------------------------------------------------------------------------------------


def _devices(lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """The words of each block of rows by those of the headers. Every device is a block between rules."""
    headers: list[list[str]] = []
    for block in boxes.blocks("\n".join(lines)):
        if boxes.has(block[0], "bus-id"):
            headers = block
        else:
            yield boxes.under(headers, block)


def _told(words: Mapping[str, str], board: str | None, driver: str | None, bios: str | None) -> Told:
    power = next((word for head, word in words.items() if head.startswith(("pwr", "power"))), "")
    usage, *cap = re.split(r"\s+/\s+" if " / " in power else "/", power)
    steps: dict[str, Step] = {
        "power_w": partial(values.quantity, usage, "power"),
        "power_limit_w": partial(values.quantity, "".join(cap), "power"),
        "temperature_c": partial(values.quantity, words.get("temp"), "temperature"),
        "utilisation": partial(values.quantity, words.get("gpu-util"), "share"),
    }
    if memory := _MEMORY.fullmatch(words.get("memory-usage", "")):
        used, total = (int(size) * BYTES_PER_MIB for size in memory.groups())
        steps |= {"memory_used_b": lambda: used, "memory_total_b": lambda: total}
    found, reasons = tool.told(steps)
    return Told(
        index=int(words["gpu"]),
        pci=values.pci_address(words.get("bus-id")),
        name=values.named(words.get("name")),
        driver=driver,
        firmware=bios,
        board=board,
        values=found,
        reasons=reasons,
    )


def _first(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    return next((found[1] for line in lines if (found := pattern.search(line))), None)
