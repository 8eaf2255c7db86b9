"""The last way: `mx-smi`, run for real as a program on the path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.metax.probe import MetaxProbe
from bench.probes.presence import Roots
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.metax import host
from tests.probes.metax.conftest import in_this_process
from tests.probes.metax.host import GPU_0, GPU_1, sample
from tests.probes.polling import until
from tests.probes.programs import install
from tests.probes.trees import make_roots, replace_text

EXACT = "mx_smi_show_board_power.txt"
LISTED = f"""GPU#0    MXC500      0000:08:00.0   Available (UUID: {GPU_0})
GPU#1    MXC500      0000:09:00.0   Available (UUID: {GPU_1})
"""
TWO_C500 = """
+---------------------------------------------------------------------------------+
| MX-SMI 2.2.8                        Kernel Mode Driver Version: 3.8.30          |
| MACA Version: 3.1.0.14              BIOS Version: 1.33.5.0                      |
|------------------------------------+---------------------+----------------------+
| GPU     NAME         Persistence-M | Bus-id              | GPU-Util      sGPU-M |
| Temp    Pwr:Usage/Cap         Perf | Memory-Usage        | GPU-State            |
|====================================+=====================+======================|
| 0       MetaX C500             Off | 0000:08:00.0        | 0%            Native |
| 39C     48W / 350W              P0 | 858/65536 MiB       | Available            |
+------------------------------------+---------------------+----------------------+
| 1       MetaX C500             Off | 0000:09:00.0        | 97%           Native |
| 61C     312W / 350W             P0 | 59392/65536 MiB     | Available            |
+------------------------------------+---------------------+----------------------+

End of Log
"""
"""The machine of `host.py` in the tool's words."""


@pytest.fixture
def tool_alone(roots: Roots, tmp_path: Path) -> Iterator[MetaxProbe]:
    """Cards are there, and no library tells of them."""
    replace_text(roots.dev / "mxcd", "")
    probe = MetaxProbe(roots, {"PATH": str(tmp_path / "bin")})
    yield probe
    probe.close()


def test_the_tool_and_the_library_tell_the_same(
    fake: FakeLibrary, probe: MetaxProbe, tool_alone: MetaxProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but clocks, limits in force and processes, which the tool does not tell."""

    def seen(probe: Probe) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for device in probe.discover().devices:
            reading = probe.sample(device.uid)
            about = (device.uid, device.index, device.pci, device.name, device.driver, device.firmware)
            sizes = (device.memory_total_b, reading.memory_used_b, device.power_limit_w)
            found.append((*about, *sizes, round(reading.power_w or 0, 6), reading.utilisation, reading.temperature_c))
        return found

    by_library = seen(probe)
    monkeypatch.delenv(fake.variable)
    host.tool(tmp_path / "bin", TWO_C500, LISTED, sample(EXACT))
    assert seen(tool_alone) == by_library
    assert len(by_library) == 2


def test_the_table_alone_is_enough(tool_alone: MetaxProbe, tmp_path: Path) -> None:
    """Older tools know neither `-L` nor the exact values."""
    host.tool(tmp_path / "bin", TWO_C500)
    first, second = tool_alone.discover().devices
    assert first.uid == "metax:pci:0000:08:00.0"
    assert (tool_alone.sample(first.uid).power_w, tool_alone.sample(second.uid).power_w) == (48.0, 312.0)


def test_watts_of_a_board_of_two_dies_are_counted_once(tool_alone: MetaxProbe, tmp_path: Path) -> None:
    """Printed once or again, in the table or in a section of its own."""
    exact = "".join(f"GPU#{n}  MXC600-A\n  Total : {watts} W\n" for n, watts in enumerate((93.4, 93.4, 94.2, 94.2)))
    host.tool(tmp_path / "bin", sample("mx_smi_2.2.9_c600_two_dies.txt"), None, exact)
    devices = tool_alone.discover().devices
    assert [tool_alone.sample(device.uid).power_w for device in devices] == [93.4, None, 94.2, None]
    assert [device.covers for device in devices] == [(devices[1].uid,), (), (devices[3].uid,), ()]
    assert [device.power_limit_w for device in devices] == [850.0, None, 850.0, None]


def test_a_faulty_board_is_a_problem(tool_alone: MetaxProbe, tmp_path: Path) -> None:
    table = TWO_C500.partition("| 1       MetaX")[0]
    host.tool(tmp_path / "bin", table, sample("mx_smi_L_unavailable.txt"))
    found = tool_alone.discover()
    assert [device.uid for device in found.devices] == ["GPU-00000000-0000-4000-8000-0000000000a1"]
    (problem,) = found.problems
    assert (problem.subject, problem.problem) == ("device 1", "Not Available(MetaX Sysfs File Unaccessible)")


def test_what_the_library_lacks_comes_from_the_tool(
    powerless_mxsml: Path, roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = in_this_process(powerless_mxsml, tmp_path, monkeypatch)
    host.tool(tmp_path / "bin", TWO_C500, LISTED, sample(EXACT))
    probe = MetaxProbe(roots, {**fake.env(), "PATH": str(tmp_path / "bin")})
    device = probe.discover().devices[0]
    assert device.power is not None
    assert (device.uid, device.power.api, device.power.unit) == (GPU_0, "mx-smi", "W")
    reading = probe.sample(GPU_0)
    assert (reading.power_w, reading.clock_mhz) == (47.917, 500.0)
    probe.close()


def test_the_tool_is_left_alone_where_the_library_tells_power(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    tool = host.tool(tmp_path / "bin", TWO_C500)
    MetaxProbe(roots, {**fake.env(), "PATH": str(tmp_path / "bin")}).discover()
    assert not tool.with_name("mx-smi.calls").exists()


def test_devices_are_listed_once(tool_alone: MetaxProbe, tmp_path: Path) -> None:
    tool = host.tool(tmp_path / "bin", TWO_C500, LISTED, sample(EXACT))
    tool_alone.discover()
    until(lambda: tool.with_name("mx-smi.calls").read_text().splitlines().count("") >= 2)
    calls = tool.with_name("mx-smi.calls").read_text().splitlines()
    assert calls.count("-L") == 1
    assert "--show-board-power --show-temperature" in calls


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (None, "ended with exit status 3: Failed to initialize"),
        ("", "printed nothing"),
        ("no device found\n", "can't be read"),
        (TWO_C500.partition("| 0 ")[0], "can't be read"),
    ],
)
def test_a_tool_that_fails_is_a_problem_not_a_number(
    tool_alone: MetaxProbe, tmp_path: Path, table: str | None, problem: str
) -> None:
    if table is None:
        install(tmp_path / "bin", "mx-smi", {}, {"": "Failed to initialize mxsml"})
    else:
        host.tool(tmp_path / "bin", table)
    found = tool_alone.discover()
    assert found.devices == ()
    assert any(problem in each.problem for each in found.problems)


class TestMetaxToolConformance(ProbeConformance):
    name = "metax"

    @pytest.fixture
    def working(self, tool_alone: MetaxProbe, tmp_path: Path) -> Probe:
        host.tool(tmp_path / "bin", TWO_C500, LISTED, sample(EXACT))
        return tool_alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return MetaxProbe(make_roots(tmp_path / "none"), {"PATH": ""})
