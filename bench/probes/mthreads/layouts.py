"""What `mthreads-gmi` prints, read into devices: JSON (`-q --json`), an outline of the same (`-q`), and the table. Pure.

Keys are compared without case and outer blanks (the JSON's `"Power Draw "` ends in one), cells by the headers above them. Units
are glued to the numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from bench.probes import boxes, tool, values
from bench.probes.tool import Told, whole_lines
from bench.probes.values import Step, Unavailable

_SIZE = re.compile(r"(\d+)\s*(KiB|MiB|GiB)?", re.IGNORECASE)
_SHIFTS = {"kib": 10, "mib": 20, "gib": 30}
_HEADING = re.compile(r"GPU\s*(\d+)\s+([0-9a-f:.]+)", re.IGNORECASE)
_IN_USE = re.compile(r"(.+?)\((.+)\)")
_DRIVER = re.compile(r"Driver Version:\s*(\S+)")
_NO_POWER = {"power_w": "the table of mthreads-gmi tells no power, and `mthreads-gmi -q` does not work here"}


def devices(text: str) -> list[Told]:
    """Raises: Unavailable where the text is none of the three, or a broken one."""
    found = _from_json(text) or _from_outline(text) or _from_table(text)
    if not found:
        raise Unavailable(f"the output of mthreads-gmi can't be read: {' '.join(text.split())[:80]!r}", lasting=False)
    return found


# --- -q -----------------------------------------------------------------------------------------------------------------


def _from_json(text: str) -> list[Told]:
    """Nothing of JSON that was cut; a banner may stand before or after it."""
    try:
        whole = _plain(json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))[0])
    except (json.JSONDecodeError, RecursionError):
        return []
    return _described(whole) if isinstance(whole, dict) else []


def _from_outline(text: str) -> list[Told]:
    """Lines of `key : value` under sections that are further left; `GPU0 00000000:18:00.0` begins a device."""
    whole: dict[str, Any] = {"gpu": []}
    path: list[tuple[int, dict[str, Any]]] = [(-1, whole)]
    for line in filter(str.strip, whole_lines(text)):
        depth = len(line) - len(line.lstrip())
        key, colon, value = (part.strip() for part in line.partition(":"))
        while path[-1][0] >= depth:
            path.pop()
        below: dict[str, Any] = {}
        if heading := _HEADING.fullmatch(line.strip()):
            below |= {"index": heading[1], "pci": {"bus id": heading[2]}}
            whole["gpu"].append(below)
        elif colon:
            path[-1][1][key.lower()] = value
            continue
        else:
            path[-1][1].setdefault(key.lower(), below)
        path.append((depth, below))
    return _described(whole)


def _plain(value: Any) -> Any:
    """The same with keys in lower case and without outer blanks."""
    if isinstance(value, dict):
        return {str(key).strip().lower(): _plain(below) for key, below in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _described(whole: Mapping[str, Any]) -> list[Told]:
    gpus = whole.get("gpu")
    listed = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    return [_told(gpu, values.named(whole.get("driver version"))) for gpu in listed if str(gpu.get("index")).isdecimal()]


def _told(gpu: Mapping[str, Any], driver: str | None) -> Told:
    steps: dict[str, Step] = {
        "power_w": partial(values.quantity, _at(gpu, "power readings", "power draw"), "power"),
        "power_limit_w": partial(values.quantity, _at(gpu, "power readings", "current power limit"), "power"),
        "utilisation": partial(values.quantity, _at(gpu, "utilization", "gpu"), "share"),
        "temperature_c": partial(values.quantity, _at(gpu, "temperature", "gpu current temp"), "temperature"),
        "clock_mhz": partial(values.quantity, _at(gpu, "clocks", "graphics"), "clock"),
        "memory_used_b": partial(_size_b, _at(gpu, "fb memory usage", "used")),
        "memory_total_b": partial(_size_b, _at(gpu, "fb memory usage", "total")),
    }
    found, reasons = tool.told(steps)
    return Told(
        index=int(gpu["index"]),
        pci=values.pci_address(_at(gpu, "pci", "bus id")),
        unique_id=values.named(gpu.get("gpu uuid")),
        name=values.named(gpu.get("product name")),
        driver=driver,
        firmware=values.named(gpu.get("mtbios version")),
        values=found,
        reasons=reasons,
    )


def _at(gpu: Mapping[str, Any], section: str, key: str) -> Any:
    below = gpu.get(section)
    return below.get(key) if isinstance(below, dict) else None


# --- the table ----------------------------------------------------------------------------------------------------------


def _from_table(text: str) -> list[Told]:
    """Three rows a device between rules, as many headers above. Columns are parted by `|`; there is none at the ends."""
    lines = whole_lines(text)
    driver = next((named[1] for line in lines if (named := _DRIVER.search(line))), None)
    headers: list[list[str]] = []
    found: list[Told] = []
    for block in boxes.blocks("\n".join(f"|{line}|" for line in lines)):
        if boxes.has(block[0], "id", "name", "pcie"):
            headers = block
            continue
        words = boxes.under(headers, block)
        if words.get("id", "").isdecimal():
            found.append(_row(words, driver))
    return found


def _row(words: Mapping[str, str], driver: str | None) -> Told:
    held = _IN_USE.fullmatch(words.get("mem", ""))
    used, total = held.groups() if held else (None, None)
    steps: dict[str, Step] = {
        "utilisation": partial(values.quantity, words.get("%gpu"), "share"),
        "temperature_c": partial(values.quantity, words.get("temp"), "temperature"),
        "memory_used_b": partial(_size_b, used),
        "memory_total_b": partial(_size_b, total),
    }
    found, reasons = tool.told(steps)
    return Told(
        index=int(words["id"]),
        pci=values.pci_address(words.get("pcie")),
        name=values.named(words.get("name")),
        driver=driver,
        values=found,
        reasons={**reasons, **_NO_POWER},
    )


def _size_b(text: object) -> float:
    """Bytes of `81920MiB`; a bare number is in MiB."""
    size = _SIZE.fullmatch(str(text).strip())
    if size is None:
        raise Unavailable(f"no size ({text!r})", lasting=False)
    return float(int(size[1]) << _SHIFTS[(size[2] or "MiB").lower()])
