from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest

from bench.errors import ProbeError
from bench.probes import rapl
from bench.probes.cpu import CpuProbe
from bench.probes.presence import Roots
from tests.probes.trees import AMD, AMD_RANGE_UJ, INTEL_DRAM_RANGE_UJ, INTEL_RANGE_UJ, TWO_SOCKETS, replace_text, write_powercap

INTEL_CPUINFO = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n"
AMD_CPUINFO = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9654 96-Core Processor\n"


def _denied(path: Path) -> str:
    """As the kernel does since 5.10; the tests may run as root, whom no mode bits stop."""
    if path.name == "energy_uj":
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return rapl.read_text(path)


def test_two_sockets_with_their_memory(roots: Roots) -> None:
    write_powercap(roots, TWO_SOCKETS)
    replace_text(roots.proc / "cpuinfo", INTEL_CPUINFO)
    found = CpuProbe(roots).discover()
    assert found.problems == ()
    assert [(d.uid, d.scope, d.index, d.board) for d in found.devices] == [
        ("rapl:package-0", "cpu_package", 0, "rapl:package-0"),
        ("rapl:package-0:dram", "dram", 1, "rapl:package-0"),
        ("rapl:package-1", "cpu_package", 2, "rapl:package-1"),
        ("rapl:package-1:dram", "dram", 3, "rapl:package-1"),
    ]
    first, dram = found.devices[:2]
    assert (first.vendor, first.name) == ("intel", "Intel(R) Xeon(R) Platinum 8480+ package-0")
    assert first.power_limit_w == pytest.approx(270.0)
    assert first.power is None
    assert first.energy is not None
    assert dram.energy is not None
    assert first.energy.wrap_j == pytest.approx(INTEL_RANGE_UJ / 1e6)
    assert dram.energy.wrap_j == pytest.approx(INTEL_DRAM_RANGE_UJ / 1e6)


def test_amd_has_packages_only_and_core_is_never_added(roots: Roots) -> None:
    write_powercap(roots, AMD)
    replace_text(roots.proc / "cpuinfo", AMD_CPUINFO)
    (device,) = CpuProbe(roots).discover().devices
    assert (device.uid, device.vendor, device.power_limit_w) == ("rapl:package-0", "amd", None)
    assert device.energy is not None
    assert device.energy.wrap_j == pytest.approx(AMD_RANGE_UJ / 1e6)


def test_microjoules_become_joules_and_wraps_are_left_to_the_core(roots: Roots) -> None:
    powercap = write_powercap(roots, TWO_SOCKETS)
    probe = CpuProbe(roots)
    probe.discover()
    seen = []
    for raw in (262100000000, 262118000000, 262136000000, 10671150, 28671150):
        replace_text(powercap / "intel-rapl/intel-rapl:0/energy_uj", f"{raw}\n")
        energy_j = probe.sample("rapl:package-0").energy_j
        assert energy_j is not None
        seen.append(energy_j)
    assert seen == pytest.approx([262100.0, 262118.0, 262136.0, 10.67115, 28.67115])
    wrap_j = INTEL_RANGE_UJ / 1e6
    steps = [(b - a) % wrap_j for a, b in itertools.pairwise(seen)]
    assert steps == pytest.approx([18.0] * 4)


def test_zones_flat_as_class_links_count_once(roots: Roots) -> None:
    """sysfs shows each zone as a link in the class folder, and below its parent, and sub-zones in both places."""
    powercap = write_powercap(roots, TWO_SOCKETS)
    for name in ("intel-rapl:0", "intel-rapl:1"):
        (powercap / name).symlink_to(powercap / "intel-rapl" / name)
        (powercap / f"{name}:0").symlink_to(powercap / "intel-rapl" / name / f"{name}:0")
    assert len(CpuProbe(roots).discover().devices) == 4


def test_only_flat_links(roots: Roots) -> None:
    write_powercap(roots, {"/".join(name.split("/")[-2:]): text for name, text in TWO_SOCKETS.items()})
    assert [d.uid for d in CpuProbe(roots).discover().devices] == [
        "rapl:package-0",
        "rapl:package-0:dram",
        "rapl:package-1",
        "rapl:package-1:dram",
    ]


def test_a_mirror_through_mmio_is_the_same_package(roots: Roots) -> None:
    mirror = {name.replace("intel-rapl", "intel-rapl-mmio"): text for name, text in TWO_SOCKETS.items()}
    write_powercap(roots, TWO_SOCKETS | mirror)
    devices = CpuProbe(roots).discover().devices
    assert len(devices) == 4
    assert all(d.energy is not None and "mmio" not in d.energy.api for d in devices)


