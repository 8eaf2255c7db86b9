"""Hygon DCUs through `hy-smi` (`rocm-smi` in old DTKs): its JSON, else its table.

Sources: outputs of DTK 24.04, 25.04 and 26.04. The JSON may stand between lines of text, lack commas, and have keys without a
name; the key of the busy share begins with DCU or HCU. A value's unit stands in its key, or behind it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench.clock import Clock
from bench.probes import values
from bench.probes.amd import values as amd_values
from bench.probes.card_probe import Way
from bench.probes.command import output
from bench.probes.hygon.rsmi import dtk_folders
from bench.probes.tool import Told, first_form, opened, told, whole_lines
from bench.probes.values import Step, Unavailable

_DRIVER_FOLDERS = (Path("/opt/hyhal/bin"), Path("/usr/local/hyhal/bin"))
_LONG_KNOWN = ("--showproductname", "--showuniqueid", "--showpower", "--showuse", "--showmeminfo", "vram", "--showtemp", "--json")
FORMS = (("--showbus", "--showmaxpower", *_LONG_KNOWN), _LONG_KNOWN, ())

_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]')
_CARD = re.compile(r'"card(\d+)"\s*:\s*\{([^{}]*)\}')
_PAIR = re.compile(r'"([^"]*)"\s*:\s*(?:"([^"]*)"|([^\s,"]+))')
_KEY = re.compile(r"(.*?)(?:\s*\(([^()]*)\))?", re.DOTALL)
"""`vram Total Memory (MiB)`: name and unit."""
_USES = ("hcu use", "dcu use", "gpu use")
_TEMPERATURES = tuple(f"temperature (sensor {sensor})" for sensor in ("junction", "edge", "core"))
_INDICES = ("hcu", "dcu", "gpu", "device")
_SHARE_ONLY = "hy-smi's table tells the share of memory in use, no size"

Fields = Mapping[str, tuple[str, str | None]]
"""Texts and the units that their keys tell, by the rest of the key in lower case."""


def find(env: Mapping[str, str], clock: Clock) -> Way | None:
    """The tool on the path or in the driver's folder; `rocm-smi` only in a DTK, for AMD's has the same name."""
    in_dtk = [dtk / "bin" for dtk in dtk_folders(env)]
    path = (
        shutil.which("hy-smi", path=env.get("PATH"))
        or shutil.which("hy-smi", path=":".join(map(str, (*_DRIVER_FOLDERS, *in_dtk))))
        or shutil.which("rocm-smi", path=":".join(map(str, in_dtk)) or "/nowhere")
    )
    if path is None:
        return None
    read = first_form(FORMS, lambda form: parse(output([path, *form], env=env)))
    return lambda: opened("hy-smi", read, clock)


def parse(text: str) -> list[Told]:
    """Cards of the JSON or of the table. Raises: Unavailable where it can't be read, is cut off, or holds none."""
    found = _from_json(text) if '"card' in text else _from_table(text)
    if not found:
        raise Unavailable("hy-smi lists no card", lasting=False)
    return found


# --- JSON, or nearly ----------------------------------------------------------------------------------------------------


def _from_json(text: str) -> list[Told]:
    return [_from_fields(int(index), _fields(body)) for index, body in _CARD.findall(_whole(text))]


def _whole(text: str) -> str:
    """The object around the cards. Raises: Unavailable where it does not end."""
    start = max(text.rfind("{", 0, text.index('"card')), 0)
    depth = 0
    for found in _STRING_OR_BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return text[start : found.end()]
    raise Unavailable("hy-smi's JSON is cut off", lasting=False)


def _fields(body: str) -> Fields:
    fields = {}
    for key, quoted, bare in _PAIR.findall(body):
        name = _KEY.fullmatch(key.lower())
        assert name is not None
        fields[name[1]] = (quoted or bare, name[2])
    return fields


def _from_fields(index: int, fields: Fields) -> Told:
    found, reasons = told(
        {
            "power_w": partial(_field, fields, "power", "average graphics package power"),
            "power_limit_w": partial(_field, fields, "power", "max graphics package power", above_0=True),
            "memory_total_b": partial(_field, fields, "memory", "vram total memory", above_0=True),
            "memory_used_b": partial(_field, fields, "memory", "vram total used memory"),
            "utilisation": partial(_field, fields, "share", *_USES),
            "temperature_c": partial(_field, fields, "temperature", *_TEMPERATURES, above_0=True),
        }
    )
    words = {name: values.named(text) for name, (text, _) in fields.items()}
    unique_id = words.get("unique id") or ""
    return Told(
        index=index,
        pci=values.pci_address((words.get("pci bus") or "").partition(" ")[0]),
        unique_id=amd_values.unique_id(unique_id) if len(unique_id.removeprefix("0x")) == 16 else None,
        name=words.get("card series"),
        values=found,
        reasons=reasons,
    )


def _field(fields: Fields, kind: str, *names: str, above_0: bool = False) -> float:
    """The first of these fields that there is."""
    name = next((name for name in names if name in fields), None)
    if name is None:
        raise Unavailable(f"hy-smi does not tell {names[0]!r}", lasting=False)
    return _quantity(*fields[name], kind, above_0)


def _quantity(text: str, unit: str | None, kind: str, above_0: bool) -> float:
    value = values.quantity(text, kind, unit)
    if value == 0 and above_0:
        raise Unavailable(f"0 is no {kind}", lasting=False)
    return value


# --- the table ----------------------------------------------------------------------------------------------------------


def _from_table(text: str) -> list[Told]:
    """Rows of words between the header and the next rule."""
    lines = [line.lower().split() for line in whole_lines(text)]
    start = next((place for place, words in enumerate(lines) if "avgpwr" in words), None)
    if start is None:
        raise Unavailable(f"hy-smi's output can't be read: {' '.join(text.split())[:80]!r}", lasting=False)
    header = lines[start]
    end = next((place for place, words in enumerate(lines) if place > start and set("".join(words)) == {"="}), None)
    if end is None:
        raise Unavailable("hy-smi's table is cut off", lasting=False)
    if len(set(header)) < len(header):
        raise Unavailable(f"hy-smi's table names a column twice: {' '.join(header)}", lasting=False)
    rows = [dict(zip(header, words, strict=True)) for words in lines[start + 1 : end] if len(words) == len(header)]
    return [card for row in rows if (card := _from_row(row)) is not None]


def _from_row(row: Mapping[str, str]) -> Told | None:
    index = next((name for name in _INDICES if name in row), None)
    if index is None or not row[index].isdecimal():
        return None
    columns = {
        "power_w": ("avgpwr", "power", False),
        "power_limit_w": ("pwrcap", "power", True),
        "temperature_c": ("temp", "temperature", True),
        "utilisation": (f"{index}%", "share", False),
    }
    steps: dict[str, Step] = {
        name: partial(_quantity, row[column], None, kind, above_0)
        for name, (column, kind, above_0) in columns.items()
        if column in row
    }
    found, reasons = told(steps)
    return Told(index=int(row[index]), values=found, reasons={"memory_used_b": _SHARE_ONLY, **reasons})
