"""Huawei Ascend NPUs: DCMI, else `npu-smi`. One device a chip or die; power once a card where it is measured once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.probes.ascend import library, slices, tool
from bench.probes.card_probe import CardProbe, Opened, Way

_LOST_FIX = "npu-smi info -t health and dmesg tell more; the other devices are measured"


class AscendProbe(CardProbe):
    """910 (A, B, C), 310, 310P and 950. There is no energy counter: joules are the integral of power."""

    name = "ascend"
    label = "Ascend NPU"
    fix = (
        "be root or in the driver's group (HwHiAiUser), and let ASCEND_DRIVER_PATH name the driver's folder where it is not "
        "/usr/local/Ascend/driver; DCMI serves one container at a time (-8020)"
    )
    seen_fix = (
        "in a container add --device=/dev/davinci0 (and the others), /dev/davinci_manager, /dev/devmm_svm and /dev/hisi_hdc, and "
        "mount /usr/local/Ascend/driver; DCMI serves one container at a time (-8020)"
    )

    def ways(self) -> Sequence[Way]:
        return (self._by_library,)

    def tool(self) -> Way | None:
        found = tool.find(self.env)
        return None if found is None else lambda: self._marked(tool.open_cards(found, self.clock))

    def _by_library(self) -> Opened:
        found = library.open_cards(self.env, self.clock)
        problems = tuple(self.problem(subject, why, _LOST_FIX) for subject, why in found.failures.items())
        return self._marked(Opened(cards=found.cards, problems=problems, close=found.close))

    def _marked(self, opened: Opened) -> Opened:
        return replace(opened, cards=slices.marked(opened.cards, self.roots.dev))
