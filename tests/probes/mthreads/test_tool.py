"""The last way: `mthreads-gmi`, run for real as a program on the path."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.mthreads.probe import MthreadsProbe
from bench.probes.presence import Roots
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.mthreads import host
from tests.probes.mthreads.conftest import in_this_process
from tests.probes.mthreads.host import GPU_0, GPU_1, sample
from tests.probes.polling import until
from tests.probes.programs import install
from tests.probes.trees import make_roots, replace_text


def _json() -> str:
    """The machine of `host.py` in the tool's words."""
    whole = json.loads(sample("gmi_q.json"))
    for gpu in whole["GPU"]:
        gpu["MTBios Version"] = "4.3.41"
    whole["GPU"][1]["Power Readings"]["Power Draw "] = "561.25W"
    whole["GPU"][1]["Clocks"]["Graphics"] = "1750MHz"
    return json.dumps(whole, indent=4) + "\n"


@pytest.fixture
def tool_alone(roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MthreadsProbe]:
    """On a machine whose library can't be loaded."""
    monkeypatch.setitem(sys.modules, "pymtml", None)
    replace_text(roots.dev / "mtgpu.0", "")
    probe = MthreadsProbe(roots, {"PATH": str(tmp_path / "bin")})
    yield probe
    probe.close()


def _calls(tool: Path) -> list[str]:
    return tool.with_name("mthreads-gmi.calls").read_text().splitlines()


def _seen(probe: Probe) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for device in probe.discover().devices:
        reading = probe.sample(device.uid)
        about = (device.uid, device.index, device.pci, device.name, device.driver, device.firmware, device.power_limit_w)
        sizes = (device.memory_total_b, reading.memory_used_b, round(reading.power_w or 0, 6))
        found.append((*about, *sizes, reading.utilisation, reading.temperature_c, reading.clock_mhz))
    return found


def test_library_and_tool_say_the_same(
    probe: MthreadsProbe, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_library = _seen(probe)
    probe.close()
    monkeypatch.setitem(sys.modules, "pymtml", None)
    host.tool(tmp_path / "bin", as_json=_json())
    replace_text(roots.dev / "mtgpu.0", "")
    by_tool = MthreadsProbe(roots, {"PATH": str(tmp_path / "bin")})
    assert _seen(by_tool) == by_library
    assert len(by_library) == 2
    by_tool.close()


def test_an_older_tool_that_knows_no_json(tool_alone: MthreadsProbe, tmp_path: Path) -> None:
    """It is asked for JSON once, not again each second."""
    tool = host.tool(tmp_path / "bin", outline=sample("gmi_q.txt"), table=sample("gmi_1.14_s80_ecc_na.txt"))
    (device,) = tool_alone.discover().devices
    assert tool_alone.sample(device.uid).power_w == 92.42
    until(lambda: _calls(tool).count("-q") >= 2)
    assert _calls(tool)[:3] == ["-q --json", "-q", "-q"]


def test_a_table_alone_tells_no_power_and_why(tool_alone: MthreadsProbe, tmp_path: Path) -> None:
    host.tool(tmp_path / "bin", table=sample("gmi_2.4.1_s5000.txt"))
    first, second = tool_alone.discover().devices
    assert (first.power, first.uid, second.uid) == (None, "mthreads:pci:0000:18:00.0", "mthreads:pci:0000:3a:00.0")
    assert "tells no power" in (first.power_reason or "")
    assert tool_alone.sample(second.uid).temperature_c == 48.0


def test_what_the_library_lacks_comes_from_the_tool(
    powerless_mtml: Path, roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = in_this_process(powerless_mtml, tmp_path, monkeypatch)
    host.tool(tmp_path / "bin", as_json=_json())
    probe = MthreadsProbe(roots, {**fake.env(), "PATH": str(tmp_path / "bin")})
    device = probe.discover().devices[0]
    assert device.power is not None
    assert (device.uid, device.power.api, device.power.unit) == (GPU_0, "mthreads-gmi", "W")
    fake.set("0.clock", 900)
    reading = probe.sample(GPU_0)
    assert (reading.power_w, reading.clock_mhz) == (92.42, 900.0)
    probe.close()


def test_the_tool_is_left_alone_where_the_library_tells_power(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    tool = host.tool(tmp_path / "bin", as_json=_json())
    probe = MthreadsProbe(roots, {**fake.env(), "PATH": str(tmp_path / "bin")})
    assert [device.uid for device in probe.discover().devices] == [GPU_0, GPU_1]
    assert not tool.with_name("mthreads-gmi.calls").exists()
    probe.close()


def test_a_device_that_vanishes_from_the_list_has_no_readings(tool_alone: MthreadsProbe, tmp_path: Path) -> None:
    host.tool(tmp_path / "bin", as_json=_json())
    tool_alone.discover()
    assert tool_alone.sample(GPU_1).power_w == 561.25
    whole = json.loads(_json())
    del whole["GPU"][1]
    host.tool(tmp_path / "bin", as_json=json.dumps(whole))
    assert until(lambda: tool_alone.sample(GPU_1).power_w is None)
    assert tool_alone.sample(GPU_0).power_w == 92.42


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "ended with exit status 3: failed to initialize mtml"),
        ("", "printed nothing"),
        ("no device found\n", "can't be read"),
        (sample("gmi_q.json")[:900], "can't be read"),
    ],
)
def test_a_tool_that_fails_is_a_problem_not_a_number(
    tool_alone: MthreadsProbe, tmp_path: Path, text: str | None, problem: str
) -> None:
    if text is None:
        install(tmp_path / "bin", "mthreads-gmi", {}, dict.fromkeys(["-q --json", "-q", ""], "failed to initialize mtml"))
    else:
        host.tool(tmp_path / "bin", as_json=text)
    found = tool_alone.discover()
    assert found.devices == ()
    assert any(problem in each.problem for each in found.problems)


class TestMthreadsToolConformance(ProbeConformance):
    name = "mthreads"

    @pytest.fixture
    def working(self, tool_alone: MthreadsProbe, tmp_path: Path) -> Probe:
        host.tool(tmp_path / "bin", as_json=_json())
        return tool_alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return MthreadsProbe(make_roots(tmp_path / "none"), {"PATH": ""})
