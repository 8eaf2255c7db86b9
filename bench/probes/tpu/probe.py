"""Google TPUs: chips by the PCI bus, memory and use by the runtime of the workload that runs on them.

Nothing on a TPU host tells power: no file of the driver, no metric of the runtime. Energy is missing and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.probes.background import Poller
from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.cards import Card, Quantity
from bench.probes.tpu import metrics
from bench.probes.tpu.chips import Chip, chips
from bench.probes.tpu.metrics import Runtime, Told
from bench.probes.values import attempt

_PERIOD_S = 1.0
"""The runtime renews its metrics about that often."""
_FIRST_ANSWER_S = 3.0
"""For a workload that runs already. Where none does the connection is refused at once."""
_UNTOLD = "a TPU tells nobody its {}: there is no interface for it"
_REASONS = {
    name: _UNTOLD.format(what)
    for name, what in (
        ("power_w", "power"),
        ("energy_j", "energy"),
        ("power_limit_w", "power limit"),
        ("temperature_c", "temperature"),
        ("clock_mhz", "clock"),
        ("throttle", "limits in force"),
    )
}


class TpuProbe(CardProbe):
    """One device a chip. A chip runs one process at a time, so nobody else's work can be on that of an engine."""

    name = "tpu"
    label = "TPU"
    fix = "pip install 'tokjoule[tpu]': it brings grpcio, which asks the workload's runtime for memory and use"
    seen_fix = "start a container with --privileged, or with the chips' nodes (/dev/vfio or /dev/accel*)"

    def ways(self) -> Sequence[Way]:
        return (self._by_bus, self._by_runtime)

    def _by_bus(self) -> Opened:
        return Opened(cards=[_card(chip, index) for index, chip in enumerate(chips(self.roots))])

    def _by_runtime(self) -> Opened:
        """Asked again and again in a thread: at the start of a run there is no workload yet that would answer."""
        found = chips(self.roots)
        if not found:
            return Opened(cards=[])
        poller: Poller[Told] = Poller("tpu", Runtime(self.env).read, _PERIOD_S, self.clock)
        attempt(partial(poller.first, _FIRST_ANSWER_S))
        cores = [chip.cores for chip in found]
        return Opened(cards=[_served(poller, chip, cores, index) for index, chip in enumerate(found)], close=poller.close)


def _card(chip: Chip, index: int) -> Card:
    return Card(index=index, pci=chip.pci, name=chip.name, reasons=_REASONS)


def _served(poller: Poller[Told], chip: Chip, cores: Sequence[int], index: int) -> Card:
    def memory_b(name: str) -> int:
        return metrics.memory_b(poller.latest().value, name, cores, index)

    return Card(
        index=index,
        pci=chip.pci,
        quantities={
            "memory_used_b": Quantity(get=partial(memory_b, metrics.USED), api=metrics.USED, unit="B"),
            "memory_total_b": Quantity(get=partial(memory_b, metrics.TOTAL), api=metrics.TOTAL, unit="B"),
            "utilisation": Quantity(get=lambda: metrics.busy(poller.latest().value, cores, index), api=metrics.BUSY, unit="%"),
        },
    )
