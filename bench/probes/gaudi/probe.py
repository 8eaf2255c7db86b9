"""Intel Gaudi cards: `libhlml.so`, else `hl-smi`.

The driver numbers cards as it loads them, engines by their slot on the baseboard: `HABANA_VISIBLE_MODULES` takes module ids.
A card runs one process at a time, so nobody else's work can be on the card that an engine holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.gaudi import library, tool


class GaudiProbe(CardProbe):
    """One device a card."""

    name = "gaudi"
    label = "Intel Gaudi"
    fix = (
        "install habanalabs-firmware-tools, which brings libhlml.so and hl-smi "
        f"({library.LIBRARY} names a libhlml.so in another place)"
    )
    seen_fix = "load the driver (sudo modprobe habanalabs); start a container with --runtime=habana -e HABANA_VISIBLE_DEVICES=all"

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        return tool.find(self.env, self.clock)

    def _by_library(self) -> Opened:
        api = library.load(self.env)
        return self.listed(range(library.count(api)), partial(library.card, api, self.clock), partial(library.close, api))
