"""What is published of NVIDIA's power sensors: how often they renew and what a reading averages over. Data, by board name.

Source: Yang, Adamek and Armour, "Part-time Power Measurements: nvidia-smi's Lack of Attention", 2023, table of sensors; and
`nvml.h` for the 1 s of the AVERAGE field and, from Ampere on but for GA100, of `nvmlDeviceGetPowerUsage`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GAIN_ERROR = 0.05
"""Relative, fixed for a board. Source: the same paper."""

_AMPERE = 7
"""`NVML_DEVICE_ARCH_AMPERE`."""
_GA100 = ("A100", "A100X", "A800", "A30", "A30X")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerTiming:
    """Seconds between two values of a sensor, and seconds that one value averages over; None where no source says."""

    update_s: float | None = None
    averaging_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Boards by a word of their name, or by NVML's number of their architecture: the first row that fits counts."""

    names: tuple[str, ...] = ()
    architecture: int | None = None
    timing: PowerTiming


_INSTANT = (
    _Row(names=("GH200",), timing=PowerTiming(update_s=0.100, averaging_s=0.020)),
    _Row(names=(*_GA100, "H100", "H200", "H800", "H20"), timing=PowerTiming(update_s=0.100, averaging_s=0.025)),
    _Row(architecture=9, timing=PowerTiming(update_s=0.100, averaging_s=0.025)),  # Hopper
    _Row(architecture=6, timing=PowerTiming(update_s=0.100, averaging_s=0.100)),  # Turing
    _Row(architecture=5, timing=PowerTiming(update_s=0.020, averaging_s=0.010)),  # Volta
)
_ONE_SECOND = PowerTiming(update_s=0.100, averaging_s=1.0)


def power_timing(field: str, architecture: int | None, name: str) -> PowerTiming:
    """Of the sensor behind `field` (`instant`, `average`, `usage`) on a board."""
    words = set(re.split(r"[\s-]+", name))
    recent = architecture is not None and architecture >= _AMPERE and words.isdisjoint(_GA100)
    if field == "average" or (field == "usage" and recent):
        return _ONE_SECOND
    for row in _INSTANT:
        if not words.isdisjoint(row.names) or (row.architecture is not None and row.architecture == architecture):
            return row.timing
    return PowerTiming()
