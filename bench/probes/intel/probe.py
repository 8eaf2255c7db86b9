"""Intel GPUs: Level Zero Sysman, then the files of `xe` and `i915`, then `xpu-smi`.

A CPU's own GPU is no accelerator, unless Sysman counts its energy: that is then of CPU and GPU together.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.probes.card_probe import CardProbe, Opened, Way
from bench.probes.intel import hwmon, library, meter, sysman, tool


class IntelProbe(CardProbe):
    """One device a card. Its energy counter tells power too, over the last quarter of a second."""

    name = "intel"
    label = "Intel GPU"
    fix = (
        "install Intel's Level Zero driver (intel-level-zero-gpu or libze-intel-gpu1) with its loader (libze1): "
        f"it tells memory ({sysman.LIBRARY} names a loader in another place)"
    )
    seen_fix = (
        "load the driver xe or i915; in a container start it with --device=/dev/dri and the group render, "
        "and install Intel's Level Zero driver there"
    )

    def ways(self) -> Sequence[Way]:
        return (self._by_library, self._by_files)

    def tool(self) -> Way | None:
        return tool.find(self.env, self.clock)

    def _by_library(self) -> Opened:
        api = sysman.load(self.env)
        devices = library.devices(api)
        called = library.numbers(api, devices, self.env)
        opened = self.listed(range(len(devices)), lambda index: library.card(api, devices[index], index, called[index]))
        self._watch(opened)
        return opened

    def _by_files(self) -> Opened:
        opened = Opened(cards=hwmon.cards(self.roots, self.env, self.clock))
        self._watch(opened)
        return opened

    def _watch(self, opened: Opened) -> None:
        """Power needs counters that have been watched for a while."""
        if opened.cards:
            self.clock.sleep(meter.WINDOW_S)
