"""Kernel files and settings that hold what they can't: bounded, quoted in brief, and never a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.errors import ProbeError, UsageError
from bench.probes.cpu import CpuProbe
from bench.probes.host import ChildProbeHost
from bench.probes.presence import Roots, beginning, card
from tests.probes.trees import AMD, AMD_RANGE_UJ, INTEL_RANGE_UJ, TWO_SOCKETS, add_nvidia_card, replace_text, write_powercap

ENERGY = "intel-rapl/intel-rapl:0/energy_uj"
RANGE = "intel-rapl/intel-rapl:0/max_energy_range_uj"
NOISE = [
    "99999999999999999999999",
    "9" * 5000,
    "x" * 3_000_000,
    "\x00\x1b[2J",
    "-1",
    "1.5",
    "",
    "²",
    "0x10",
    str(AMD_RANGE_UJ + 1),
]


@pytest.mark.parametrize("text", NOISE)
def test_a_counter_that_can_not_be_is_unreadable_with_its_reason(roots: Roots, text: str) -> None:
    write_powercap(roots, AMD | {ENERGY: text})
    probe = CpuProbe(roots)
    found = probe.discover()
    (device,) = found.devices
    assert device.energy is None
    assert device.power_reason is not None
    assert device.power_reason.startswith("holds ")
    assert len(device.power_reason) < 200
    (problem,) = found.problems
    assert len(problem.problem) < 400
    assert "only root" not in problem.problem
    with pytest.raises(ProbeError) as caught:
        probe.sample(device.uid)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", NOISE)
def test_a_counter_that_turns_into_noise_is_an_error_of_one_sample(roots: Roots, text: str) -> None:
    powercap = write_powercap(roots, AMD)
    probe = CpuProbe(roots)
    (device,) = probe.discover().devices
    replace_text(powercap / ENERGY, text)
    with pytest.raises(ProbeError):
        probe.sample(device.uid)
    with pytest.raises(ProbeError):
        probe.raw(device.uid)
    replace_text(powercap / ENERGY, f"{AMD_RANGE_UJ}\n")
    assert probe.sample(device.uid).energy_j == pytest.approx(AMD_RANGE_UJ / 1e6)


@pytest.mark.parametrize("text", ["9" * 30, "x" * 3_000_000, "", "0"])
def test_a_range_that_can_not_be_is_not_known(roots: Roots, text: str) -> None:
    write_powercap(roots, AMD | {RANGE: text})
    (device,) = CpuProbe(roots).discover().devices
    assert device.energy is not None
    assert device.energy.wrap_j is None


def test_noise_in_names_and_limits_leaves_the_rest(roots: Roots) -> None:
    noisy = {
        "intel-rapl/intel-rapl:0/name": "x" * 3_000_000,
        "intel-rapl/intel-rapl:1/constraint_0_name": "long_term",
        "intel-rapl/intel-rapl:1/constraint_0_power_limit_uw": "9" * 40,
    }
    write_powercap(roots, TWO_SOCKETS | noisy)
    replace_text(roots.proc / "cpuinfo", "model name\t: " + "y" * 3_000_000)
    devices = CpuProbe(roots).discover().devices
    assert [(d.uid, d.power_limit_w) for d in devices] == [("rapl:package-1", None), ("rapl:package-1:dram", None)]
    assert devices[0].energy is not None
    assert devices[0].energy.wrap_j == pytest.approx(INTEL_RANGE_UJ / 1e6)
    assert all(len(d.name) < 200 for d in devices)


def test_signs_of_cards_in_noise(roots: Roots) -> None:
    add_nvidia_card(roots)
    (roots.sysfs / "bus/pci/devices/0000:18:00.0/vendor").write_bytes(b"\xff" * 1_000_000)
    assert card(roots, "nvidia") is None
    assert card(roots, "amd") is None


def test_only_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(b"\xff" * 1000)
    assert beginning(path) == "\ufffd" * 64


class TestForced:
    @pytest.mark.parametrize(
        ("listed", "told"),
        [
            ("\udcff", r"BENCH_PROBES names '\\udcff', which is no probe"),
            ("cpu,nvidai", "names 'nvidai', which is no probe. Did you mean 'nvidia'?"),
            (",".join(f"p{n}" for n in range(300)), "names 'p0'"),
            ("x" * 100_000, f"names '{'x' * 40}'"),
            ("cpu;nvidia", "is no probe"),
            ("\x1b[2J", r"names '\\x1b[2J'"),
        ],
    )
    def test_an_unknown_probe_is_one_error(self, monkeypatch: pytest.MonkeyPatch, listed: str, told: str) -> None:
        monkeypatch.setenv("BENCH_PROBES", listed)
        with pytest.raises(UsageError) as caught:
            ChildProbeHost().names()
        assert told.replace("\\\\", "\\") in str(caught.value)
        assert len(str(caught.value)) < 200
        assert "cpu" in str(caught.value.hint)

    def test_a_name_given_often_is_opened_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BENCH_PROBES", ",".join(["cpu", "nvidia"] * 150))
        assert ChildProbeHost().names() == ("cpu", "nvidia")
