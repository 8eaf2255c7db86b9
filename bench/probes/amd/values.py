"""What only AMD's parts hand out: their energy unit, their ids, their limits in force. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from bench.probes.values import MARK_64, Unavailable

EXACT_UJ = 1e6 / (1 << 16)
"""The energy accumulator counts 2^-16 J, 15.2587890625 uJ."""
_EXACT_WITHIN = 0.005

THROTTLES = {
    "active_ppt_pwr": "sw_power_cap",
    "active_socket_thrm": "sw_thermal",
    "active_prochot_thrm": "hw_thermal",
    "active_vr_thrm": "vr_thermal",
    "active_hbm_thrm": "memory_thermal",
}
"""Flags of `amdsmi_get_violation_status` and the standard names of the limits."""


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
    """`GPU-` and 16 hexadecimal digits, as ROCr writes it; None for 0, N/A and the like."""
    text = str(value).strip().lower().removeprefix("gpu-").removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,16}", text) or int(text, 16) in (0, MARK_64):
        return None
    return f"GPU-{text.zfill(16)}"
