"""`npu-smi` as a program on the path, and the library beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.probes.ascend.probe import AscendProbe
from bench.probes.presence import Roots
from bench.probes.vendor_tools import tool_values
from bench.records import Reading
from tests.fakes.library import FakeLibrary, Value
from tests.probes.ascend import host
from tests.probes.programs import install
from tests.probes.recorded import recorded
from tests.probes.trees import replace_text

MAPPING = """\
	NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
	{card}                              0                              4                              Ascend 310P3
	{card}                              1                              3                              Ascend 310P3
	{card}                              2                              -                              Mcu
"""


def installed(roots: Roots, folder: Path, table: str) -> dict[str, str]:
    """An environment whose `npu-smi` prints a recorded table, on a machine with a sign of NPUs and no library."""
    replace_text(roots.dev / "davinci_manager", "")
    common = recorded(host.SAMPLES / "npu_smi_t_common_310p_duo.txt")
    answers = {
        "info": recorded(host.SAMPLES / f"npu_smi_info_{table}.txt"),
        "info -t common -i 2": common.replace(": 1\n", ": 2\n", 1),
    }
    return {"PATH": str(install(folder / "bin", "npu-smi", answers).parent), "ASCEND_DRIVER_PATH": str(folder / "nothing")}


@pytest.fixture
def duo(roots: Roots, tmp_path: Path) -> Iterator[AscendProbe]:
    probe = AscendProbe(roots, installed(roots, tmp_path, "310p3_duo_na"))
    yield probe
    probe.close()


def test_power_of_a_card_is_asked_for_where_the_table_has_none(duo: AscendProbe, tmp_path: Path) -> None:
    first, second = duo.discover().devices
    assert first.covers == (second.uid,)
    reading = duo.sample(first.uid)
    assert (reading.power_w, reading.clock_mhz, duo.sample(second.uid).power_w) == (45.2, 960.0, None)
    assert (first.visible_as, second.visible_as) == ("0", "1")
    calls = (tmp_path / "bin/npu-smi.calls").read_text().splitlines()
    assert calls[:3] == ["info -m", "info", "info -t common -i 2"]


def test_the_tool_s_chips_are_marked_when_cut(duo: AscendProbe, roots: Roots) -> None:
    replace_text(roots.dev / "vdavinci116", "")
    first, second = duo.discover().devices
    assert (first.shared, "116" in (second.shared or "")) == (None, True)


def test_the_list_of_logic_ids_comes_first(duo: AscendProbe, tmp_path: Path) -> None:
    (tmp_path / "bin/npu-smi.info_-m").write_text(MAPPING.format(card=2))
    assert [device.visible_as for device in duo.discover().devices] == ["4", "3"]


def test_a_card_that_tells_no_power_says_why(duo: AscendProbe, tmp_path: Path) -> None:
    (tmp_path / "bin/npu-smi.info_-t_common_-i_2").unlink()
    first, second = duo.discover().devices
    assert "microcontroller" in (first.power_reason or "")
    assert "unknown argument info -t common -i 2" in (first.power_reason or "")
    assert "microcontroller" in (second.power_reason or "")


def test_no_card_is_asked_for_what_the_table_tells(roots: Roots, tmp_path: Path) -> None:
    probe = AscendProbe(roots, installed(roots, tmp_path, "910b2"))
    assert [probe.sample(device.uid).power_w for device in probe.discover().devices] == [101.4, 96.9]
    probe.close()
    assert "info -t common" not in (tmp_path / "bin/npu-smi.calls").read_text()


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (recorded(host.SAMPLES / "npu_smi_device_used_error.txt"), "the device is used. ret is -8020"),
        ("", "ended with exit status 3"),
    ],
)
def test_a_tool_that_fails_is_a_problem_not_a_number(roots: Roots, tmp_path: Path, failure: str, problem: str) -> None:
    env = installed(roots, tmp_path, "910b2")
    install(tmp_path / "bin", "npu-smi", {}, {"info": failure})
    found = AscendProbe(roots, env).discover()
    assert found.devices == ()
    assert any(problem in one.problem for one in found.problems)


MACHINES: dict[str, tuple[int, dict[str, Value], str]] = {
    "910b2": (2, host.A2, "910b2"),
    "two dies": (4, host.A3, "a3_dual_die"),
    "310P duo": (2, host.DUO, "310p3_duo_na"),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_library_and_tool_say_the_same(fake: FakeLibrary, roots: Roots, tmp_path: Path, machine: str) -> None:
    chips, state, table = MACHINES[machine]
    fake.show(chips, state)
    by_library = AscendProbe(roots, fake.env())
    by_tool = AscendProbe(roots, installed(roots, tmp_path, table))
    assert _told(by_library) == _told(by_tool)
    assert any(watts for *_, watts in _told(by_library))


def _told(probe: AscendProbe) -> list[tuple[object, ...]]:
    """What both know of each device; ids are the library's alone."""
    devices = probe.discover().devices
    at = {device.uid: device.index for device in devices}
    told: list[tuple[object, ...]] = []
    for device in devices:
        reading: Reading = probe.sample(device.uid)
        covers = [at[uid] for uid in device.covers]
        identity = (device.name, device.pci, device.driver, at[device.board or ""], covers, device.memory_total_b)
        told.append((*identity, reading.memory_used_b, reading.utilisation, reading.temperature_c, reading.power_w))
    probe.close()
    return told


def test_selftest_holds_the_library_against_the_tool(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    env = {**fake.env(), "PATH": installed(roots, tmp_path, "910b2")["PATH"]}
    probe = AscendProbe(roots, env)
    devices = probe.discover().devices
    probe.close()
    says = tool_values("ascend", devices, env)
    assert [(says[d.uid].tool, says[d.uid].power_w, says[d.uid].memory_used_b) for d in devices] == [
        ("npu-smi info", 101.4, 46456 << 20),
        ("npu-smi info", 96.9, 3395 << 20),
    ]
