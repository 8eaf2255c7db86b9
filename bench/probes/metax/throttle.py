"""MetaX's names of limits in force. Pure."""

from __future__ import annotations

from collections.abc import Iterable

_THROTTLES = {
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "sw_thermal",
    0x10: "vr_thermal",
    0x20: "memory_thermal",
    0x40: "sw_thermal",
    0x80: "peak_current",
    0x100: "hw_power_brake",
    0x200: "didt",
    0x80000000: "other",
}
"""`mxsmlClocksThrottleReason*`. Idle (0x1) and low usage (0x400) are no limits."""


def throttle_names(reasons: Iterable[int]) -> tuple[str, ...]:
    """Limits in force on any die, by their standard names."""
    bits = 0
    for one in reasons:
        bits |= one
    return tuple(dict.fromkeys(name for bit, name in _THROTTLES.items() if bits & bit))
