"""Enflame cards through `efsmi`: `-q`, else its table, else one line of `dmon`.

Layouts: `-q` of 1.4 (and its older names of sizes), tables of 1.2, 1.6 and 1.7. Only `-q` tells how much memory is in use in MiB.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence

from bench.clock import Clock
from bench.probes import boxes, values
from bench.probes.card_probe import Opened, Way
from bench.probes.command import output
from bench.probes.tool import Told, first_form, opened, told, whole_lines
from bench.probes.values import Unavailable

_FORMS = (("-q",), (), ("dmon", "-c", "1"))
_DEVICE = re.compile(r"DEV ID\s+(\d+)")
_MEMORY = "device mem info"
_TOTALS = ("total size", "total", "mem size")
_USED = ("used size", "used", "mem usage")
_DRIVER = re.compile(r"Driver Ver:\s*(\d[\d.]*)")
_CARD = re.compile(r"(\d+)\s+(\S.*)")
_ADDRESS = re.compile(r"\b([0-9a-f]{2,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b", re.IGNORECASE)
_NUMBER = r"(?<![^\s/])(\d+(?:\.\d+)?)\s*"
_CELSIUS = re.compile(rf"{_NUMBER}(?:\u2103|\u00b0C|C)(?!\w)")
_WATTS = re.compile(rf"{_NUMBER}W(?!\w)")
_MIB = re.compile(rf"{_NUMBER}MiB(?!\w)")
_PERCENT = re.compile(rf"{_NUMBER}%")


def find(env: Mapping[str, str], clock: Clock) -> Way | None:
    """`efsmi` on the path; None where it is not installed."""
    path = _path(env)
    return None if path is None else lambda: _opened(path, env, clock)


def query(env: Mapping[str, str]) -> list[Told]:
    """What `efsmi -q` says now. Raises: Unavailable."""
    path = _path(env)
    if path is None:
        raise Unavailable("efsmi is not installed", lasting=True)
    return parse(output([path, "-q"], env=env))


def _path(env: Mapping[str, str]) -> str | None:
    return shutil.which("efsmi", path=env.get("PATH"))


def _opened(path: str, env: Mapping[str, str], clock: Clock) -> Opened:
    return opened("efsmi", first_form(_FORMS, lambda form: parse(output([path, *form], env=env))), clock)


def parse(text: str) -> list[Told]:
    """Cards of any of the forms. Raises: Unavailable where it can't be read, or holds none."""
    lines = whole_lines(text)
    found = _from_query(lines) or _from_table(lines, text) or _from_monitor(lines)
    if not found:
        raise Unavailable(f"efsmi's output can't be read: {' '.join(text.split())[:80]!r}", lasting=False)
    return found


# --- efsmi -q -----------------------------------------------------------------------------------------------------------


def _from_query(lines: Sequence[str]) -> list[Told]:
    cards: dict[int, dict[tuple[str, str], str]] = {}
    words: dict[tuple[str, str], str] = {}
    section = ""
    for line in lines:
        key, colon, word = (part.strip() for part in line.partition(":"))
        if (device := _DEVICE.fullmatch(key)) is not None:
            words = cards.setdefault(int(device[1]), {})
        elif colon:
            words[section, key.lower()] = word
        else:
            section = key.lower()
    return [_queried(index, words) for index, words in cards.items()]


def _queried(index: int, words: Mapping[tuple[str, str], str]) -> Told:
    found, reasons = told(
        {
            "power_w": lambda: _quantity(words, "power info", ("cur power",), "power", "W"),
            "power_limit_w": lambda: _quantity(words, "power info", ("power capa",), "power", "W"),
            "memory_total_b": lambda: _quantity(words, _MEMORY, _TOTALS, "memory", "MiB"),
            "memory_used_b": lambda: _quantity(words, _MEMORY, _USED, "memory", "MiB"),
            "temperature_c": lambda: _quantity(words, "temperature info", ("gcu temp",), "temperature", "C"),
            "utilisation": lambda: _quantity(words, "device usage info", ("gcu usage",), "share", "%"),
        }
    )
    place = [words.get(("pcie info", key), "") for key in ("domain", "bus", "dev", "func")]
    return Told(
        index=index,
        pci=values.pci_address("{}:{}:{}.{}".format(*place)),
        unique_id=values.with_prefix("GCU-", words.get(("device info", "dev uuid"))),
        name=values.named(words.get(("device info", "dev name"))),
        driver=values.named(words.get(("driver info", "ver"))),
        values=found,
        reasons=reasons,
    )


