"""Biren GPUs: BRML, else `brsmi`. Written from the header and from scripts that use the tool; nobody has run it on a card yet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.probes.biren import library, tool
from bench.probes.card_probe import CardProbe, Opened, Way


class BirenProbe(CardProbe):
    """One device a GPU; SVI instances are not told apart. There is no energy counter: joules are the integral of power."""

    name = "biren"
    label = "Biren GPU"
    fix = (
        "install the BIRENSUPA driver, which brings libbiren-ml.so and brsmi "
        f"({library.LIBRARY} names a libbiren-ml.so in another place)"
    )
    seen_fix = (
        "load the driver (sudo modprobe biren); start a container with the biren runtime, or with --device=/dev/biren/card_0 and "
        "so on and libbiren-ml.so mounted"
    )

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        return tool.find(self.env, self.clock)

    def _by_library(self) -> Opened:
        api = library.load(self.env)
        return self.listed(range(library.count(api)), partial(library.card, api), partial(library.close, api))
