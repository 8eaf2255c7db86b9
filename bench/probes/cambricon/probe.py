"""Cambricon MLU cards: libcndev.so, then `cnmon`.

Management tools and `MLU_VISIBLE_DEVICES` number all devices alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.probes.cambricon import cndev, library, tool
from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.cards import Board


class CambriconProbe(CardProbe):
    """One device a chip. The power of a card of two chips is that of both: the first covers the second."""

    name = "cambricon"
    label = "Cambricon MLU"
    fix = "install the driver's or CNToolkit's libcndev.so (NEUWARE_HOME says where NEUWARE is), or put cnmon on the path"
    seen_fix = (
        "load the driver (sudo modprobe cambricon_drv), or in a container start it with --device=/dev/cambricon_ctl "
        "--device=/dev/cambricon_dev0 and mount libcndev.so"
    )
    repeats_power = True

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        return tool.find(self.env, self.clock)

    def groups(self, boards: Sequence[Board]) -> list[list[Board]]:
        """Chips with one serial number; without it neighbours."""
        named = super().groups(boards)
        known = {board.info.uid for group in named for board in group}
        rest = [board for board in boards if library.is_of_two_chips(board.info.name) and board.info.uid not in known]
        return [*named, *(list(pair) for pair in zip(rest[::2], rest[1::2], strict=False))]

    def _by_library(self) -> Opened:
        api = cndev.load(library.candidates(self.env))
        return self.listed(range(api.count()), partial(library.card, api), api.close)
