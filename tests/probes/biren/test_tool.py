"""`brsmi`: what it prints, and the probe where there is nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes.biren import tool
from bench.probes.biren.probe import BirenProbe
from bench.probes.presence import Roots
from bench.probes.values import Unavailable
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.biren.host import SAMPLES
from tests.probes.programs import install
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text

MIB = 1 << 20
KNOWN = "gpu --query-gpu=index,name,memory.used,memory.free --format=csv,noheader,nounits"
WITH_POWER = "gpu --query-gpu=index,name,memory.used,memory.free,temperature.gpu,power.draw --format=csv"
BARE = recorded(SAMPLES / "brsmi_query_gpu.csv")
SCRIPTS = f"index,name,memory.used,memory.free\n{BARE}"
WHOLE = """\
index, name, memory.used [MiB], memory.free [MiB], temperature.gpu, power.draw [W]
0, Biren166M, 512 MiB, 65024 MiB, 41, 96.50 W
1, Biren166M, 61545 MiB, 3991 MiB, 67, 287.40 W
"""


def test_what_public_scripts_ask_for() -> None:
    first, second = tool.parse(SCRIPTS)
    assert (first.index, first.name, second.index, second.name) == (0, "Biren166M", 1, "Biren166M")
    assert first.values == {"memory_used_b": 0, "memory_total_b": 65_024 * MIB}
    assert second.values == {"memory_used_b": 61_033 * MIB, "memory_total_b": 65_024 * MIB}
    assert "not verified on hardware" in first.reasons["power_w"]


def test_power_and_temperature_where_it_tells_them() -> None:
    first, second = tool.parse(WHOLE)
    assert first.values == {
        "memory_used_b": 512 * MIB,
        "memory_total_b": 65_536 * MIB,
        "temperature_c": 41.0,
        "power_w": 96.5,
    }
    assert (second.values["power_w"], second.values["temperature_c"]) == (287.4, 67.0)
    assert set(first.reasons) == {"energy_j", "power_w"}


@pytest.mark.parametrize("power", ["96.5", "96500", "[N/A]", "[Not Supported]", "N/A", "-", "", "0.00 W", "9650 W", "0.3 W"])
def test_power_without_its_unit_or_sense_is_missing(power: str) -> None:
    told = tool.parse(WHOLE.replace("power.draw [W]", "power.draw").replace("96.50 W", power))[0]
    assert "power_w" not in told.values
    assert "brsmi tells no power" not in told.reasons["power_w"]  # but what is wrong with this one
    assert told.values["memory_used_b"] == 512 * MIB


@pytest.mark.parametrize("used", ["[N/A]", "-", "", "-1", "ERR!", "4294967295"])
def test_what_is_no_size_is_missing(used: str) -> None:
    told = tool.parse(SCRIPTS.replace("0, Biren166M, 0", f"0, Biren166M, {used}"))
    assert told[0].values == {}
    assert told[1].values["memory_used_b"] == 61_033 * MIB


@st.composite
def drawn(draw: st.DrawFn) -> tuple[list[dict[str, float]], str]:
    """GPUs, and the CSV of them: columns in any order, unknown ones between, units in the cells or in the header, any blanks."""
    names = draw(
        st.permutations(["index", "name", "memory.used", "memory.free", "temperature.gpu", "power.draw", "serial", "uuid"])
    )
    units = {"memory.used": "MiB", "memory.free": "MiB", "power.draw": "W"}
    above, gap = draw(st.booleans()), draw(st.sampled_from([",", ", ", " ,  "]))
    lines = [gap.join(f"{name} [{units[name]}]" if above and name in units else name for name in names)]
    gpus: list[dict[str, float]] = []
    for index in range(draw(st.integers(1, 8))):
        used, free = draw(st.integers(0, 65_000)), draw(st.integers(1, 65_000))
        celsius, watts = draw(st.integers(1, 110)), draw(st.integers(1, 600))
        cells: dict[str, object] = {
            "index": index,
            "name": "Biren166M",
            "serial": "SN7",
            "uuid": "GPU-7",
            "memory.used": used,
            "memory.free": free,
            "temperature.gpu": celsius,
            "power.draw": watts,
        }
        lines.append(gap.join(f"{cells[n]} {units[n]}" if not above and n in units else str(cells[n]) for n in names))
        sizes = {"memory_used_b": float(used * MIB), "memory_total_b": float((used + free) * MIB)}
        gpus.append({**sizes, "temperature_c": float(celsius), "power_w": float(watts)})
    return gpus, "\n".join(lines) + "\n"


@given(drawn())
def test_columns_are_known_by_their_names(made: tuple[list[dict[str, float]], str]) -> None:
    gpus, text = made
    told = tool.parse(text)
    assert [one.index for one in told] == list(range(len(gpus)))
    for one, gpu in zip(told, gpus, strict=True):
        assert one.values == pytest.approx(gpu)


@given(st.sampled_from([SCRIPTS, WHOLE]), st.floats(0, 1))
def test_what_is_left_of_a_cut_output_is_right(text: str, where: float) -> None:
    whole = {one.index: one.values for one in tool.parse(text)}
    try:
        left = tool.parse(text[: int(where * len(text))])
    except Unavailable:
        return
    for one in left:
        assert one.values == whole[one.index]


@given(st.sampled_from([SCRIPTS, WHOLE]), st.text(st.characters(exclude_characters="\r\n"), max_size=60))
def test_other_lines_are_no_gpus(text: str, line: str) -> None:
    header, _, rows = text.partition("\n")
    noisy = tool.parse(f"{header}\nwarning: {line}\nall{', 1' * header.count(',')}\n{rows}")
    assert [(one.index, one.values) for one in noisy] == [(one.index, one.values) for one in tool.parse(text)]


@given(st.text(max_size=200))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    with pytest.raises(Unavailable):
        tool.parse(text)


# --- the program --------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path, roots: Roots) -> Iterator[BirenProbe]:
    """A probe with nothing but the tool."""
    replace_text(roots.dev / "biren/card_0", "")
    probe = BirenProbe(roots, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "BENCH_BRML_LIBRARY": "/nowhere"})
    yield probe
    probe.close()


def test_one_that_tells_power_is_asked_for_it(alone: BirenProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", "brsmi", {WITH_POWER: WHOLE, KNOWN: BARE})
    first, second = alone.discover().devices
    assert [alone.sample(device.uid).power_w for device in (first, second)] == [96.5, 287.4]
    assert set((tmp_path / "bin/brsmi.calls").read_text(encoding="utf-8").splitlines()) == {WITH_POWER}


def test_one_that_does_not_is_asked_as_the_scripts_do(alone: BirenProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", "brsmi", {KNOWN: BARE}, {WITH_POWER: "unknown query power.draw"})
    found = alone.discover()
    first, second = found.devices
    assert (first.power, second.memory_total_b) == (None, 65_024 * MIB)
    assert "not verified on hardware" in (first.power_reason or "")
    assert alone.sample(second.uid).memory_used_b == 61_033 * MIB
    assert any("/nowhere" in problem.problem for problem in found.problems)


def test_the_tool_and_the_library_tell_the_same(probe: BirenProbe, alone: BirenProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", "brsmi", {WITH_POWER: WHOLE})
    ours, theirs = probe.discover().devices, alone.discover().devices
    assert [(d.name, d.index, d.memory_total_b) for d in ours] == [(d.name, d.index, d.memory_total_b) for d in theirs]
    for one, other in zip(ours, theirs, strict=True):
        by_library, by_tool = probe.sample(one.uid), alone.sample(other.uid)
        assert by_tool.power_w == by_library.power_w
        assert by_tool.temperature_c == by_library.temperature_c
        assert by_tool.memory_used_b == pytest.approx(by_library.memory_used_b, abs=MIB)


def test_it_gives_power_that_the_library_lacks(newer: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin", "brsmi", {WITH_POWER: WHOLE})
    probe = BirenProbe(roots, {**newer.env(), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    devices = probe.discover().devices
    assert [(d.power.api if d.power else None) for d in devices] == ["brsmi", "brsmi"]
    assert probe.sample(devices[1].uid).power_w == 287.4
    probe.close()


def test_it_is_left_alone_where_the_library_tells_power(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin", "brsmi", {WITH_POWER: WHOLE})
    probe = BirenProbe(roots, {**fake.env(), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert probe.discover().devices[0].power is not None
    assert not (tmp_path / "bin/brsmi.calls").exists()
    probe.close()


def test_a_tool_that_fails_is_a_problem_not_a_number(alone: BirenProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", "brsmi", {}, {WITH_POWER: "BRML: driver not loaded", KNOWN: "BRML: driver not loaded"})
    found = alone.discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert "exit status 3: BRML: driver not loaded" in problem.problem


class TestBirenToolConformance(ProbeConformance):
    name = "biren"

    @pytest.fixture
    def working(self, alone: BirenProbe, tmp_path: Path) -> Probe:
        install(tmp_path / "bin", "brsmi", {WITH_POWER: WHOLE})
        return alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return BirenProbe(make_roots(tmp_path / "none"), {"PATH": "", "BENCH_BRML_LIBRARY": "/nowhere"})
