"""A stand-in for `zeus-apple-silicon` 1.1.0: its monitor, counters from a JSON file named by FAKE_APPLE_STATE.

Keys: the metrics in mJ (absent: a chip without the channel), `gpu_w` and the like: watts that are added since the monitor began,
`subscription` false for a system that refuses it, `broken` for one that fails.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

_PARTS = ("cpu_total_mj", "dram_mj", "gpu_mj", "gpu_sram_mj", "ane_mj")


def _state() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(Path(os.environ["FAKE_APPLE_STATE"]).read_text(encoding="utf-8"))
    return told


class AppleEnergyMetrics:
    """As the binding gives it: whole millijoules, or None."""

    def __init__(self, told: dict[str, Any], seconds: float) -> None:
        for name in _PARTS:
            begun = told.get(name)
            rate_w = told.get(f"{name.partition('_')[0]}_w", 0)
            setattr(self, name, None if begun is None else int(begun + rate_w * seconds * 1000))


class AppleEnergyMonitor:
    """As the binding's, but for windows."""

    def __init__(self) -> None:
        if not _state().get("subscription", True):
            raise RuntimeError("Failed to create IOReport subscription.")
        self._began = time.monotonic()

    def get_cumulative_energy(self) -> AppleEnergyMetrics:
        told = _state()
        if told.get("broken"):
            raise RuntimeError("Failed to convert CFString to std::string")
        return AppleEnergyMetrics(told, time.monotonic() - self._began)