def test_only_the_mirror_is_readable(roots: Roots) -> None:
    mirror = {name.replace("intel-rapl", "intel-rapl-mmio"): text for name, text in TWO_SOCKETS.items()}
    write_powercap(roots, TWO_SOCKETS | mirror)

    def read(path: Path) -> str:
        return rapl.read_text(path) if "mmio" in str(path) else _denied(path)

    probe = CpuProbe(roots, read)
    found = probe.discover()
    assert found.problems == ()
    assert all(d.energy is not None and "mmio" in d.energy.api for d in found.devices)
    assert probe.sample("rapl:package-0").energy_j is not None


def test_psys_uncore_and_strangers_are_left_out(roots: Roots) -> None:
    write_powercap(
        roots,
        {
            **AMD,
            "intel-rapl/intel-rapl:1/name": "psys",
            "intel-rapl/intel-rapl:1/energy_uj": "1",
            "intel-rapl/intel-rapl:0/intel-rapl:0:1/name": "uncore",
            "intel-rapl/intel-rapl:0/intel-rapl:0:1/energy_uj": "1",
            "intel-rapl/intel-rapl:2/name": "somewhere-else",
            "intel-rapl/intel-rapl:2/energy_uj": "1",
            "dtpm/name": "package-0",
        },
    )
    assert [d.uid for d in CpuProbe(roots).discover().devices] == ["rapl:package-0"]


def test_dies_are_packages_of_their_own_in_order(roots: Roots) -> None:
    files = {}
    for number, name in enumerate(("package-10-die-0", "package-2-die-1", "package-2-die-0")):
        files[f"intel-rapl/intel-rapl:{number}/name"] = name
        files[f"intel-rapl/intel-rapl:{number}/energy_uj"] = "5"
    write_powercap(roots, files)
    devices = CpuProbe(roots).discover().devices
    assert [d.uid for d in devices] == ["rapl:package-2-die-0", "rapl:package-2-die-1", "rapl:package-10-die-0"]


def test_unreadable_counters_are_listed_with_the_fix(roots: Roots) -> None:
    write_powercap(roots, TWO_SOCKETS)
    probe = CpuProbe(roots, _denied)
    found = probe.discover()
    assert [d.energy for d in found.devices] == [None] * 4
    assert {d.power_reason for d in found.devices} == {"Permission denied"}
    (problem,) = found.problems
    assert "rapl:package-0, rapl:package-0:dram" in problem.subject
    assert "chmod a+r" in problem.fix
    assert "udev" in problem.fix
    with pytest.raises(ProbeError, match="Permission denied") as caught:
        probe.sample("rapl:package-0")
    assert caught.value.hint == rapl.FIX


def test_a_folder_in_place_of_the_counter_is_unreadable_too(roots: Roots) -> None:
    powercap = write_powercap(roots, AMD)
    counter = powercap / "intel-rapl/intel-rapl:0/energy_uj"
    counter.unlink()
    counter.mkdir()
    found = CpuProbe(roots).discover()
    assert len(found.problems) == 1
    assert found.devices[0].energy is None


@pytest.mark.parametrize("text", ["", "\n", "-5", "N/A", "12.5"])
def test_what_is_no_count_is_never_a_number(roots: Roots, text: str) -> None:
    powercap = write_powercap(roots, AMD)
    probe = CpuProbe(roots)
    probe.discover()
    replace_text(powercap / "intel-rapl/intel-rapl:0/energy_uj", text)
    with pytest.raises(ProbeError, match="not a count"):
        probe.sample("rapl:package-0")


@pytest.mark.parametrize("text", ["", "0", "N/A"])
def test_an_unknown_range_is_none(roots: Roots, text: str) -> None:
    write_powercap(roots, AMD | {"intel-rapl/intel-rapl:0/max_energy_range_uj": text})
    (device,) = CpuProbe(roots).discover().devices
    assert device.energy is not None
    assert device.energy.wrap_j is None


def test_a_counter_that_vanishes_is_an_error_of_its_own_domain(roots: Roots) -> None:
    powercap = write_powercap(roots, TWO_SOCKETS)
    probe = CpuProbe(roots)
    probe.discover()
    (powercap / "intel-rapl/intel-rapl:0/energy_uj").unlink()
    with pytest.raises(ProbeError, match="No such file"):
        probe.sample("rapl:package-0")
    assert probe.sample("rapl:package-1").energy_j == pytest.approx(1122.334455)


def test_no_rapl_says_so(roots: Roots) -> None:
    found = CpuProbe(roots).discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert str(roots.sysfs / "class/powercap") in problem.problem or "this is" in problem.problem
