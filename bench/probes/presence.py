"""Signs of a vendor's hardware that need no vendor library: PCI ids, device nodes, files. Nothing here loads a library."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """How a vendor's cards show without its library: its PCI vendor id with the beginnings of device classes, device nodes under
    /dev, files under /proc, and the names of libraries where a loader would look. `devices`: ids of cards where a vendor makes
    other things too. A device at an address in `built_in` is part of the CPU, and no sign of a card.

    Sources: pci.ids and the vendors' drivers.
    """

    pci: str | None = None
    classes: tuple[str, ...] = _DISPLAY_OR_ACCELERATOR
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    proc: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    built_in: tuple[str, ...] = ()


_ANY_CLASS = ("0x",)
TPU_IDS = ("0x0027", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076")
"""v2 and v3, v4, v5p, v5e, v6e, 7x: network cards and disks of Google's clouds have the same vendor."""
SIGNS: Mapping[str, Signs] = {
    "nvidia": Signs(pci="0x10de", nodes=("nvidia*",), proc=("driver/nvidia",), libraries=(NVML_LIBRARY,)),
    "amd": Signs(pci="0x1002", nodes=("kfd",)),
    "ascend": Signs(pci="0x19e5", classes=("0x12",), nodes=("davinci_manager", "davinci[0-9]*")),
    "biren": Signs(pci="0x1ee0", nodes=("biren/card_*",)),
    "cambricon": Signs(pci="0xcabc", nodes=("cambricon_ctl", "cambricon_dev*")),
    "enflame": Signs(pci="0x1e36", nodes=("gcu[0-9]*",)),
    "gaudi": Signs(pci="0x1da3", nodes=("accel/accel*_controlD*",)),
    "hygon": Signs(pci="0x1d94", nodes=("mkfd",)),
    "iluvatar": Signs(pci="0x1e3e", nodes=("iluvatar*",)),
    "intel": Signs(pci="0x8086", classes=("0x03",), built_in=("0000:00:02.0",)),
    "metax": Signs(pci="0x9999", nodes=("mxcd",)),
    "mthreads": Signs(pci="0x1ed5", nodes=("mtgpu.*",)),
    "tpu": Signs(pci="0x1ae0", classes=_ANY_CLASS, devices=TPU_IDS),
}


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


def card(roots: Roots, vendor: str) -> str | None:
    """The first sign of a vendor's card or of its kernel driver, in words; None where there is none."""
    signs = SIGNS[vendor]
    for pattern in signs.nodes:
        for node in sorted(roots.dev.glob(pattern)):
            return f"device node {node}"
    for name in signs.proc:
        if (roots.proc / name).exists():
            return str(roots.proc / name)
    cards = (folder.name for folder in pci_devices(roots, vendor) if folder.name not in signs.built_in)
    return next((f"PCI device {address}" for address in cards), None)


def pci_devices(roots: Roots, vendor: str) -> list[Path]:
    """The folders of a vendor's cards on the PCI bus, in the order of their addresses."""
    signs = SIGNS[vendor]
    found = (path.parent for path in sorted(roots.sysfs.glob("bus/pci/devices/*/vendor")) if _first_word(path) == signs.pci)
    kinds = (folder for folder in found if _first_word(folder / "class").startswith(signs.classes))
    return [folder for folder in kinds if not signs.devices or _first_word(folder / "device") in signs.devices]


def library(env: Mapping[str, str], vendor: str) -> str | None:
    """Path of a driver's library where a loader would look; None where it is not (it is not loaded)."""
    folders = [*filter(None, env.get("LD_LIBRARY_PATH", "").split(":")), *_LIBRARY_FOLDERS]
    paths = (Path(folder) / name for folder in folders for name in SIGNS[vendor].libraries)
    return next((str(path) for path in paths if path.exists()), None)


def opened_by_signs(env: Mapping[str, str]) -> tuple[str, ...]:
    """Probes worth opening: those of vendors that are here, and the meters that somebody has set up."""
    roots = Roots.of(env)
    vendors = {name: card(roots, name) or library(env, name) for name in SIGNS}
    vendors["amd"] = vendors["amd"] or amd_library(env)
    vendors["apple"] = apple_silicon(env)
    meters = {
        "external": env.get("BENCH_EXTERNAL_CONFIG"),
        "node": env.get("BENCH_NODE_POWER"),
        "replay": env.get("BENCH_REPLAY_FILE"),
        "sim": env.get("BENCH_SIM_EMISSION"),
    }
    return tuple(name for name, sign in (vendors | meters).items() if sign)


def apple_silicon(env: Mapping[str, str]) -> str | None:
    """The platform, where it is macOS on Apple silicon (or `BENCH_PLATFORM` says so); None elsewhere."""
    here = env.get("BENCH_PLATFORM") or f"{sys.platform}-{platform.machine()}"
    return f"platform {here}" if here == "darwin-arm64" else None


def amd_library(env: Mapping[str, str]) -> str | None:
    """Path of AMD's management library in the ROCm installed here; None where it is not (it is not loaded)."""
    library = rocm_root(env) / "lib/libamd_smi.so"
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
