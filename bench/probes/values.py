"""A vendor's call that may have nothing to give, and what watts can be believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LOWEST_W = 0.5
HIGHEST_W = 5000.0
"""Watts outside these are a wrong unit, or not the reading of a board."""
_OVER_LIMIT = 2.0

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


def believable_w(watts: float, limit_w: float | None, highest_w: float = HIGHEST_W) -> float:
    """Watts. Raises: Unavailable below 0.5 W, above `highest_w`, or at twice the limit: a wrong unit, or not a reading."""
    highest = min(highest_w, _OVER_LIMIT * limit_w) if limit_w else highest_w
    if not LOWEST_W <= watts <= highest:
        raise Unavailable(f"implausible power: {watts:g} W (believable: {LOWEST_W:g} to {highest:g} W)", lasting=False)
    return watts
