"""Watts of what Iluvatar's library tells: its header says mW, the vendor's own programs read W, and releases differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bench.probes.values import HIGHEST_W, Unavailable, believable_w

_LEAST_MW = 1000
"""No card draws less than 1 W, and none 1 kW: without a limit the number itself tells its unit."""


def is_milliwatts(limits: Iterable[float]) -> bool | None:
    """Whether a library counts power in mW, by the limits of its cards: a limit is never above 5 kW. None without any limit."""
    limit = next(iter(limits), None)
    return None if limit is None else limit > HIGHEST_W


def limit_w(told: float) -> float:
    """A power limit [W]. Raises: Unavailable where it is 0."""
    if told == 0:
        raise Unavailable("the driver gives a power limit of 0", lasting=True)
    return told / 1000 if told > HIGHEST_W else told


def watts(told: float, milliwatts: bool | None, limit: float | None) -> float:
    """Power [W] of a number in mW, in W, or (None) in what its size says; `limit` [W].

    Raises: Unavailable where number and unit don't fit, or the power is not to be believed.
    """
    if milliwatts and told < _LEAST_MW:
        raise Unavailable(f"power says {told:g}, the limit that power is in mW: no unit fits both", lasting=False)
    if milliwatts is None:
        milliwatts = told >= _LEAST_MW
    return believable_w(told / 1000 if milliwatts else told, limit)
