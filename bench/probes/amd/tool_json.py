"""What `amd-smi` and `rocm-smi` print, read into cards: JSON of ROCm 6 and 7, and the plain and CSV forms. Pure.

Layouts: ROCm 6 prints a list of GPUs, ROCm 7 `{"gpu_data": [...]}`, rocm-smi `{"card0": {...}}`. Values may be numbers, texts, or
`{"value": 133, "unit": "W"}`; keys come in any order; whatever is missing is `N/A`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bench.probes import values
from bench.probes.values import Unavailable, believable_w

Told = Mapping[int, Mapping[str, Any]]
"""What a tool says of each GPU, by its number."""

_BEGINS = re.compile(r"^[ \t]*([\[{])", re.MULTILINE)
_CARD = re.compile(r"card(\d+)", re.IGNORECASE)
_LINE = re.compile(r"GPU\[(\d+)\]\s*:\s*(.+?):\s*(.*)")
_AMD_SMI: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "power_w": (("power", "socket_power"), ("power", "current_socket_power"), ("power", "average_socket_power")),
    "energy_j": (("energy", "total_energy_consumption"), ("total_energy_consumption",)),
    "memory_used_b": (("mem_usage", "used_vram"), ("vram", "used")),
    "memory_total_b": (("mem_usage", "total_vram"), ("vram", "total")),
    "utilisation": (("usage", "gfx_activity"), ("usage", "gfx_usage")),
    "temperature_c": (("temperature", "hotspot"), ("temperature", "edge")),
    "clock_mhz": (("clock", "gfx_0", "clk"), ("clock", "gfx", "clk")),
}
_ROCM_SMI: Mapping[str, tuple[str, ...]] = {
    "power_w": ("Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)"),
    "memory_used_b": ("VRAM Total Used Memory (B)",),
    "memory_total_b": ("VRAM Total Memory (B)",),
    "utilisation": ("GPU use (%)",),
    "temperature_c": ("Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)"),
}
_KINDS = {
    "power_w": "power",
    "energy_j": "energy",
    "memory_used_b": "memory",
    "memory_total_b": "memory",
    "utilisation": "share",
    "temperature_c": "temperature",
    "clock_mhz": "clock",
}
_PLAIN_MIB = ("memory_used_b", "memory_total_b")
"""amd-smi's bare memory numbers are MB of 2^20 bytes."""


def told(text: str) -> Told:
    """What each GPU is said to have. Raises: Unavailable where the text is neither whole JSON nor a known plain form."""
    for value in _json_values(text):
        found = _shaped(value)
        if found is not None:
            return found
    plain = _from_lines(text) or _from_csv(text) or _from_outline(text)
    if not plain:
        shown = " ".join(text.split())
        raise Unavailable(f"the tool's output can't be read: {shown[:80]!r}", lasting=False)
    return plain


def value_of(gpu: Mapping[str, Any], name: str) -> float:
    """Quantity `name` (`power_w`, `memory_used_b`, ...) of one GPU, in its unit. Raises: Unavailable with what was found."""
    why = "the tool does not tell it"
    for raw, unit in _candidates(gpu, name):
        try:
            found = values.quantity(raw, _KINDS[name], unit)
            return _checked(found, name)
        except Unavailable as error:
            why = str(error)
    raise Unavailable(why, lasting=False)


def about(gpu: Mapping[str, Any], *names: str) -> str | None:
    """The first of these texts (`bdf`, `Unique ID`, ...) that says something."""
    return next((found for name in names if (found := values.named(gpu.get(name)))), None)


def _checked(found: float, name: str) -> float:
    if name == "power_w":
        return believable_w(found, None)
    if name == "utilisation" and found > 1:
        raise Unavailable(f"{found:.0%} busy is no reading", lasting=False)
    return found


def _candidates(gpu: Mapping[str, Any], name: str) -> Iterator[tuple[Any, str | None]]:
    for path in _AMD_SMI[name]:
        at: Any = gpu
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        if at is not None:
            yield at, "MB" if name in _PLAIN_MIB else None
    for key in _ROCM_SMI.get(name, ()):
        if key in gpu:
            yield gpu[key], None


# --- shapes -------------------------------------------------------------------------------------------------------------


def _json_values(text: str) -> Iterator[Any]:
    """Whole JSON values that begin at the start of a line: a banner or a warning may stand before or after them."""
    decoder = json.JSONDecoder()
    for begin in _BEGINS.finditer(text):
        try:
            yield decoder.raw_decode(text, begin.start(1))[0]
        except (json.JSONDecodeError, RecursionError):
            continue


def _shaped(value: Any) -> Told | None:
    """None for JSON of another shape, such as a part of a truncated one."""
    if isinstance(value, dict) and isinstance(value.get("gpu_data"), list):
        value = value["gpu_data"]
    if isinstance(value, list):
        gpus = [gpu for gpu in value if isinstance(gpu, dict) and type(gpu.get("gpu")) is int]
        return {gpu["gpu"]: gpu for gpu in gpus} if gpus and len(gpus) == len(value) else None
    if isinstance(value, dict):
        cards = {int(found[1]): card for key, card in value.items() if (found := _CARD.fullmatch(key)) and isinstance(card, dict)}
        return cards or None
    return None


def _from_lines(text: str) -> Told:
    """rocm-smi without --json: `GPU[0]\\t\\t: Average Graphics Package Power (W): 237.0`."""
    gpus: dict[int, dict[str, Any]] = {}
    for line in text.splitlines():
        found = _LINE.match(line.strip())
        if found:
            gpus.setdefault(int(found[1]), {})[found[2].strip()] = found[3].strip()
    return gpus


def _from_csv(text: str) -> Told:
    """`amd-smi metric --csv`: the last row of each GPU."""
    lines = text.strip().splitlines()
    start = next((i for i, line in enumerate(lines) if "gpu" in line.lower().split(",")), None)
    if start is None:
        return {}
    try:
        rows = list(csv.DictReader(lines[start:]))
    except csv.Error:
        return {}
    return {int(row["gpu"]): {k: v for k, v in row.items() if k} for row in rows if (row.get("gpu") or "").strip().isdecimal()}


def _from_outline(text: str) -> Told:
    """`amd-smi metric` without --json: `GPU: 0`, then an indented outline of KEY: value."""
    gpus: dict[int, dict[str, Any]] = {}
    path: list[tuple[int, dict[str, Any]]] = []
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if not colon:
            continue
        depth, key, value = len(line) - len(line.lstrip()), key.strip().lower(), value.strip()
        if key == "gpu" and value.isdecimal():
            path = [(depth, gpus.setdefault(int(value), {}))]
            continue
        while len(path) > 1 and path[-1][0] >= depth:
            path.pop()
        if path and value:
            path[-1][1][key] = value
        elif path:
            below: dict[str, Any] = {}
            path[-1][1][key] = below
            path.append((depth, below))
    return gpus
