"""CPU packages and their memory through RAPL, and the engine's own processes.

Source: Linux powercap, `Documentation/power/powercap/powercap.rst`: `energy_uj` counts microjoules and wraps at
`max_energy_range_uj`. Intel and AMD share the path. `core` and `uncore` are parts of a package, `psys` holds it: neither is
ever reported, so that packages and dram can be added.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes import rapl
from bench.probes.presence import Roots
from bench.probes.process_tree import ProcessTree
from bench.probes.wire import RawValue
from bench.records import DeviceInfo, ProbeProblem, Reading, SensorInfo
from bench.units import J_PER_UJ

NAME = "cpu"


class CpuProbe:
    """RAPL domains from the start; one `process` device for each tree given to `watch`."""

    name = NAME

    def __init__(self, roots: Roots | None = None, read: rapl.Read = rapl.read_text, clock: Clock = SYSTEM) -> None:
        self._roots = roots or Roots.of(os.environ)
        self._read = read
        self._clock = clock
        self._zones: dict[str, rapl.Zone] = {}
        self._trees: dict[str, ProcessTree] = {}

    def discover(self) -> Discovery:
        zones = rapl.zones(self._roots.sysfs, self._read)
        if not zones:
            return Discovery(problems=(_no_rapl(self._roots),))
        cpu = rapl.cpu_name(self._roots.proc)
        self._zones = {zone.uid: zone for zone in zones}
        devices = tuple(_domain(zone, index, cpu) for index, zone in enumerate(zones))
        locked = [zone for zone in zones if zone.unreadable]
        return Discovery(devices=devices, problems=(_unreadable(locked),) if locked else ())

    def watch(self, pids: Iterable[int]) -> Discovery:
        added = []
        for pid in pids:
            tree = ProcessTree(pid, self._clock)
            uid = f"process:{pid}"
            self._trees[uid] = tree
            added.append(_tree_device(uid, pid, len(self._trees) - 1, tree.host_memory_b))
        return Discovery(devices=tuple(added))

    def sample(self, uid: str) -> Reading:
        if uid in self._trees:
            return self._sample_tree(uid)
        zone = self._zone(uid)
        before_ns = self._clock.monotonic_ns()
        raw_uj = self._read_uj(zone)
        after_ns = self._clock.monotonic_ns()
        return Reading(uid=uid, before_ns=before_ns, after_ns=after_ns, energy_j=raw_uj * J_PER_UJ)

    def raw(self, uid: str) -> tuple[RawValue, ...]:
        """The counter of a domain [uJ]; nothing of a process tree. Raises: ProbeError."""
        if uid in self._trees:
            return ()
        zone = self._zone(uid)
        value = self._read_uj(zone)
        return (RawValue(quantity="energy_j", api=f"powercap {zone.folder.name}/energy_uj", unit="uJ", value=float(value)),)

    def _zone(self, uid: str) -> rapl.Zone:
        zone = self._zones.get(uid)
        if zone is None:
            raise ProbeError(f"the cpu probe has no device {uid!r}")
        return zone

    def _read_uj(self, zone: rapl.Zone) -> int:
        path = zone.folder / "energy_uj"
        try:
            return rapl.microjoules(self._read(path), zone.most_uj)
        except OSError as error:
            raise ProbeError(f"{path}: {error.strerror or error}", hint=rapl.FIX) from error
        except ValueError as error:
            raise ProbeError(f"{path} {error}") from None

    def close(self) -> None:
        self._trees.clear()

    def _sample_tree(self, uid: str) -> Reading:
        before_ns = self._clock.monotonic_ns()
        use = self._trees[uid].sample()
        after_ns = self._clock.monotonic_ns()
        return Reading(uid=uid, before_ns=before_ns, after_ns=after_ns, memory_used_b=use.memory_b, utilisation=use.utilisation)


def _domain(zone: rapl.Zone, index: int, cpu: rapl.CpuName) -> DeviceInfo:
    sensor = SensorInfo(api=f"powercap {zone.folder.name}/energy_uj", unit="uJ", wrap_j=zone.wrap_j)
    return DeviceInfo(
        uid=zone.uid,
        probe=NAME,
        vendor=cpu.vendor,
        name=f"{cpu.model} {zone.label}",
        index=index,
        scope="dram" if zone.kind == "dram" else "cpu_package",
        board=f"rapl:{zone.package}",
        power_limit_w=zone.limit_w,
        energy=None if zone.unreadable else sensor,
        power_reason=zone.unreadable or "RAPL counts energy only: power is its difference over time",
    )


def _tree_device(uid: str, pid: int, index: int, memory_total_b: int) -> DeviceInfo:
    return DeviceInfo(
        uid=uid,
        probe=NAME,
        vendor="host",
        name=f"process tree {pid} (memory: sum of RSS)",
        index=index,
        scope="process",
        memory_total_b=memory_total_b,
        power_reason="no sensor measures the power of one process",
    )


def _unreadable(zones: list[rapl.Zone]) -> ProbeProblem:
    first = zones[0]
    locked = not (first.unreadable or "").startswith("holds")
    why = "; kernels since 5.10 let only root read CPU energy" if locked else ""
    fix = rapl.FIX if locked else "look at the file: the kernel never writes this, so something else is mounted there"
    return ProbeProblem(
        probe=NAME,
        subject=", ".join(zone.uid for zone in zones),
        problem=f"{first.folder / 'energy_uj'}: {first.unreadable}{why}",
        fix=fix,
    )


def _no_rapl(roots: Roots) -> ProbeProblem:
    folder: Path = roots.sysfs / "class/powercap"
    if platform.system() != "Linux":
        problem = f"CPU energy is read through Linux powercap; this is {platform.system()}"
        fix = "CPU energy stays missing here; memory and CPU use of the engine are measured"
    else:
        problem = f"no RAPL here: {folder} has no intel-rapl zone (a virtual machine, a container, or not an x86 CPU)"
        fix = (
            "on bare metal: sudo modprobe intel_rapl_msr; in a container: mount /sys/devices/virtual/powercap and "
            "/sys/class/powercap read-only (Docker also needs --security-opt systempaths=unconfined); in a VM it stays missing"
        )
    return ProbeProblem(probe=NAME, subject="RAPL", problem=problem, fix=fix)
