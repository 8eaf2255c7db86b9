"""Cambricon cards through `cnmon`: its table, and the file that `cnmon info -j` writes into the folder where it runs.

Layouts: the tables of cnmon 4.20 and 5.10. Of the file only the keys that public parsers read are known; power is looked for
where the same command without -j prints it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.clock import Clock
from bench.probes import boxes, values
from bench.probes.card_probe import Way
from bench.probes.command import output
from bench.probes.tool import Told, opened, told, whole_lines
from bench.probes.values import Unavailable, attempt

_INFO = ("info", "-j")
_FILE = "cnmon_info.json"
_SIZE = r"(\d+(?:\.\d+)?|N/A)(?:\s?([mk]?W|[KMG]?i?B)\b)?"
_PAIR = re.compile(rf"{_SIZE}\s*/\s*{_SIZE}")
"""`106 W/ 250 W`: used and total."""
_DRIVER = re.compile(r"\bDriver\s+v(\d[\d.]*)")

Record = dict[str, str]
"""Words under the words of the header, which are in lower case."""


def find(env: Mapping[str, str], clock: Clock) -> Way | None:
    """`cnmon` on the path; None where it is not installed."""
    path = shutil.which("cnmon", path=env.get("PATH"))
    return None if path is None else lambda: opened("cnmon", _Cnmon(path, env).read, clock)


class _Cnmon:
    """The tool. UUIDs stand only in the file: it is asked for once."""

    def __init__(self, path: str, env: Mapping[str, str]) -> None:
        self._path = path
        self._env = env
        self._named: Mapping[int, Told] | None = None

    def read(self) -> list[Told]:
        try:
            found = parse(output([self._path], env=self._env))
        except Unavailable:
            return self._info()
        if self._named is None:
            self._named = {one.index: one for one in attempt(self._info)[0] or ()}
        return [_with_names(one, self._named.get(one.index)) for one in found]

    def _info(self) -> list[Told]:
        with tempfile.TemporaryDirectory(prefix="bench-cnmon-") as folder:
            why = attempt(partial(output, [self._path, *_INFO], env=self._env, cwd=folder))[1]
            try:
                text = (Path(folder) / _FILE).read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                raise Unavailable(why or f"cnmon {' '.join(_INFO)} wrote no {_FILE}", lasting=False) from error
        return parse_info(text)


def _with_names(one: Told, named: Told | None) -> Told:
    if named is None or (named.pci and one.pci and named.pci != one.pci):
        return one
    return replace(one, unique_id=named.unique_id, pci=one.pci or named.pci)


# --- the table ----------------------------------------------------------------------------------------------------------


def parse(text: str) -> list[Told]:
    """Cards of the table. Raises: Unavailable where it can't be read, or holds none."""
    found = [_from_record(record, text) for record in _records(whole_lines(text))]
    if not found:
        raise Unavailable(f"cnmon's table can't be read: {' '.join(text.split())[:80]!r}", lasting=False)
    return found


def _records(lines: Sequence[str]) -> Iterator[Record]:
    """One for each card: its rows under those of the header."""
    header: list[list[str]] = []
    for block in boxes.blocks("\n".join(lines)):
        if boxes.has(block[0], "process"):
            return
        if boxes.has(block[0], "card", "name"):
            header = block
        elif header:
            for start in range(0, len(block), len(header)):
                record = _record(header, block[start : start + len(header)])
                if record.get("card", "").isdecimal():
                    yield record


def _record(header: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> Record:
    """A cell that has not one word for each word above it is left out: which belongs where is then not known."""
    record: Record = {}
    for names, row in zip(header, rows, strict=False):
        if len(names) != len(row):
            continue
        for above, cell in zip(names, row, strict=True):
            words = (_PAIR.sub(_without_blanks, cell) if "Usage" in above else cell).split()
            if len(words) == len(above.split()):
                record |= dict(zip(above.lower().split(), words, strict=True))
    return record


def _without_blanks(pair: re.Match[str]) -> str:
    return "".join(pair[0].split())


def _from_record(record: Record, text: str) -> Told:
    driver = _DRIVER.search(text)
    found, reasons = told(
        {
            "power_w": lambda: _of_pair(record, "pwr:usage/cap", 0, "power", "W"),
            "power_limit_w": lambda: _of_pair(record, "pwr:usage/cap", 1, "power", "W"),
            "memory_used_b": lambda: _of_pair(record, "memory-usage", 0, "memory", "MiB"),
            "memory_total_b": lambda: _of_pair(record, "memory-usage", 1, "memory", "MiB"),
            "utilisation": lambda: values.quantity(_word(record, "util"), "share"),
            "temperature_c": lambda: values.quantity(_word(record, "temp"), "temperature"),
        }
    )
    return Told(
        index=int(record["card"]),
        pci=values.pci_address(record.get("bus-id")),
        name=values.named(record.get("name")),
        driver=_version(record.get("driver") or (driver[1] if driver else None)),
        firmware=_version(record.get("firmware")),
        values=found,
        reasons=reasons,
    )


def _word(record: Record, name: str) -> str:
    word = record.get(name)
    if word is None:
        raise Unavailable(f"the table has no word under {name!r}", lasting=False)
    return word


def _of_pair(record: Record, name: str, place: int, kind: str, unit: str) -> float:
    """One side of `106W/250W`."""
    found = _PAIR.fullmatch(_word(record, name))
    if found is None:
        raise Unavailable(f"no pair ({record[name]!r})", lasting=False)
    return values.quantity(found[2 * place + 1] + (found[2 * place + 2] or ""), kind, unit)


def _version(text: str | None) -> str | None:
    named = values.named(text)
    return named.removeprefix("v") if named else None


# --- the file -----------------------------------------------------------------------------------------------------------


def parse_info(text: str) -> list[Told]:
    """Cards of `cnmon_info.json`. Raises: Unavailable where it can't be read, or holds none."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"{_FILE} can't be read: {error}", lasting=False) from error
    listed = whole.get("CnmonInfo") if isinstance(whole, dict) else None
    found = [_from_info(one) for one in listed or () if isinstance(one, dict) and str(one.get("CardNum")).isdecimal()]
    if not found:
        raise Unavailable(f"{_FILE} lists no card", lasting=False)
    return found


def _from_info(one: Mapping[str, Any]) -> Told:
    def at(group: str, key: str) -> Any:
        inside = one.get(group)
        return inside.get(key) if isinstance(inside, dict) else None

    found, reasons = told(
        {
            "power_w": lambda: values.quantity(at("Power", "Usage"), "power", "W"),
            "power_limit_w": lambda: values.quantity(at("Power", "Cap"), "power", "W"),
            "memory_used_b": lambda: values.quantity(at("PhysicalMemUsage", "Used"), "memory", "MiB"),
            "memory_total_b": lambda: values.quantity(at("PhysicalMemUsage", "Total"), "memory", "MiB"),
            "utilisation": lambda: values.quantity(at("Utilization", "MLUAverage"), "share"),
            "temperature_c": lambda: values.quantity(at("Temperature", "Chip"), "temperature"),
        }
    )
    place = [str(at("PCI", key)) for key in ("DomainID", "Bus", "Device", "Function")]
    return Told(
        index=int(one["CardNum"]),
        pci=values.pci_address("{}:{}:{}.{}".format(*place)),
        unique_id=values.with_prefix("MLU-", one.get("UUID")),
        name=values.named(one.get("ProductName")),
        values=found,
        reasons=reasons,
    )
