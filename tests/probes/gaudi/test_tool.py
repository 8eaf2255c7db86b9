"""`hl-smi`: what it prints, and the probe where there is nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes.gaudi import tool
from bench.probes.gaudi.probe import GaudiProbe
from bench.probes.presence import Roots
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from bench.records import Reading
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.gaudi.host import UUIDS
from tests.probes.gaudi.tool import CARDS, UNITS, install
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text

SAMPLES = Path(__file__).parent / "samples"
MIB = 1 << 20
TABLE = recorded(SAMPLES / "hl_smi_table_hl325.txt")
NAMES = (
    "index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], memory.free [MiB], power.draw [W], power.max [W], "
    "temperature.aip [C], utilization.aip [%]"
)
QUERIED = f"{NAMES}\n{recorded(SAMPLES / 'hl_smi_q_2x_hl325l.csv')}"


class TestSamples:
    def test_two_gaudi_3_as_csv(self) -> None:
        first, second = tool.parse(QUERIED)
        assert (first.index, first.unique_id, first.name) == (0, "01P0-HL0000A0-18-U0V001-22-07-00", "HL-325L")
        assert first.driver == "habanalabs 1.22.1-97ec1a4"
        assert first.values == {
            "power_w": 226.0,
            "power_limit_w": 850.0,
            "memory_total_b": 131072 * MIB,
            "memory_used_b": 672 * MIB,
            "temperature_c": 36.0,
            "utilisation": 0.0,
        }
        assert (second.values["power_w"], second.values["temperature_c"]) == (230.0, 39.0)

    def test_two_gaudi_3_as_a_table(self) -> None:
        first, second = tool.parse(TABLE)
        assert (first.index, first.name, first.pci, first.driver) == (0, "HL-325", "0000:21:00.0", "habanalabs 1.18.0-ee698fb")
        assert second.pci == "0000:6a:00.0"
        assert first.values == {
            "power_w": 264.0,
            "power_limit_w": 900.0,
            "memory_total_b": 131072 * MIB,
            "memory_used_b": 672 * MIB,
            "temperature_c": 43.0,
            "utilisation": 0.0,
        }
        assert (second.values["power_w"], second.values["memory_used_b"]) == (258.0, 98304 * MIB)
        assert second.values["utilisation"] == 0.87

    def test_a_gaudi_1_in_the_table_of_1_7(self) -> None:
        (card,) = tool.parse(recorded(SAMPLES / "hl_smi_table_hl205_old_units.txt"))
        assert (card.name, card.pci) == ("HL-205", "0000:10:1d.0")
        assert card.values["memory_used_b"] == 512 * MIB
        assert (card.values["power_w"], card.values["power_limit_w"], card.values["temperature_c"]) == (102.0, 350.0, 44.0)

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        assert [path.name for path in SAMPLES.iterdir() if path.name not in here] == []


def table(cards: Sequence[Sequence[Sequence[str]]], header: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    """A box as the tool draws it: a card is two lines of cells."""

    def line(cells: Sequence[str]) -> str:
        return "|" + "|".join(f" {cell.ljust(width)} " for cell, width in zip(cells, widths, strict=True)) + "|"

    rule = "|" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [rule.replace("|", "+", 1), *map(line, header), rule.replace("-", "=")]
    for card in cards:
        lines += [*map(line, card), rule]
    return "\n".join(lines) + "\n"


HEADER = (
    ("AIP  Name        Persistence-M", "Bus-Id        Disp.A", "Volatile Uncorr. ECC"),
    ("Fan  Temp  Perf  Pwr:Usage/Cap", "Memory-Usage", "AIP-Util  Compute M."),
)


@st.composite
def drawn_tables(draw: st.DrawFn) -> tuple[list[Told], str]:
    """Cards, and the table of them: columns in any order and width, more of them, units glued on or apart."""
    order = draw(st.permutations(range(3)))
    extra = draw(st.integers(0, 2))
    gap = draw(st.sampled_from(["", " "]))
    cards, rows = [], []
    for index in range(draw(st.integers(1, 8))):
        power, limit, used = draw(st.integers(1, 900)), draw(st.integers(450, 900)), draw(st.integers(0, 65000))
        celsius, busy = draw(st.integers(1, 110)), draw(st.integers(0, 100))
        first = (f"{index}  HL-325              N/A", f"0000:{index:02x}:00.0     N/A", "0")
        second = (
            f"N/A   {celsius}C   N/A   {power}{gap}W / {limit}{gap}W"
            if gap == ""
            else f"N/A   {celsius} C   N/A   {power}W/{limit}W",
            f"{used}MiB / 131072MiB",
            f"{busy}{gap}%    N/A",
        )
        rows.append([[*(line[i] for i in order), *(["x 7W / 9W 5C 3%"] * extra)] for line in (first, second)])
        values = {
            "power_w": float(power),
            "power_limit_w": float(limit),
            "memory_total_b": 131072 * MIB,
            "memory_used_b": used * MIB,
            "temperature_c": float(celsius),
            "utilisation": busy / 100,
        }
        cards.append(Told(index=index, pci=f"0000:{index:02x}:00.0", name="HL-325", values=values))
    header = [[*(line[i] for i in order), *(f"Extra-{n}{place}" for n in range(extra))] for place, line in enumerate(HEADER)]
    widths = [draw(st.integers(45, 60)) for _ in header[0]]
    return cards, table(rows, header, widths)


@given(drawn_tables())
def test_columns_of_the_table_are_known_by_their_words(drawn: tuple[list[Told], str]) -> None:
    cards, text = drawn
    assert [(one.index, one.pci, one.name) for one in tool.parse(text)] == [(one.index, one.pci, one.name) for one in cards]
    for one, card in zip(tool.parse(text), cards, strict=True):
        assert one.values == pytest.approx(card.values)


@st.composite
def queried(draw: st.DrawFn) -> tuple[list[dict[str, object]], str]:
    """Cards, and the CSV of them: columns in any order, unknown ones between, units in the cells, in the header, in both."""
    names = draw(st.permutations([*CARDS[0], "serial", "ecc.mode.current"]))
    in_header, in_cells = draw(st.booleans()), draw(st.booleans())
    cards: list[dict[str, object]] = []
    for index in range(draw(st.integers(1, 8))):
        numbers = {name: draw(st.integers(50, 100)) for name in UNITS}
        numbers["memory.total"] += 100
        cards.append({**CARDS[0], "serial": "AM12", "ecc.mode.current": 1, "index": index, **numbers})
    header = ", ".join(f"{name} [{UNITS[name]}]" if in_header and name in UNITS else name for name in names)
    rows = [
        ", ".join(f"{card[name]} {UNITS[name]}" if in_cells and name in UNITS else str(card[name]) for name in names)
        for card in cards
    ]
    return cards, "\n".join([header, *rows]) + "\n"


@given(queried())
def test_columns_of_the_csv_are_known_by_their_names(drawn: tuple[list[dict[str, object]], str]) -> None:
    cards, text = drawn
    for told, card in zip(tool.parse(text), cards, strict=True):
        assert told.index == card["index"]
        assert told.visible_as == "5"
        assert told.values == pytest.approx(
            {
                "power_w": card["power.draw"],
                "power_limit_w": card["power.max"],
                "memory_total_b": int(str(card["memory.total"])) * MIB,
                "memory_used_b": int(str(card["memory.used"])) * MIB,
                "temperature_c": card["temperature.aip"],
                "utilisation": int(str(card["utilization.aip"])) / 100,
            }
        )


@given(st.sampled_from([QUERIED, TABLE]), st.floats(0, 1))
def test_what_is_left_of_a_cut_output_is_right(text: str, where: float) -> None:
    cut = text[: int(where * len(text))]
    whole = {one.index: one for one in tool.parse(text)}
    try:
        left = tool.parse(cut)
    except Unavailable:
        return
    for one in left:
        assert one.values.items() <= whole[one.index].values.items()


@given(st.sampled_from([QUERIED, TABLE]), st.sampled_from(["N/A", "-", "", "ERR!", "4294967295"]), st.data())
def test_a_word_in_a_numbers_place_is_missing(text: str, word: str, data: st.DataObject) -> None:
    numbers = [found.span() for found in re.finditer(r"\d+(?= ?(?:MiB|W|C|%))", text)]
    begin, end = data.draw(st.sampled_from(numbers))
    whole = {one.index: one.values for one in tool.parse(text)}
    for one in tool.parse(text[:begin] + word + text[end:]):
        wrong = {name for name, value in one.values.items() if whole[one.index][name] != value}
        assert wrong == set()


def test_a_column_that_is_named_twice_is_nobodys() -> None:
    with pytest.raises(Unavailable, match="names a column twice"):
        tool.parse("index, power.draw [W], power.draw [W]\n0, 226, 230\n")


@given(st.text(max_size=200))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    try:
        tool.parse(text)
    except Unavailable:
        return


@pytest.fixture
def alone(tmp_path: Path, roots: Roots) -> Iterator[GaudiProbe]:
    """A probe with nothing but the tool."""
    replace_text(roots.dev / "accel/accel_controlD0", "")
    probe = GaudiProbe(roots, {"PATH": str(tmp_path / "bin"), "BENCH_HLML_LIBRARY": "/nowhere"})
    yield probe
    probe.close()


def test_the_tool_and_the_library_tell_the_same(probe: GaudiProbe, alone: GaudiProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    ours, theirs = probe.discover().devices, alone.discover().devices
    for attribute in ("uid", "name", "index", "pci", "driver", "visible_as", "memory_total_b", "power_limit_w"):
        assert [getattr(d, attribute) for d in ours] == [getattr(d, attribute) for d in theirs]
    for uid in UUIDS:
        assert _told(probe.sample(uid)) == _told(alone.sample(uid))


def _told(reading: Reading) -> tuple[float | None, ...]:
    return reading.power_w, reading.memory_used_b, reading.utilisation, reading.temperature_c


def test_the_tool_is_left_alone_where_the_library_tells_power(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    probe = GaudiProbe(roots, {**fake.env(), "PATH": str(tmp_path / "bin")}, check_s=0)
    assert probe.discover().devices[0].power is not None
    assert not (tmp_path / "bin/calls").exists()
    probe.close()


def test_a_tool_that_knows_fewer_columns_is_asked_for_those(alone: GaudiProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", [{name: cell for name, cell in card.items() if name != "power.max"} for card in CARDS])
    first, _ = alone.discover().devices
    assert first.power_limit_w is None
    assert alone.sample(first.uid).power_w == 226.0


def test_a_tool_without_csv_is_read_from_its_table(alone: GaudiProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", [{"none": 0}], table=TABLE)
    first, second = alone.discover().devices
    assert (first.uid, first.name) == ("gaudi:pci:0000:21:00.0", "HL-325")
    assert alone.sample(second.uid).power_w == 258.0


def test_its_logs_go_to_a_folder_that_goes_away(alone: GaudiProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    assert alone.discover().devices
    logs = Path((tmp_path / "bin/calls").read_text(encoding="utf-8").split()[0])
    assert logs.is_dir()
    alone.close()
    assert not logs.exists()


def test_a_tool_that_fails_is_a_problem_not_a_number(alone: GaudiProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", fail="hlml_init() failed: driver not loaded")
    found = alone.discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert "exit status 1: hlml_init() failed: driver not loaded" in problem.problem


class TestGaudiToolConformance(ProbeConformance):
    name = "gaudi"

    @pytest.fixture
    def working(self, alone: GaudiProbe, tmp_path: Path) -> Probe:
        install(tmp_path / "bin")
        return alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return GaudiProbe(make_roots(tmp_path / "none"), {"PATH": "", "BENCH_HLML_LIBRARY": "/nowhere"})
