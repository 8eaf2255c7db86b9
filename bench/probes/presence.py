"""Signs of a vendor's hardware that need no vendor library: PCI ids, device nodes, files. Nothing here loads a library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NVIDIA_PCI = "0x10de"
AMD_PCI = "0x1002"
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
ATTRIBUTE_B = 64
"""Longest value of a sysfs attribute that is read here [bytes]: a number, a name, an id."""
NVML_LIBRARY = "libnvidia-ml.so.1"
AMD_LIBRARY = "libamd_smi.so"


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
    return next((f"PCI device {folder.name}" for folder in display_devices(roots, _NVIDIA_PCI)), None)


def amd_card(roots: Roots) -> str | None:
    """The first sign of an AMD card or of its compute driver, in words; None where there is none."""
    kfd = roots.dev / "kfd"
    if kfd.exists():
        return f"device node {kfd}"
    return next((f"PCI device {folder.name}" for folder in display_devices(roots, AMD_PCI)), None)


def display_devices(roots: Roots, vendor: str) -> list[Path]:
    """The folders of a vendor's display controllers and accelerators, in PCI order."""
    found = (path.parent for path in sorted(roots.sysfs.glob("bus/pci/devices/*/vendor")) if _first_word(path) == vendor)
    return [folder for folder in found if _first_word(folder / "class").startswith(_DISPLAY_OR_ACCELERATOR)]


def nvidia_library(env: Mapping[str, str]) -> str | None:
    """Path of the driver's management library where a loader would look; None where it is not (it is not loaded)."""
    folders = [*filter(None, env.get("LD_LIBRARY_PATH", "").split(":")), *_LIBRARY_FOLDERS]
    for folder in folders:
        library = Path(folder) / NVML_LIBRARY
        if library.exists():
            return str(library)
    return None


def opened_by_signs(env: Mapping[str, str]) -> tuple[str, ...]:
    """Probes worth opening: those of vendors that are here, and the meters that somebody has set up."""
    roots = Roots.of(env)
    vendors = {
        "nvidia": nvidia_card(roots) or nvidia_library(env),
        "amd": amd_card(roots) or amd_library(env),
    }
    meters = {
        "external": env.get("BENCH_EXTERNAL_CONFIG"),
        "node": env.get("BENCH_NODE_POWER"),
        "replay": env.get("BENCH_REPLAY_FILE"),
        "sim": env.get("BENCH_SIM_EMISSION"),
    }
    return tuple(name for name, sign in (vendors | meters).items() if sign)


def amd_library(env: Mapping[str, str]) -> str | None:
    """Path of AMD's management library in the ROCm installed here; None where it is not (it is not loaded)."""
    library = rocm_root(env) / "lib" / AMD_LIBRARY
    return str(library) if library.exists() else None


def rocm_root(env: Mapping[str, str]) -> Path:
    """Where ROCm is installed: `BENCH_ROCM_ROOT`, else `ROCM_HOME`, `ROCM_PATH`, `/opt/rocm`."""
    named = env.get("BENCH_ROCM_ROOT") or env.get("ROCM_HOME") or env.get("ROCM_PATH")
    return Path(named or "/opt/rocm")


def beginning(path: Path, limit_b: int = ATTRIBUTE_B) -> str:
    """The first `limit_b` bytes of a file as ASCII: what a kernel's file holds is short. Raises: OSError."""
    with path.open("rb") as file:
        return file.read(limit_b).decode("ascii", "replace")


def _first_word(path: Path) -> str:
    try:
        return beginning(path).strip()
    except OSError:
        return ""
