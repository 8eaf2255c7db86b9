"""Chips cut into vNPUs, by the device nodes of the slices: DCMI serves a slice as if it were a chip.

A slice is `/dev/vdavinciN` on the host and, as container runtimes map it, `/dev/davinciN` within: N is 100 or more, 16 of
them a chip.

Sources: Ascend Docker Runtime (mounts); `npu-smi set -t create-vnpu`, whose numbers lie in [id * 16 + 100, id * 16 + 115].
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.probes.cards import Card

_FIRST, _OF_A_CHIP = 100, 16
_NODE = re.compile(r"v?davinci(\d+)")


def marked(cards: Sequence[Card], dev: Path) -> list[Card]:
    """The cards, those of cut chips marked as shared; all of them where a slice is of none that is listed."""
    slices = _slices(dev)
    of_chip = {card.visible_as: [n for n in slices if str((n - _FIRST) // _OF_A_CHIP) == card.visible_as] for card in cards}
    known = {n for numbers in of_chip.values() for n in numbers}
    if not slices <= known:
        of_chip = {card.visible_as: sorted(slices) for card in cards}
    return [replace(card, shared=_why(of_chip[card.visible_as])) for card in cards]


def _slices(dev: Path) -> set[int]:
    numbers = (int(found[1]) for node in dev.glob("*davinci*") if (found := _NODE.fullmatch(node.name)))
    return {number for number in numbers if number >= _FIRST}


def _why(slices: Sequence[int]) -> str | None:
    return f"cut into vNPUs ({', '.join(str(n) for n in sorted(slices))}), which share its power" if slices else None
