"""Enflame GCU cards: one of the two interfaces of libefml.so, then `efsmi`.

`TOPS_VISIBLE_DEVICES` numbers cards as the library does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.cards import Card
from bench.probes.enflame import library, tool
from bench.probes.tool import Told
from bench.probes.values import attempt


class EnflameProbe(CardProbe):
    """One device a card. A virtual function (SR-IOV) tells no power."""

    name = "enflame"
    label = "Enflame GCU"
    fix = (
        f"install the driver's package, which brings efsmi and libefml.so ({library.LIBRARY} names a libefml.so in another place)"
    )
    seen_fix = (
        "load the driver; in a container start it with --device=/dev/gcu0 and mount /usr/local/efsmi and /usr/lib/libefml.so"
    )

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        return tool.find(self.env, self.clock)

    def _by_library(self) -> Opened:
        api = library.load(self.env)
        found = self.listed(range(api.count()), api.card, api.close)
        if any(card.driver is None for card in found.cards):  # the next interface tells no versions, and often no UUID
            names = attempt(lambda: tool.query(self.env))[0] or ()
            found = replace(found, cards=[_with_names(card, names) for card in found.cards])
        return found


def _with_names(card: Card, names: Sequence[Told]) -> Card:
    told = next((one for one in names if card.pci is not None and one.pci == card.pci), None)
    if told is None:
        return card
    return replace(card, unique_id=card.unique_id or told.unique_id, driver=card.driver or told.driver)
