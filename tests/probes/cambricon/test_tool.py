"""`cnmon`: what it prints and writes, and the probe where there is nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes.cambricon import tool
from bench.probes.cambricon.probe import CambriconProbe
from bench.probes.presence import Roots
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from bench.records import Reading
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.cambricon.host import MLU370_X8, UIDS
from tests.probes.cambricon.tool import install
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text

SAMPLES = Path(__file__).parent / "samples"
MIB = 1 << 20
V4 = recorded(SAMPLES / "cnmon_v4_mlu370x4.txt")
V5 = recorded(SAMPLES / "cnmon_v5_mlu370x8.txt")
IDLE = recorded(SAMPLES / "cnmon_v5_mlu370x8_idle.txt")
INFO = recorded(SAMPLES / "cnmon_info.json")
TABLES = (V4, V5, IDLE)


class TestSamples:
    def test_version_5(self) -> None:
        first, second = tool.parse(V5)
        assert (first.index, first.name, first.pci) == (0, "MLU370-X8", "0000:39:00.0")
        assert (first.driver, first.firmware) == ("5.10.13", "1.1.6")
        assert first.values == {
            "power_w": 106.0,
            "power_limit_w": 250.0,
            "memory_used_b": 0,
            "memory_total_b": 23374 * MIB,
            "utilisation": 0.0,
            "temperature_c": 32.0,
        }
        assert (second.index, second.pci) == (1, "0000:3d:00.0")
        assert second.values == {
            "power_w": 163.0,
            "power_limit_w": 250.0,
            "memory_used_b": 18544 * MIB,
            "memory_total_b": 23374 * MIB,
            "utilisation": 0.98,
            "temperature_c": 47.0,
        }

    def test_version_5_with_modes(self) -> None:
        first, second = tool.parse(IDLE)
        assert (first.pci, second.pci, first.driver) == ("0000:13:00.0", "0000:16:00.0", "5.10.22")
        assert (first.values["power_w"], second.values["power_w"], second.values["temperature_c"]) == (107.0, 107.0, 32.0)
        assert (first.values["memory_used_b"], first.values["memory_total_b"]) == (0, 20638 * MIB)

    def test_version_4(self) -> None:
        """No addresses, the driver in each row, and a second pair of sizes."""
        cards = tool.parse(V4)
        assert [card.index for card in cards] == [0, 1, 2]
        assert {(card.name, card.pci, card.driver, card.firmware) for card in cards} == {("MLU370-X4", None, "4.20.11", "1.1.6")}
        assert [card.values["power_w"] for card in cards] == [30.0, 25.0, 26.0]
        assert [card.values["temperature_c"] for card in cards] == [32.0, 33.0, 30.0]
        assert {(card.values["memory_used_b"], card.values["memory_total_b"]) for card in cards} == {(0, 23308 * MIB)}

    def test_the_file(self) -> None:
        first, second = tool.parse_info(INFO)
        assert (first.index, first.unique_id, first.pci, first.name) == (0, UIDS[0], "0000:39:00.0", "MLU370-X8")
        assert first.values == {
            "memory_used_b": 0,
            "memory_total_b": 23374 * MIB,
            "utilisation": 0.0,
            "temperature_c": 32.0,
        }
        assert second.values == {"memory_used_b": 18544 * MIB, "memory_total_b": 23374 * MIB}
        assert "N/A" in second.reasons["utilisation"]

    def test_power_in_the_file_where_it_is_told(self) -> None:
        """As `cnmon info` prints it; no file with it has been seen."""
        whole = json.loads(INFO)
        whole["CnmonInfo"][0]["Power"] = {"Usage": "106 W", "Cap": "250 W"}
        whole["CnmonInfo"][1]["Power"] = {"Usage": "1060", "Cap": "250"}
        first, second = tool.parse_info(json.dumps(whole))
        assert (first.values["power_w"], first.values["power_limit_w"]) == (106.0, 250.0)
        assert "implausible power: 1060 W" in second.reasons["power_w"]

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        assert [path.name for path in SAMPLES.iterdir() if path.name not in here] == []


Row = Sequence[tuple[str, str]]
"""Words of a header, and the words under them."""


def _cells(draw: st.DrawFn, groups: Sequence[Row]) -> tuple[list[str], list[str]]:
    """A row of the header and one of a card: groups of columns in their order, blanks as drawn."""
    above, below = [], []
    for group in groups:
        widths = [max(len(name), len(word)) + draw(st.integers(1, 4)) for name, word in group]
        above.append("".join(name.ljust(width) for (name, _), width in zip(group, widths, strict=True)))
        below.append("".join(word.ljust(width) for (_, word), width in zip(group, widths, strict=True)))
    return above, below


@st.composite
def drawn_tables(draw: st.DrawFn) -> tuple[list[Told], str]:
    """Cards, and a table of them: columns and groups of columns in any order and width, more of them, with or without units."""
    plain = draw(st.booleans())
    watt, mib, percent, degree = ("", "", "", "") if plain else (" W", " MiB", "%", "C")
    order = draw(st.permutations(range(3)))
    inside = [draw(st.permutations(range(4))) for _ in range(2)]
    extra = draw(st.lists(st.sampled_from(["Health", "ECC", "Mode"]), unique=True, max_size=2))
    cards: list[Told] = []
    lines: list[list[list[str]]] = []
    header: list[list[str]] = []
    for index in range(draw(st.integers(1, 16))):
        watts = draw(st.integers(1, 450))
        used = draw(st.integers(0, 98_304))
        celsius, busy = draw(st.integers(1, 99)), draw(st.integers(0, 100))
        first: list[Row] = [
            [[("Card", f"{index}"), ("VF", "/"), ("Name", "MLU590-M9"), ("Firmware", "v1.5.0")][i] for i in inside[0]],
            [("Bus-Id", f"0000:{index:02X}:00.0")],
            [("Util", f"{busy}{percent}"), ("Ecc-Error", "N/A"), *((name, "7") for name in extra)],
        ]
        pwr = ("Pwr:Usage/Cap", f"{watts}{watt}/ 250{watt}")
        second: list[Row] = [
            [[("Fan", f"0{percent}"), ("Temp", f"{celsius}{degree}"), pwr, ("P", "0")][i] for i in inside[1]],
            [("Memory-Usage", f"{used}{mib}/ 98304{mib}")],
            [("SR-IOV", "N/A"), ("Compute-Mode", "Default"), *((f"{name}2", "5") for name in extra)],
        ]
        drawn = [_cells(draw, [row[i] for i in order]) for row in (first, second)]
        header = [above for above, _ in drawn]
        lines.append([below for _, below in drawn])
        numbers = (watts, 250, used * MIB, 98_304 * MIB, busy / 100, celsius)
        names = ("power_w", "power_limit_w", "memory_used_b", "memory_total_b", "utilisation", "temperature_c")
        cards.append(
            Told(index=index, pci=f"0000:{index:02x}:00.0", name="MLU590-M9", values=dict(zip(names, numbers, strict=True)))
        )
    return cards, _boxed(header, lines)


def _boxed(header: Sequence[Sequence[str]], cards: Sequence[Sequence[Sequence[str]]]) -> str:
    rule = "+-------------------------------+----------------------+-----------------------+"
    rows = [["| CNMON v6.2.29    Driver v6.2.29 |"], *([_line(row) for row in rows] for rows in (header, *cards))]
    rows[1].append(rule.replace("+", "|").replace("-", "="))
    return "\n".join([rule, *(line for block in rows for line in (*block, rule))]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " for cell in cells) + "|"


@given(drawn_tables())
def test_columns_are_known_by_their_words(drawn: tuple[list[Told], str]) -> None:
    cards, text = drawn
    found = tool.parse(text)
    assert [(one.index, one.pci, one.name) for one in found] == [(one.index, one.pci, one.name) for one in cards]
    for one, card in zip(found, cards, strict=True):
        assert one.values == pytest.approx(card.values)
        assert (one.driver, one.firmware) == ("6.2.29", "1.5.0")


@given(st.sampled_from(TABLES), st.floats(0, 1))
def test_what_is_left_of_a_cut_table_is_right(text: str, where: float) -> None:
    whole = {one.index: one for one in tool.parse(text)}
    try:
        left = tool.parse(text[: int(where * len(text))])
    except Unavailable:
        return
    for one in left:
        assert one.values.items() <= whole[one.index].values.items()


@given(st.floats(0, 0.999))
def test_a_cut_file_is_refused(where: float) -> None:
    with pytest.raises(Unavailable, match=r"cnmon_info\.json can't be read"):
        tool.parse_info(INFO.rstrip()[: int(where * len(INFO.rstrip()))])


@given(st.sampled_from(TABLES), st.sampled_from(["N/A", "-", "", "ERR!", "4294967295", "/", "1 2"]), st.data())
def test_a_word_in_a_numbers_place_is_missing(text: str, word: str, data: st.DataObject) -> None:
    numbers = [found.span() for found in re.finditer(r"\d+(?= ?(?:MiB|W|C|%))", text)]
    begin, end = data.draw(st.sampled_from(numbers))
    whole = {one.index: one.values for one in tool.parse(text)}
    for one in tool.parse(text[:begin] + word + text[end:]):
        assert one.values.items() <= whole[one.index].items()


@given(st.text(max_size=200))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    for parse in (tool.parse, tool.parse_info):
        try:
            parse(text)
        except Unavailable:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["PCI", "Power", "Usage", "UUID"]), inner),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["CardNum", "PCI", "PhysicalMemUsage", "Temperature", "UUID"]), JSON | st.just(1)))
)
def test_a_file_of_another_shape_is_refused_or_read_without_a_crash(cards: list[object]) -> None:
    try:
        tool.parse_info(json.dumps({"CnmonInfo": cards}))
    except Unavailable:
        return


# --- the probe ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path, roots: Roots) -> Iterator[CambriconProbe]:
    """A probe with nothing but the tool."""
    replace_text(roots.dev / "cambricon_dev0", "")
    probe = CambriconProbe(roots, {"PATH": str(tmp_path / "bin"), "NEUWARE_HOME": "/nowhere"})
    yield probe
    probe.close()


def test_the_tool_and_the_library_tell_the_same(
    fake: FakeLibrary, probe: CambriconProbe, alone: CambriconProbe, tmp_path: Path
) -> None:
    fake.show(2, MLU370_X8)
    install(tmp_path / "bin", table=V5.replace("106 W", "163 W"), info=INFO)
    ours, theirs = probe.discover().devices, alone.discover().devices
    same = ("uid", "name", "index", "pci", "driver", "firmware", "covers", "board", "memory_total_b", "power_limit_w", "scope")
    for attribute in same:
        assert [getattr(d, attribute) for d in ours] == [getattr(d, attribute) for d in theirs], attribute
    for uid in UIDS:
        assert _told(probe.sample(uid)) == _told(alone.sample(uid))


def _told(reading: Reading) -> tuple[float | None, ...]:
    return reading.power_w, reading.memory_used_b, reading.utilisation, reading.temperature_c


def test_the_tool_is_left_alone_where_the_library_tells_power(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin", table=V5, info=INFO)
    probe = CambriconProbe(roots, {**fake.env(), "PATH": str(tmp_path / "bin")}, check_s=0.08)
    for values in (fake.values, {"devices": 2, **MLU370_X8}):
        fake.show(2, values)
        assert probe.discover().devices[0].power is not None
    assert not (tmp_path / "bin/calls").exists()
    probe.close()


def test_power_that_the_library_refuses_comes_from_the_tool(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin", table=V4)
    fake.set("*.power.ret", 10)
    fake.set("*.fields.ret", 10)
    probe = CambriconProbe(roots, {**fake.env(), "PATH": str(tmp_path / "bin")}, check_s=0.08)
    first, second, third = probe.discover().devices
    assert (first.uid, first.power.api if first.power else None) == (UIDS[0], "cnmon")
    assert (probe.sample(second.uid).power_w, probe.sample(second.uid).clock_mhz) == (25.0, 1300.0)
    assert probe.sample(third.uid).power_w == 26.0
    probe.close()


def test_where_the_table_is_another_the_file_is_read(alone: CambriconProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", table="Card 0: MLU590 106 W\n", info=INFO)
    found = alone.discover()
    assert [device.uid for device in found.devices] == list(UIDS)
    assert all(device.power is None for device in found.devices)
    assert alone.sample(UIDS[1]).memory_used_b == 18544 * MIB


def test_a_tool_that_writes_no_file_is_enough(alone: CambriconProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", table=IDLE)
    assert [device.uid for device in alone.discover().devices] == ["cambricon:pci:0000:13:00.0", "cambricon:pci:0000:16:00.0"]


def test_the_file_of_another_card_names_none(alone: CambriconProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", table=V5, info=INFO.replace('"Bus": "3d"', '"Bus": "5e"'))
    assert [device.uid for device in alone.discover().devices] == [UIDS[0], "cambricon:pci:0000:3d:00.0"]


def test_its_file_is_written_once_into_a_folder_that_goes_away(
    alone: CambriconProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    install(tmp_path / "bin", table=V5, info=INFO)
    assert alone.discover().devices
    calls = [line.split() for line in (tmp_path / "bin/calls").read_text(encoding="utf-8").splitlines()]
    written = [Path(folder) for folder, *arguments in calls if arguments]
    assert len(written) == 1
    assert not written[0].exists()
    assert not (tmp_path / "cnmon_info.json").exists()


def test_a_tool_that_fails_is_a_problem_not_a_number(alone: CambriconProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    found = alone.discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert "exit status 1: cnmon: can't do info -j" in problem.problem


class TestCambriconToolConformance(ProbeConformance):
    name = "cambricon"

    @pytest.fixture
    def working(self, alone: CambriconProbe, tmp_path: Path) -> Probe:
        install(tmp_path / "bin", table=V5, info=INFO)
        return alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return CambriconProbe(make_roots(tmp_path / "none"), {"PATH": "", "NEUWARE_HOME": "/nowhere"})
