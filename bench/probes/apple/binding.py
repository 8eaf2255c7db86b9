"""The energy counters of Apple silicon through `zeus-apple-silicon`, which needs no root. Imported only in the probe's process.

Source: `zeus-apple-silicon` 1.1.0. It reads the group "Energy Model" of IOReport: millijoules since a fixed moment, which a model
of the chip gives and no meter; None where the chip has no such channel.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from bench.probes import values
from bench.probes.apple.chip import GPU, MODULE, Chip
from bench.probes.cards import Card, Quantity
from bench.probes.values import MARK_64, Unavailable, attempt
from bench.units import J_PER_MJ

_NAME = "zeus-apple-silicon"
_PARTS: Mapping[str, tuple[str, ...]] = {GPU: ("gpu_mj",), MODULE: ("cpu_total_mj", "gpu_mj", "ane_mj")}
"""What is added up: of the module the same as powermetrics' combined power."""
_NO_POWER = {"power_w": f"{_NAME} counts energy; power is its rise"}


def cards(chip: Chip) -> list[Card]:
    """GPU and module, each where all its parts are counted. Raises: Unavailable without the binding, or where nothing is."""
    try:
        monitor = importlib.import_module("zeus_apple_silicon").AppleEnergyMonitor()
    except ImportError as error:
        raise Unavailable(f"{_NAME} can't be imported: {error}", lasting=True) from error
    except RuntimeError as error:
        raise Unavailable(f"{_NAME}: {error}", lasting=True) from error
    told = {uid: attempt(partial(_energy_mj, monitor, parts)) for uid, parts in _PARTS.items()}
    if not any(why is None for _, why, _ in told.values()):
        raise Unavailable(f"{_NAME}: {told[GPU][1]}", lasting=True)
    return [_card(chip, monitor, uid) for uid, (_, why, _) in told.items() if why is None]


def _card(chip: Chip, monitor: Any, uid: str) -> Card:
    raw = partial(_energy_mj, monitor, _PARTS[uid])
    api = f"{_NAME} {' + '.join(_PARTS[uid])}"
    return Card(
        **chip.identity(uid),
        quantities={"energy_j": Quantity(get=lambda: raw() * J_PER_MJ, raw=raw, api=api, unit="mJ")},
        reasons=_NO_POWER,
    )


def _energy_mj(monitor: Any, parts: tuple[str, ...]) -> float:
    """Raises: Unavailable where a part is not counted: the rest would be too little."""
    try:
        told = monitor.get_cumulative_energy()
    except RuntimeError as error:
        raise Unavailable(f"{_NAME}: {error}", lasting=False) from error
    missing = [part for part in parts if getattr(told, part, None) is None]
    if missing:
        raise Unavailable(f"this chip does not tell {', '.join(missing)}", lasting=True)
    total = sum(values.number(getattr(told, part), marks=(MARK_64,)) for part in parts)
    return values.above_0(total, "counter")
