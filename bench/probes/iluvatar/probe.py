"""Iluvatar GPUs: `libixml.so`, else `ixsmi`. The library exports NVML's names: it is loaded beside NVIDIA's, never into the open.

A BI-V150 is two chips with one power sensor: the second chip tells the power of both, the first none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from bench.errors import ProbeError
from bench.probes import cards
from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.cards import Board
from bench.probes.iluvatar import ixml, library, tool
from bench.probes.iluvatar.ixml import Device
from bench.probes.values import Unavailable
from bench.records import ProbeProblem

_TWO_CHIPS = re.compile(r"\bBI-V150\b")
_BUSES_OF_A_BOARD = 8
"""Chips of a board sit behind its own switch: their buses are a few numbers apart."""


class IluvatarProbe(CardProbe):
    """One device a chip; power once a board."""

    name = "iluvatar"
    label = "Iluvatar GPU"
    fix = "install CoreX, which brings libixml.so and ixsmi (COREX_HOME says where it is, /usr/local/corex if nothing does)"
    seen_fix = (
        "load the driver (sudo modprobe iluvatar); start a container with --device=/dev/iluvatar0 ... and -v /usr/local/corex:"
        "/usr/local/corex:ro"
    )
    trusts_counter = False

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        return tool.find(self.env, self.clock)

    def groups(self, boards: Sequence[Board]) -> list[list[Board]]:
        return [*cards.of_one_board(boards), *_pairs(boards)]

    def _by_library(self) -> Opened:
        api = ixml.load(self.env)
        devices: list[Device] = []
        problems: list[ProbeProblem] = []
        for index in range(ixml.count(api)):
            try:
                devices.append(ixml.device(api, index))
            except (Unavailable, ProbeError) as error:
                problems.append(self.problem(f"{self.name}:{index}", str(error), cards.LOST_FIX))
        driver = library.told(lambda: ixml.driver(api))
        return Opened(cards=library.cards(devices, driver), problems=tuple(problems), close=lambda: ixml.close(api))


def _pairs(made: Sequence[Board]) -> list[list[Board]]:
    """Neighbouring chips of a BI-V150 where nothing says which board they are on."""
    chips = [b for b in made if _TWO_CHIPS.search(b.info.name) and cards.first_of(b.cards, "board") is None]
    return [[first, second] for first, second in pairwise(chips) if not first.power and second.power and _beside(first, second)]


def _beside(first: Board, second: Board) -> bool:
    if first.info.pci is None or second.info.pci is None:
        return False
    (domain, bus), (other_domain, other_bus) = (pci.split(":")[:2] for pci in (first.info.pci, second.info.pci))
    return domain == other_domain and 0 < int(other_bus, 16) - int(bus, 16) < _BUSES_OF_A_BOARD
