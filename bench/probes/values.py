"""What vendors' libraries, files and tools hand out as values: numbers, texts with units, marks for "missing". Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

LOWEST_W = 0.5
HIGHEST_W = 5000.0
"""Watts outside these are a wrong unit, or not the reading of a board."""
_OVER_LIMIT = 2.0

MARK_16, MARK_32, MARK_64 = 0xFFFF, 0xFFFFFFFF, (1 << 64) - 1
"""All ones mean "not available", in the width of the firmware's field, whatever the width of the one it is copied to."""

_NOT_A_VALUE = frozenset({"", "-", "na", "n/a", "none", "null", "unknown", "not supported", "unsupported", "unknown error"})
_TEXT = re.compile(r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([a-z%\u00b0\u00b5]*)", re.IGNORECASE)
_SCALES: Mapping[str, Mapping[str, float]] = {
    "power": {"w": 1.0, "mw": 1e-3, "uw": 1e-6, "\u00b5w": 1e-6},
    "energy": {"j": 1.0, "kj": 1e3, "mj": 1e-3, "uj": 1e-6, "\u00b5j": 1e-6, "MJ": 1e6},
    "memory": {"b": 1.0, "kb": 1024.0, "mb": 1048576.0, "gb": 1073741824.0, "mib": 1048576.0, "gib": 1073741824.0},
    "share": {"%": 0.01},
    "temperature": {"c": 1.0, "\u00b0c": 1.0},
    "clock": {"mhz": 1.0, "ghz": 1000.0, "hz": 1e-6},
}
"""By units in lower case, but for a million joules."""
_CASE_MATTERS = ("power", "energy")
"""Kinds in which M is no m: `MJ` is a million joules, and `MW` is not guessed at."""
_DEFAULT_UNIT = {"power": "w", "energy": "j", "memory": "b", "share": "%", "temperature": "c", "clock": "mhz"}

Step = Callable[[], Any]


class Unavailable(Exception):
    """A value that this device does not give. `lasting`: it never will, so that the call can be left out."""

    def __init__(self, reason: str, *, lasting: bool) -> None:
        super().__init__(reason)
        self.lasting = lasting


def attempt(step: Step) -> tuple[Any, str | None, bool]:
    """(value, None, False), or (None, reason, lasting). A lost device still raises ProbeError."""
    try:
        return step(), None, False
    except Unavailable as error:
        return None, str(error), error.lasting


def believable_w(watts: float, limit_w: float | None, highest_w: float = HIGHEST_W, *, lowest_w: float = LOWEST_W) -> float:
    """Watts. Raises: Unavailable below `lowest_w`, above `highest_w`, or at twice the limit: a wrong unit, or not a reading."""
    highest = min(highest_w, _OVER_LIMIT * limit_w) if limit_w else highest_w
    if not lowest_w <= watts <= highest:
        raise Unavailable(f"implausible power: {watts:g} W (believable: {lowest_w:g} to {highest:g} W)", lasting=False)
    return watts


def number(value: object, *, marks: tuple[int, ...] = (MARK_16, MARK_32, MARK_64)) -> float:
    """A finite number of at least 0. Raises: Unavailable for a mark, a word in a number's place, or anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unavailable(f"no value ({_shown(value)})", lasting=False)
    if value in marks:
        raise Unavailable(f"the driver gave its mark for a missing value ({int(value):#x})", lasting=False)
    if not math.isfinite(value) or value < 0:
        raise Unavailable(f"{value} is no reading", lasting=False)
    return float(value)


def quantity(value: object, kind: str, unit: str | None = None) -> float:
    """A value of a tool's JSON in W, J, bytes, share, C or MHz: a number, `"102.0"`, `"20 W"`, or `{"value": 133, "unit": "W"}`.

    `unit` is the one that the key tells, for values that bring none. Raises: Unavailable.
    """
    if isinstance(value, dict):
        named = value.get("unit")
        return quantity(value.get("value"), kind, named if isinstance(named, str) and named else unit)
    if isinstance(value, str):
        found = _TEXT.fullmatch(value.strip())
        if found is None or value.strip().lower() in _NOT_A_VALUE:
            raise Unavailable(f"no value ({_shown(value)})", lasting=False)
        text, named = found.groups()
        return quantity(float(text) if "." in text or "e" in text.lower() else int(text), kind, named or unit)
    known = unit or _DEFAULT_UNIT[kind]
    scale = _SCALES[kind].get(known if kind in _CASE_MATTERS and known.startswith("M") else known.lower())
    if scale is None:
        raise Unavailable(f"unit {unit!r} is none of {kind}", lasting=False)
    wide = (MARK_32, MARK_64)  # 65535 MiB in use is a full card, not a mark
    return number(value, marks=wide if kind == "memory" else (MARK_16, *wide)) * scale


def share(percent: float) -> float:
    """Busy share in [0, 1] of a percentage. Raises: Unavailable above 100."""
    if percent > 100:
        raise Unavailable(f"{percent:g}% busy is no reading", lasting=False)
    return percent / 100


def above_0(value: float, what: str) -> float:
    """The value. Raises: Unavailable where it is 0, which is no reading of `what` (a limit, a size, a temperature)."""
    if value == 0:
        raise Unavailable(f"a {what} of 0 is no reading", lasting=False)
    return value


def pci_address(value: object) -> str | None:
    """`0000:c1:00.0`, as sysfs writes it; None where the text is no address."""
    found = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", str(value).strip().lower())
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"


def named(value: object) -> str | None:
    """A text that says something; None for N/A and the like."""
    text = str(value).strip() if isinstance(value, str) else ""
    return None if text.lower() in _NOT_A_VALUE else text


def with_prefix(prefix: str, uuid: object) -> str | None:
    """A UUID as the vendor's other tools write it (`MLU-1234...`); None for an empty one or zeros."""
    bare = (named(uuid) or "").removeprefix(prefix)
    return f"{prefix}{bare}" if bare.strip("0-") else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
