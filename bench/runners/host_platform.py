"""Which accelerator this host has a driver for, by its device nodes alone: decides which build of an engine to recommend."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

_NODES = (
    ("cuda", "nvidiactl"),
    ("rocm", "kfd"),
    ("ascend", "davinci_manager"),
    ("gaudi", "hl0"),
    ("gaudi", "accel/accel_controlD0"),
    ("metax", "mxcd"),
    ("mthreads", "mtgpu.0"),
    ("cambricon", "cambricon_dev0"),
    ("cambricon", "cambricon_ctl"),
    ("tpu", "accel0"),
)
_INTEL = "0x8086"


def host_platform() -> str:
    """`cuda`, `rocm`, `ascend`, ..., `metal` on a Mac with Apple silicon, else `cpu`. `BENCH_DEV_ROOT` stands for
    /dev and `BENCH_SYSFS_ROOT` for /sys.
    """
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return "metal"
    dev = Path(os.environ.get("BENCH_DEV_ROOT") or "/dev")
    by_node = next((name for name, node in _NODES if (dev / node).exists()), None)
    return by_node or ("xpu" if _has_intel_card() else "cpu")


def _has_intel_card() -> bool:
    """A discrete card of Intel's: those inside the processor are the first device of their bus."""
    cards = Path(os.environ.get("BENCH_SYSFS_ROOT") or "/sys").glob("class/drm/renderD*/device")
    for card in cards:
        try:
            vendor = (card / "vendor").read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if vendor == _INTEL and not card.resolve().name.endswith(":00:02.0"):
            return True
    return False