def _quantity(words: Mapping[tuple[str, str], str], section: str, keys: Sequence[str], kind: str, unit: str) -> float:
    word = next((words[section, key] for key in keys if (section, key) in words), None)
    if word is None:
        raise Unavailable(f"efsmi -q has no {keys[0]!r}", lasting=False)
    return values.quantity(word.replace("\u2103", "C"), kind, unit)


# --- the table ----------------------------------------------------------------------------------------------------------


def _from_table(lines: Sequence[str], text: str) -> list[Told]:
    driver = _DRIVER.search(text)
    return [card for record in _records(lines) if (card := _boxed(record, driver[1] if driver else None)) is not None]


def _records(lines: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """One for each card: its cells, each with the words above it."""
    header: list[list[str]] = []
    for block in boxes.blocks("\n".join(lines)):
        if boxes.has(block[0], "dev", "name"):
            header = block
        elif header:
            for start in range(0, len(block), len(header)):
                pairs = zip(header, block[start : start + len(header)], strict=False)
                yield [cell for above, row in pairs if len(above) == len(row) for cell in zip(above, row, strict=True)]


def _boxed(record: Sequence[tuple[str, str]], driver: str | None) -> Told | None:
    card = _CARD.fullmatch(_under(record, "name"))
    if card is None:
        return None
    address = _ADDRESS.search(_under(record, "bus-id"))
    found, reasons = told(
        {
            "power_w": lambda: values.quantity(_number(record, "pwr", _WATTS, 2), "power"),
            "power_limit_w": lambda: values.quantity(_number(record, "pwr", _WATTS, 2, 1), "power"),
            "memory_total_b": lambda: values.quantity(_number(record, "mem", _MIB, 1), "memory", "MiB"),
            "temperature_c": lambda: values.quantity(_number(record, "temp", _CELSIUS, 1), "temperature"),
            "utilisation": lambda: values.quantity(_number(record, "dused", _PERCENT, 1), "share"),
        }
    )
    return Told(
        index=int(card[1]),
        pci=values.pci_address(f"{address[1]:0>4}:{address[2]}") if address else None,
        name=values.named(card[2]),
        driver=driver,
        firmware=values.named(_under(record, "fw ver")),
        values=found,
        reasons=reasons,
    )


def _under(record: Sequence[tuple[str, str]], word: str) -> str:
    """The cell below the one that has this word; empty where there is none."""
    return next((cell for above, cell in record if word in above.lower()), "")


def _number(record: Sequence[tuple[str, str]], word: str, unit: re.Pattern[str], many: int, place: int = 0) -> str:
    """One of the `many` numbers with this unit in a cell."""
    cell = _under(record, word)
    found = unit.findall(cell)
    if len(found) != many:
        raise Unavailable(f"no value ({cell!r})", lasting=False)
    return str(found[place])


# --- efsmi dmon ---------------------------------------------------------------------------------------------------------


def _from_monitor(lines: Sequence[str]) -> list[Told]:
    """Two lines of names and units begin with a star. Memory in use is told in tenths of a percent only: it is left out."""
    header = [line.removeprefix("*").lower().split() for line in lines if line.startswith("*")]
    if len(header) < 2 or len(header[0]) != len(header[1]) or "dev" not in header[0]:
        return []
    rows = [line.split() for line in lines if line[:1].isdecimal()]
    cards = [dict(zip(header[0], zip(row, header[1], strict=True), strict=True)) for row in rows if len(row) == len(header[0])]
    return [_monitored(card) for card in cards if card["dev"][0].isdecimal()]


def _monitored(cells: Mapping[str, tuple[str, str]]) -> Told:
    def at(name: str, kind: str) -> float:
        if name not in cells:
            raise Unavailable(f"efsmi dmon has no {name!r}", lasting=False)
        word, unit = cells[name]
        return values.quantity(word, kind, unit)

    found, reasons = told(
        {
            "power_w": lambda: at("pwr", "power"),
            "memory_total_b": lambda: at("mem", "memory"),
            "temperature_c": lambda: at("dtemp", "temperature"),
            "utilisation": lambda: at("dused", "share"),
        }
    )
    return Told(index=int(cells["dev"][0]), values=found, reasons=reasons)
