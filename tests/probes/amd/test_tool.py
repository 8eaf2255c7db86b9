"""The last way: `amd-smi` and `rocm-smi`, run for real as programs on the path."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.amd.probe import AmdProbe
from bench.probes.command import output
from bench.probes.presence import Roots
from bench.probes.values import Unavailable
from bench.records import Reading
from tests.probes.amd.cards import RX_7900, add_card
from tests.probes.amd.test_json import sample
from tests.probes.amd.tool import install
from tests.probes.polling import until
from tests.probes.trees import replace_text

LIST = [
    {"gpu": 0, "bdf": "0000:05:00.0", "uuid": "aaff74a1-0000-1000-80f1-000000000001"},
    {"gpu": 1, "bdf": "0000:05:00.1", "uuid": "aaff74a1-0000-1000-80f1-000000000002"},
]


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setitem(sys.modules, "pyrsmi.rocml", None)


@pytest.fixture
def probe(roots: Roots, tmp_path: Path) -> Iterator[AmdProbe]:
    replace_text(roots.dev / "kfd", "")
    probe = AmdProbe(roots, {"PATH": str(tmp_path / "bin"), "ROCM_PATH": str(tmp_path / "rocm")})
    yield probe
    probe.close()


def test_rocm_7_in_two_partitions(probe: AmdProbe, tmp_path: Path) -> None:
    metric = sample("amd_smi_metric_rocm7_mi300x_dpx.json")
    install(tmp_path / "bin", "amd-smi", metric=metric, listed=json.dumps(LIST))
    first, second = probe.discover().devices
    assert (first.pci, second.pci) == ("0000:05:00.0", "0000:05:00.1")
    assert first.covers == (second.uid,)
    assert first.power is not None
    assert (first.power.api, first.power.unit) == ("amd-smi --json", "W")
    assert probe.sample(first.uid).power_w == 133.0
    assert probe.sample(first.uid).utilisation == 0.0
    assert probe.sample(second.uid).power_w is None


def test_rocm_smi_where_there_is_no_amd_smi(probe: AmdProbe, tmp_path: Path) -> None:
    install(tmp_path / "rocm/bin", "rocm-smi", metric=sample("rocm_smi_mi250_dual_die.json"))
    even, odd = probe.discover().devices
    assert even.name == "AMD INSTINCT MI250 (MCM) OAM AC MBA"
    assert even.covers == (odd.uid,)
    assert (even.memory_total_b, odd.memory_total_b) == (68702699520, 68702699520)
    assert probe.sample(even.uid).power_w == 102.0
    assert probe.sample(odd.uid).memory_used_b == 11665408


def test_a_reading_carries_the_stamps_of_the_tools_run(probe: AmdProbe, tmp_path: Path) -> None:
    """Between two runs the same reading is handed over again: it counts once, where it was taken."""
    install(tmp_path / "bin", "rocm-smi", metric=sample("rocm_smi_rx7800xt.json"))
    (device,) = probe.discover().devices
    first = probe.sample(device.uid)
    again = probe.sample(device.uid)
    assert (first.before_ns, first.after_ns) == (again.before_ns, again.after_ns)
    assert first.after_ns - first.before_ns > 1_000_000  # a program was started

    def newer() -> Reading | None:
        reading = probe.sample(device.uid)
        return reading if reading.before_ns > first.before_ns else None

    later = until(newer)
    assert later.power_w == 53.0


def test_only_what_the_files_lack_comes_from_the_tool(probe: AmdProbe, roots: Roots, tmp_path: Path) -> None:
    add_card(roots, "0000:c1:00.0", {k: v for k, v in RX_7900.items() if "power1" not in k})
    gpu = {**json.loads(sample("rocm_smi_rx7800xt.json"))["card0"], "PCI Bus": "0000:C1:00.0"}
    install(tmp_path / "bin", "rocm-smi", metric=json.dumps({"card0": gpu}))
    (device,) = probe.discover().devices
    reading = probe.sample(device.uid)
    assert (reading.power_w, reading.memory_used_b) == (53.0, 1_288_490_188)


def test_the_tool_is_left_alone_where_the_files_tell_power(probe: AmdProbe, roots: Roots, tmp_path: Path) -> None:
    tool = install(tmp_path / "bin", "rocm-smi", metric=sample("rocm_smi_rx7800xt.json"))
    add_card(roots, "0000:c1:00.0", RX_7900)
    probe.discover()
    assert not tool.with_name("rocm-smi.calls").exists()


@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        ("", "printed nothing"),
        ("fail: no permission to open /dev/kfd", "exit status 3: fail: no permission to open /dev/kfd"),
        ('{"card0": {"GPU use (%)": "1"', "can't be read"),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)", "can't be read"),
    ],
)
def test_a_tool_that_fails_is_a_problem_not_a_number(probe: AmdProbe, tmp_path: Path, metric: str, problem: str) -> None:
    install(tmp_path / "bin", "amd-smi", metric=metric)
    found = probe.discover()
    assert found.devices == ()
    assert any(problem in each.problem for each in found.problems)


def test_a_tool_that_stops_answering_goes_stale(probe: AmdProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.probes import background

    monkeypatch.setattr(background, "SHORTEST_STALE_S", 0.0)
    monkeypatch.setattr(background, "STALE_PERIODS", 1.5)
    install(tmp_path / "bin", "rocm-smi", metric=sample("rocm_smi_rx7800xt.json"))
    (device,) = probe.discover().devices
    assert probe.sample(device.uid).power_w == 53.0
    replace_text(tmp_path / "bin/rocm-smi.metric", "fail")
    until(lambda: probe.sample(device.uid).power_w is None)


def test_a_hanging_command_is_cut_off(tmp_path: Path) -> None:
    tool = install(tmp_path, "amd-smi", metric="hang")
    with pytest.raises(Unavailable, match=r"did not answer within 0\.3 s"):
        output([str(tool), "metric"], timeout_s=0.3)


@pytest.mark.parametrize("argv", [["/nowhere/amd-smi"], ["/etc"]])
def test_what_can_not_be_started_is_told(argv: list[str]) -> None:
    with pytest.raises(Unavailable, match=r"is not installed|can't be started"):
        output(argv)
