"""Numbers and words that a person sets for a probe in the environment."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bench.errors import UsageError

_ON, _OFF = frozenset({"1", "on", "true", "yes"}), frozenset({"0", "off", "false", "no"})


def number(env: Mapping[str, str], name: str, otherwise: float, *, low: float = 0.0, high: float = math.inf) -> float:
    """The number in variable `name`. Raises: UsageError outside `[low, high]` or where it is no number."""
    text = env.get(name, "").strip()
    if not text:
        return otherwise
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{name} is {text!r}, not a number") from None
    if not low <= value <= high or not math.isfinite(value):
        raise UsageError(f"{name} is {text}: it must be from {low:g} to {high:g}")
    return value


def switch(env: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    """On or off. Raises: UsageError for another word."""
    text = env.get(name, "").strip().lower()
    if not text:
        return otherwise
    if text in _ON | _OFF:
        return text in _ON
    raise UsageError(f"{name} is {text!r}, neither on nor off")
