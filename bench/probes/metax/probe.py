"""MetaX GPUs: libmxsml.so, then `mx-smi` where it tells no power.

The library ignores `MACA_VISIBLE_DEVICES`. A C600 board shows as two devices, each with the board's watts and the board's limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.metax import library
from bench.probes.metax.tool import MxSmi, find
from bench.probes.tool import opened
from bench.records import ProbeProblem

_FAULTY_FIX = "`mx-smi --show-unavailable-reason` and dmesg tell more; the other devices are measured"


class MetaxProbe(CardProbe):
    """One device a GPU or die; power once a board."""

    name = "metax"
    label = "MetaX GPU"
    fix = "install MetaX's driver package, which brings libmxsml.so and mx-smi; MACA_PATH says where MACA is"
    seen_fix = "in a container start it with --device=/dev/mxcd --device=/dev/dri, and mount /opt/mxdriver"
    repeats_power = True

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        found = find(self.env)
        return None if found is None else lambda: self._by_tool(found)

    def _by_library(self) -> Opened:
        cards, refused = library.cards(library.load(self.env))
        return Opened(cards=cards, problems=self._faulty(refused))

    def _by_tool(self, found: MxSmi) -> Opened:
        way = opened("mx-smi", found.read, self.clock)
        return replace(way, problems=self._faulty(found.refused))

    def _faulty(self, refused: Sequence[tuple[str, str]]) -> tuple[ProbeProblem, ...]:
        return tuple(self.problem(subject, why, _FAULTY_FIX) for subject, why in refused)
