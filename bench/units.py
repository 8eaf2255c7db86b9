"""Conversions between units, each in one place, and the way quantities are written and read.

Names carry units: `_ns`, `_ms`, `_s`, `_j`, `_w`, `_b`.
"""

from __future__ import annotations

import re

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
J_PER_MJ = 1e-3
"""Joules in a millijoule (NVML's energy counter)."""
J_PER_UJ = 1e-6
"""Joules in a microjoule (powercap's `energy_uj`)."""
BYTES_PER_MIB = 1 << 20
BYTES_PER_GIB = 1 << 30

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h)?\s*", re.IGNORECASE)
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_duration_s(text: str | int | float) -> float:
    """Seconds in `300s`, `5m`, `1h`, `250ms` or a bare number of seconds.

    Raises: ValueError with the accepted forms.
    """
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is not a duration: write 300s, 5m or 1h")
    if isinstance(text, int | float):
        seconds = float(text)
    else:
        found = _DURATION.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a duration: write 300s, 5m or 1h")
        seconds = float(found[1]) * _SECONDS[(found[2] or "s").lower()]
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{text!r} is not a usable duration")
    return seconds


def format_bytes(count: float) -> str:
    """`93.8 MiB`: binary units, one decimal."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
