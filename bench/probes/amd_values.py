"""What AMD's libraries, files and tools hand out as values: numbers, texts with units, marks for "missing". Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from bench.probes.values import Unavailable

EXACT_UJ = 1e6 / (1 << 16)
"""The energy accumulator counts 2^-16 J, 15.2587890625 uJ."""
_EXACT_WITHIN = 0.005

MARK_16, MARK_32, MARK_64 = 0xFFFF, 0xFFFFFFFF, (1 << 64) - 1
"""All ones mean "not available", in the width of the firmware's field, whatever the width of the one it is copied to."""

_NOT_A_VALUE = frozenset({"", "-", "na", "n/a", "none", "null", "unknown", "not supported", "unsupported", "unknown error"})
_TEXT = re.compile(r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([a-z%\u00b0\u00b5]*)", re.IGNORECASE)
_SCALES: Mapping[str, Mapping[str, float]] = {
    "power": {"w": 1.0, "mw": 1e-3, "uw": 1e-6, "\u00b5w": 1e-6},
    "energy": {"j": 1.0, "kj": 1e3, "mj": 1e-3, "uj": 1e-6, "\u00b5j": 1e-6},
    "memory": {"b": 1.0, "kb": 1024.0, "mb": 1048576.0, "gb": 1073741824.0, "mib": 1048576.0, "gib": 1073741824.0},
    "share": {"%": 0.01},
    "temperature": {"c": 1.0, "\u00b0c": 1.0},
    "clock": {"mhz": 1.0, "ghz": 1000.0, "hz": 1e-6},
}
_DEFAULT_UNIT = {"power": "w", "energy": "j", "memory": "b", "share": "%", "temperature": "c", "clock": "mhz"}

THROTTLES = {
    "active_ppt_pwr": "sw_power_cap",
    "active_socket_thrm": "sw_thermal",
    "active_prochot_thrm": "hw_thermal",
    "active_vr_thrm": "vr_thermal",
    "active_hbm_thrm": "memory_thermal",
}
"""Flags of `amdsmi_get_violation_status` and the standard names of the limits."""


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
    known = (unit or _DEFAULT_UNIT[kind]).lower()
    scale = _SCALES[kind].get(known)
    if scale is None:
        raise Unavailable(f"unit {unit!r} is none of {kind}", lasting=False)
    return number(value) * scale


def share(percent: float) -> float:
    """Busy share in [0, 1] of a percentage. Raises: Unavailable above 100."""
    if percent > 100:
        raise Unavailable(f"{percent:g}% busy is no reading", lasting=False)
    return percent / 100


def joules_per_count(resolution_uj: float) -> float:
    """Unit of the energy accumulator [J]. The library rounds 2^-16 J to 15.3 uJ: within 0.5% the exact unit is meant.

    Raises: Unavailable where the resolution is no number above 0.
    """
    if not math.isfinite(resolution_uj) or resolution_uj <= 0:
        raise Unavailable(f"the energy counter's resolution is {resolution_uj}", lasting=True)
    exact = abs(resolution_uj / EXACT_UJ - 1) <= _EXACT_WITHIN
    return (EXACT_UJ if exact else resolution_uj) * 1e-6


def throttle_names(status: Mapping[str, object]) -> tuple[str, ...]:
    """Limits in force, by their standard names. Raises: Unavailable where the board tells none of its flags."""
    flags = {name: status.get(flag) for flag, name in THROTTLES.items()}
    if not any(isinstance(flag, bool) or flag in (0, 1) for flag in flags.values()):
        raise Unavailable("amdsmi_get_violation_status: no flag is told", lasting=True)
    return tuple(name for name, flag in flags.items() if flag is True or flag == 1)


def unique_id(value: object) -> str | None:
    """16 hexadecimal digits, as ROCr writes them after `GPU-`; None for 0, N/A and the like."""
    text = str(value).strip().lower().removeprefix("gpu-").removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,16}", text) or int(text, 16) in (0, MARK_64):
        return None
    return text.zfill(16)


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


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
