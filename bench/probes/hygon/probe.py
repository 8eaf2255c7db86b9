"""Hygon DCUs: `librocm_smi64.so`, then the kernel's files for what it lacks, then `hy-smi`.

The library numbers all cards and ignores `HIP_VISIBLE_DEVICES`. Its name is also that of ROCm's, and its driver makes AMD's
`/dev/kfd`: only a card on the PCI bus, or `/dev/mkfd`, shows that Hygon's are here.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.probes.amd import sysfs
from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.hygon import library, rsmi, tool
from bench.probes.values import Unavailable

_DRIVERS = ("hycu", "hydcu")


class HygonProbe(CardProbe):
    """One device a card."""

    name = "hygon"
    label = "Hygon DCU"
    fix = (
        "install Hygon's driver, which brings /opt/hyhal with librocm_smi64.so and hy-smi; in a container mount it "
        "(-v /opt/hyhal:/opt/hyhal:ro), or let ROCM_SMI_LIB_PATH name the library's folder"
    )
    seen_fix = (
        "load Hygon's driver (sudo modprobe hydcu, or hycu); start a container with --device=/dev/kfd --device=/dev/mkfd "
        "--device=/dev/dri --group-add video -v /opt/hyhal:/opt/hyhal:ro"
    )
    trusts_counter = False

    def ways(self) -> Sequence[Way]:
        return (self._by_library, self._by_files) if self.sign() else ()

    def tool(self) -> Way | None:
        return tool.find(self.env, self.clock)

    def _by_library(self) -> Opened:
        api = rsmi.load(self.env)
        try:
            return Opened(cards=library.cards(api), close=lambda: rsmi.close(api))
        except Unavailable:
            rsmi.close(api)
            raise

    def _by_files(self) -> Opened:
        return Opened(cards=sysfs.cards(self.roots, "hygon", _DRIVERS))
