"""Signs of a vendor's hardware that need no vendor library: PCI ids, device nodes, files. Nothing here loads a library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NVIDIA_PCI = "0x10de"
_DISPLAY_OR_ACCELERATOR = ("0x03", "0x12")
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)
NVML_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the kernel's trees are. Another root lets a container, or a test, show the probes another machine."""

    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Roots:
        """Roots from `BENCH_SYSFS_ROOT`, `BENCH_PROC_ROOT` and `BENCH_DEV_ROOT`."""
        return cls(
            sysfs=Path(env.get("BENCH_SYSFS_ROOT") or "/sys"),
            proc=Path(env.get("BENCH_PROC_ROOT") or "/proc"),
            dev=Path(env.get("BENCH_DEV_ROOT") or "/dev"),
        )


def nvidia_card(roots: Roots) -> str | None:
    """The first sign of an NVIDIA card or its kernel driver, in words; None where there is none."""
    for node in sorted(roots.dev.glob("nvidia*")):
        return f"device node {node}"
    if (roots.proc / "driver/nvidia").exists():
        return f"{roots.proc}/driver/nvidia"
    for vendor in sorted(roots.sysfs.glob("bus/pci/devices/*/vendor")):
        if _first_word(vendor) == _NVIDIA_PCI and _first_word(vendor.with_name("class")).startswith(_DISPLAY_OR_ACCELERATOR):
            return f"PCI device {vendor.parent.name}"
    return None


def nvidia_library(env: Mapping[str, str]) -> str | None:
    """Path of the driver's management library where a loader would look; None where it is not (it is not loaded)."""
    folders = [*filter(None, env.get("LD_LIBRARY_PATH", "").split(":")), *_LIBRARY_FOLDERS]
    for folder in folders:
        library = Path(folder) / NVML_LIBRARY
        if library.exists():
            return str(library)
    return None


def _first_word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
