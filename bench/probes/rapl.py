"""The powercap tree: which zones count, and what each is called.

Source: kernel `drivers/powercap/intel_rapl_common.c`. The same package may appear twice, through MSRs (`intel-rapl`) and
through memory-mapped registers (`intel-rapl-mmio`): it is one package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.probes.presence import beginning
from bench.units import J_PER_UJ

Read = Callable[[Path], str]

FIX = (
    "sudo chmod a+r /sys/class/powercap/intel-rapl*/energy_uj (until the next boot), or for good: put "
    '\'SUBSYSTEM=="powercap", ACTION=="add", RUN+="/bin/chmod a+r /sys%p/energy_uj"\' '
    "into /etc/udev/rules.d/70-rapl.rules; in a container do it on the host and mount /sys/class/powercap read-only"
)
"""The kernel made the counters root-only because fine-grained power leaks secrets (CVE-2020-8694)."""

_ZONE = re.compile(r"(intel-rapl(?:-mmio)?):(\d+)(?::\d+)?")
_PACKAGE = re.compile(r"package-\d+(?:-die-\d+)?")
_W_PER_UW = 1e-6
_MOST_COUNT = (1 << 64) - 1
"""The kernel counts in 64 bits."""
_QUOTED_CHARS = 40
_CPUINFO_B = 1 << 14
_LONGEST_MODEL = 100
_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "hygon"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """One energy counter. `wrap_j`: joules at which it starts again; `most_uj`: the
    largest count that it can show; `unreadable`: why it can't be read, None if it can.
    """

    folder: Path
    package: str
    kind: Literal["package", "dram"]
    wrap_j: float | None
    most_uj: int
    limit_w: float | None
    unreadable: str | None

    @property
    def uid(self) -> str:
        return f"rapl:{self.label}"

    @property
    def label(self) -> str:
        return self.package if self.kind == "package" else f"{self.package}:dram"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuName:
    """Who made the CPU and what it is called."""

    vendor: str
    model: str


def read_text(path: Path) -> str:
    """The text of a sysfs attribute, or its beginning where it is longer than one can be. Raises: OSError."""
    return beginning(path)


def microjoules(text: str, most_uj: int) -> int:
    """The count of an `energy_uj` file [uJ]. Raises: ValueError with what is wrong with it."""
    text = text.strip()
    if not (text.isascii() and text.isdigit()):
        more = "..." if len(text) > _QUOTED_CHARS else ""
        raise ValueError(f"holds {text[:_QUOTED_CHARS]!r}{more}, not a count of microjoules")
    if (found := int(text)) > most_uj:
        raise ValueError(f"holds {text[:_QUOTED_CHARS]}, which is beyond its range of {most_uj} microjoules")
    return found


def zones(sysfs: Path, read: Read) -> list[Zone]:
    """Packages and their dram, each once, in order of package: readable ones win over mirrors that are not."""
    best: dict[str, Zone] = {}
    for folder in _folders(sysfs / "class/powercap"):
        zone = _zone(folder, read)
        if zone is None:
            continue
        known = best.get(zone.uid)
        if known is None or (known.unreadable and not zone.unreadable):
            best[zone.uid] = zone
    return sorted(best.values(), key=lambda zone: (_numbers(zone.package), zone.kind != "package"))


def cpu_name(proc: Path) -> CpuName:
    """From the beginning of `/proc/cpuinfo`; plain words where it does not say."""
    try:
        text = beginning(proc / "cpuinfo", _CPUINFO_B)
    except OSError:
        text = ""
    found = dict(re.findall(r"^(vendor_id|model name)[ \t]*:[ \t]*(.*)$", text, re.MULTILINE))
    model = found.get("model name", "CPU").strip()[:_LONGEST_MODEL]
    return CpuName(vendor=_VENDORS.get(found.get("vendor_id", "").strip(), "cpu"), model=model)


def _folders(root: Path) -> Iterator[Path]:
    """Every zone once, MSR before its mirror. sysfs lists sub-zones beside their parents as well as below them."""
    found: dict[str, Path] = {}
    for pattern in ("intel-rapl*:*", "intel-rapl*/intel-rapl*:*", "intel-rapl*/*/intel-rapl*:*", "intel-rapl*:*/intel-rapl*:*"):
        for folder in root.glob(pattern):
            if _ZONE.fullmatch(folder.name):
                found.setdefault(folder.name, folder)
    yield from (found[name] for name in sorted(found, key=lambda name: ("mmio" in name, _numbers(name))))


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", name))


def _zone(folder: Path, read: Read) -> Zone | None:
    name = _optional(folder / "name", read)
    if name == "dram":
        package, kind = _package_of(folder, read), "dram"
    else:
        package, kind = name, "package"
    if package is None or not _PACKAGE.fullmatch(package):
        return None  # core, uncore, psys, or a name nobody knows: adding it could count the same joules twice
    wrap_uj = _number(folder / "max_energy_range_uj", read)
    most_uj = wrap_uj or _MOST_COUNT
    return Zone(
        folder=folder,
        package=package,
        kind="dram" if kind == "dram" else "package",
        wrap_j=wrap_uj * J_PER_UJ if wrap_uj else None,
        most_uj=most_uj,
        limit_w=_long_term_limit_w(folder, read),
        unreadable=_why_unreadable(folder / "energy_uj", read, most_uj),
    )


def _package_of(folder: Path, read: Read) -> str | None:
    """Name of the parent zone of `intel-rapl:0:1`, which is `intel-rapl:0`, above it or beside it."""
    parent = folder.name.rpartition(":")[0]
    for candidate in (folder.parent, folder.with_name(parent)):
        if candidate.name == parent and (name := _optional(candidate / "name", read)) is not None:
            return name
    return None


def _long_term_limit_w(folder: Path, read: Read) -> float | None:
    """Watts of the constraint called `long_term` (PL1); None where there is none, as on AMD."""
    for number in range(4):
        if _optional(folder / f"constraint_{number}_name", read) == "long_term":
            limit_uw = _number(folder / f"constraint_{number}_power_limit_uw", read)
            return limit_uw * _W_PER_UW if limit_uw else None
    return None


def _why_unreadable(path: Path, read: Read, most_uj: int) -> str | None:
    try:
        microjoules(read(path), most_uj)
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return None


def _optional(path: Path, read: Read) -> str | None:
    try:
        return read(path).strip()
    except OSError:
        return None


def _number(path: Path, read: Read) -> int | None:
    text = _optional(path, read)
    if not text or not (text.isascii() and text.isdigit()):
        return None
    return found if (found := int(text)) <= _MOST_COUNT else None
