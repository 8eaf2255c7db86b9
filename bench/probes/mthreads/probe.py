"""Moore Threads GPUs: `pymtml` on libmtml, then `mthreads-gmi` where that tells no power.

The library ignores `MUSA_VISIBLE_DEVICES`. A card cut into MPC instances is listed beside them; its watts are those of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.mthreads import library
from bench.probes.mthreads.tool import find
from bench.probes.tool import opened


class MthreadsProbe(CardProbe):
    """One device a GPU, or an MPC instance of one that the card covers."""

    name = "mthreads"
    label = "Moore Threads GPU"
    fix = "pip install 'tokjoule[mthreads]', and install the driver's package mtml, which brings libmtml.so"
    seen_fix = "in a container use MTHREADS_VISIBLE_DEVICES=all with the mthreads runtime, or --device=/dev/mtgpu.0 and so on"

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        read = find(self.env)
        return None if read is None else lambda: opened("mthreads-gmi", read, self.clock)

    def _by_library(self) -> Opened:
        api = library.load()
        cards, refused = library.cards(api)
        fix = "`mthreads-gmi` and dmesg tell more; the other devices are measured"
        return Opened(cards=cards, problems=tuple(self.problem(*one, fix) for one in refused), close=api.close)
