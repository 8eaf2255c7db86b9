"""What is known of Ascend chips by their names, and by their places on a card. Pure."""

from __future__ import annotations

import re

NEVER_TOLD = {
    "energy_j": "Ascend has no energy counter",
    "power_limit_w": "Ascend's interfaces tell no power limit",
    "throttle": "Ascend's interfaces tell no limits in force",
}
SECOND_DIE = "npu-smi shows no power for a die after the first: the first one's is the card's"
CARD_S_ONLY = "on this chip only the card's microcontroller measures power"
_BY_MICROCONTROLLER = re.compile(r"(ascend\s*)?310(p\d*)?", re.IGNORECASE)
_CHIPS_OF_A_CARD = 16
"""More than any has."""
_MOST_MB = 1 << 20


def number(card: int, chip: int) -> int:
    """One number for a chip of a card, the same by every way."""
    return card * _CHIPS_OF_A_CARD + chip


def full_name(name: str | None) -> str | None:
    """`Ascend 910B2` of `910B2`; `Ascend910` stays."""
    return name if name is None or name.lower().startswith("ascend") else f"Ascend {name}"


def by_microcontroller(name: str | None) -> bool:
    """Whether only the card's microcontroller measures power: the 310's chip tells its rated power, the 310P's none.

    Source: npu-smi, which prints `Rated Power Dissipation` for a 310 and refuses a chip's power on a 310P.
    """
    return name is not None and _BY_MICROCONTROLLER.fullmatch(name.strip()) is not None


def believable_mb(size: float) -> bool:
    """Whether a memory size may be MB: the same number in KB or bytes would be more than a TB of them."""
    return 0 < size <= _MOST_MB
