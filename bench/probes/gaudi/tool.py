"""Gaudi cards through `hl-smi`: its CSV (`-Q`), else its table.

Source: the vendor's page on hl-smi, and outputs of 1.7, 1.18 and 1.22. Power in watts, memory in MiB, temperature in degrees C.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from bench.clock import Clock
from bench.probes import boxes, csv_rows, values
from bench.probes.boxes import has
from bench.probes.card_probe import Opened, Way
from bench.probes.command import output
from bench.probes.csv_rows import word
from bench.probes.gaudi.library import busy_share, driver_name
from bench.probes.tool import Told, first_form, opened, told, whole_lines
from bench.probes.values import Step, Unavailable

_COLUMNS = "index,module_id,uuid,bus_id,name,driver_version,memory.total,memory.used,power.draw,temperature.aip,utilization.aip"
_FORMS = (
    ("-Q", f"{_COLUMNS},power.max", "-f", "csv"),
    ("-Q", _COLUMNS, "-f", "csv"),  # for tools that refuse a list with a column they don't know
    (),
)
_SOURCES = {
    "power_w": ("power.draw", "power", "W"),
    "power_limit_w": ("power.max", "power", "W"),
    "memory_total_b": ("memory.total", "memory", "MiB"),
    "memory_used_b": ("memory.used", "memory", "MiB"),
    "temperature_c": ("temperature.aip", "temperature", "C"),
    "utilisation": ("utilization.aip", "share", "%"),
}
_DRIVER = re.compile(r"Driver Version:\s*(\S+)")
_CARD = re.compile(r"(\d+)\s+(\S+).*")
_PAIR = re.compile(r"([^\s/]+)\s*/\s*([^\s/]+)$")
_CELSIUS = re.compile(r"(\d+) ?C\b")
_PERCENT = re.compile(r"(\d+) ?%")


def find(env: Mapping[str, str], clock: Clock) -> Way | None:
    """`hl-smi` on the path; None where it is not installed."""
    path = shutil.which("hl-smi", path=env.get("PATH"))
    return None if path is None else lambda: _opened(path, env, clock)


def _opened(path: str, env: Mapping[str, str], clock: Clock) -> Opened:
    """The tool writes logs and fails where it can't: it gets a folder of its own."""
    logs = tempfile.TemporaryDirectory(prefix="bench-hl-smi-")
    apart = {**env, "HABANA_LOGS": logs.name}
    try:
        found = opened("hl-smi", first_form(_FORMS, lambda form: parse(output([path, *form], env=apart))), clock)
    except Unavailable:
        logs.cleanup()
        raise

    def close() -> None:
        found.close()
        logs.cleanup()

    return replace(found, close=close)


def parse(text: str) -> list[Told]:
    """Cards of a CSV with its header, or of the table. Raises: Unavailable."""
    if any(line.startswith("|") for line in whole_lines(text)):
        return _from_table(text)
    found = [card for row in csv_rows.rows(text, "index") if (card := _from_row(row)) is not None]
    if not found:
        raise Unavailable("hl-smi lists no card", lasting=False)
    return found


def _from_row(row: csv_rows.Row) -> Told | None:
    if not row["index"].text.isdecimal():
        return None
    found, reasons = _measured(csv_rows.steps(row, _SOURCES))
    return Told(
        index=int(row["index"].text),
        pci=values.pci_address(word(row, "bus_id")),
        unique_id=word(row, "uuid"),
        name=word(row, "name"),
        driver=driver_name(word(row, "driver_version")),
        visible_as=word(row, "module_id"),
        values=found,
        reasons=reasons,
    )


def _from_table(text: str) -> list[Told]:
    """Two lines a card under two lines of header: columns by the words there, values in them by their units."""
    lines = whole_lines(text)
    driver = next((found[1] for line in lines if (found := _DRIVER.search(line))), None)
    blocks = list(boxes.blocks("\n".join(lines)))
    header = next((block for block in blocks if len(block) == 2 and has(block[0], "AIP", "Name") and has(block[1], "Pwr")), None)
    if header is None:
        raise Unavailable(f"hl-smi's output can't be read: {' '.join(text.split())[:80]!r}", lasting=False)
    return [card for block in blocks if (card := _from_block(header, block, driver)) is not None]


def _from_block(header: list[list[str]], block: list[list[str]], driver: str | None) -> Told | None:
    """None for a block that is no card: the header, the processes, a card that was cut off."""
    if [len(row) for row in block] != [len(row) for row in header]:
        return None
    cells = {
        word: cell
        for row, names in zip(block, header, strict=True)
        for cell, name in zip(row, names, strict=True)
        for word in name.split()
    }
    card = _CARD.fullmatch(cells["Name"])
    if card is None:
        return None
    power, memory = _PAIR.search(cells.get("Pwr:Usage/Cap", "")), _PAIR.search(cells.get("Memory-Usage", ""))
    steps: dict[str, Step] = {
        "power_w": partial(_part, power, 1, "power", "W"),
        "power_limit_w": partial(_part, power, 2, "power", "W"),
        "memory_used_b": partial(_part, memory, 1, "memory", "MiB"),
        "memory_total_b": partial(_part, memory, 2, "memory", "MiB"),
        "temperature_c": partial(_part, _CELSIUS.search(cells.get("Temp", "")), 1, "temperature", "C"),
        "utilisation": partial(_part, _PERCENT.search(cells.get("AIP-Util", "")), 1, "share", "%"),
    }
    found, reasons = _measured(steps)
    place = cells.get("Bus-Id", "").partition(" ")[0]
    return Told(
        index=int(card[1]),
        pci=values.pci_address(place),
        name=values.named(card[2]),
        driver=driver_name(driver),
        values=found,
        reasons=reasons,
    )


def _part(found: re.Match[str] | None, group: int, kind: str, unit: str) -> float:
    if found is None:
        raise Unavailable("hl-smi's table does not tell it", lasting=False)
    return values.quantity(found[group], kind, unit)


def _measured(steps: Mapping[str, Step]) -> tuple[dict[str, float], dict[str, str]]:
    """The same, where somewhat more than 100% busy is wholly busy."""
    if "utilisation" not in steps:
        return told(steps)
    return told({**steps, "utilisation": lambda: busy_share(steps["utilisation"]() * 100)})
