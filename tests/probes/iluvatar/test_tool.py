"""`ixsmi`: what it prints, and the probe where there is nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes.iluvatar import tool
from bench.probes.iluvatar.probe import IluvatarProbe
from bench.probes.iluvatar.tool import COLUMNS
from bench.probes.presence import Roots
from bench.probes.values import Unavailable
from bench.records import Reading
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.iluvatar.host import BI_V150, UIDS
from tests.probes.iluvatar.tool import NEW, OLD, TABLE, csv, install
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text

SAMPLES = Path(__file__).parent / "samples"
MIB = 1 << 20
BI_V100 = recorded(SAMPLES / "ixsmi_bi_v100.txt")
TWO_CHIPS = recorded(SAMPLES / "ixsmi_bi_v150_dual_chip_na.txt")
QUERIED = recorded(SAMPLES / "ixsmi_query_gpu.csv")
ASKED = "index,name,memory.total,memory.used,utilization.gpu,temperature.gpu"
OUTPUTS = [BI_V100, TWO_CHIPS, csv()]


def _values(text: str, asked: str = "") -> dict[int, Mapping[str, float]]:
    return {one.index: one.values for one in tool.parse(text, asked)}


class TestSamples:
    def test_a_bi_v100(self) -> None:
        (card,) = tool.parse(BI_V100)
        assert (card.index, card.name, card.pci, card.driver) == (0, "Iluvatar BI-V100", "0000:98:00.0", "3.1.0")
        assert card.values == {
            "power_w": 40.0,
            "power_limit_w": 250.0,
            "memory_total_b": 32768 * MIB,
            "memory_used_b": 257 * MIB,
            "utilisation": 0.0,
            "temperature_c": 30.0,
            "clock_mhz": 1500.0,
        }

    def test_two_cards_of_two_chips(self) -> None:
        chips = tool.parse(TWO_CHIPS)
        assert [chip.pci for chip in chips] == ["0000:13:00.0", "0000:16:00.0", "0000:1c:00.0", "0000:1f:00.0"]
        assert [chip.values.get("power_w") for chip in chips] == [None, 93.0, None, 94.0]
        assert [chip.values.get("power_limit_w") for chip in chips] == [None, 350.0, None, 350.0]
        assert [chip.values["memory_used_b"] for chip in chips] == [116 * MIB] * 4
        assert "no value" in chips[0].reasons["power_w"]

    def test_a_chip_without_power(self) -> None:
        """`ixsmi_bi_v150s_single_chip_na.txt`"""
        (card,) = tool.parse(recorded(SAMPLES / "ixsmi_bi_v150s_single_chip_na.txt"))
        assert (card.name, card.driver, card.values["temperature_c"]) == ("Iluvatar BI-V150S", "4.1.0", 33.0)
        assert not {"power_w", "power_limit_w"} & set(card.values)

    def test_csv_without_its_header(self) -> None:
        """`ixsmi_query_gpu.csv`"""
        small, big = tool.parse(QUERIED, ASKED)
        assert (small.name, big.name) == ("Iluvatar MR-V50", "Iluvatar MR-V100")
        assert small.values == {
            "memory_total_b": 16384 * MIB,
            "memory_used_b": 116 * MIB,
            "utilisation": 0.0,
            "temperature_c": 30.0,
        }
        assert (big.values["memory_used_b"], big.values["temperature_c"]) == (27996 * MIB, 36.0)

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        assert [path.name for path in SAMPLES.iterdir() if path.name not in here] == []


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("columns", COLUMNS)
def test_csv_as_it_is_asked_for(columns: str, header: bool) -> None:
    idle, busy = tool.parse(csv(columns, header=header), columns)
    assert (idle.unique_id, busy.pci, busy.driver) == (UIDS[0], "0000:98:00.0", "4.4.0")
    assert (idle.values["power_w"], busy.values["power_w"], busy.values["power_limit_w"]) == (57.0, 131.0, 150.0)


@pytest.mark.parametrize(
    ("pair", "power_w", "limit_w"),
    [
        ("40W / 250W", 40.0, 250.0),
        ("40 / 250", 40.0, 250.0),
        ("40000 / 250000", 40.0, 250.0),
        ("40000mW/250000mW", 40.0, 250.0),
        ("40000 / N/A", 40.0, None),
        ("40 / 250000", None, 250.0),
        ("40000 / 250", None, 250.0),
        ("501W / 250W", None, 250.0),
        ("N/A / 250W", None, 250.0),
        ("ERR! / 250W", None, 250.0),
        ("40W", None, None),
    ],
)
def test_power_with_its_unit_or_without(pair: str, power_w: float | None, limit_w: float | None) -> None:
    (card,) = tool.parse(BI_V100.replace("40W / 250W", pair))
    assert (card.values.get("power_w"), card.values.get("power_limit_w")) == (power_w, limit_w)


# --- layouts ------------------------------------------------------------------------------------------------------------

HEADER = (
    ("GPU  Name", "Bus-Id", "Clock-SM  Clock-Mem"),
    ("Fan  Temp  Perf  Pwr:Usage/Cap", "Memory-Usage", "GPU-Util  Compute M."),
)


def _box(rows: Sequence[Sequence[Sequence[str]]], widths: Sequence[int]) -> str:
    """A box as the tool draws it: a chip is two lines of cells."""

    def line(cells: Sequence[str]) -> str:
        return "|" + "|".join(f" {cell.ljust(width)} " for cell, width in zip(cells, widths, strict=True)) + "|"

    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = ["+-----+", "|  IX-ML: 4.1.0   Driver Version: 4.1.0   CUDA Version: 10.2 |", rule.replace("+", "|", 1)]
    for place, chip in enumerate(rows):
        lines += [*map(line, chip), rule if place else rule.replace("-", "=")]
    return "\n".join(lines) + "\n"


@st.composite
def drawn_tables(draw: st.DrawFn) -> tuple[dict[int, dict[str, float]], str]:
    """Chips, and the table of them: cells in any order and width, more of them, words far apart or close, units there or not."""
    order, more = draw(st.permutations(range(3))), draw(st.integers(0, 2))
    gap, units = " " * draw(st.integers(1, 5)), draw(st.booleans())
    watt, mib, celsius_unit = ("W", "MiB", "C") if units else ("", "", "")
    rows = [[[*(re.sub(" {2,}", gap, line[i]) for i in order), *(["New"] * more)] for line in HEADER]]
    chips: dict[int, dict[str, float]] = {}
    for index in range(draw(st.integers(1, 8))):
        power, used = draw(st.integers(1, 700)), draw(st.integers(0, 32768))
        celsius, busy = draw(st.integers(1, 110)), draw(st.integers(0, 100))
        first = (f"{index}{gap}Iluvatar BI-V150", f"00000000:{index:02X}:00.0", f"1500MHz{gap}1600MHz")
        usage = f"{power}{watt} / 350{watt}"
        second = (f"N/A{gap}{celsius}{celsius_unit}{gap}P0{gap}{usage}", f"{used}{mib} / 32768{mib}", f"{busy}%{gap}Default")
        rows.append([[*(line[i] for i in order), *(["7W / 9W"] * more)] for line in (first, second)])
        chips[index] = {
            "power_w": float(power),
            "power_limit_w": 350.0,
            "memory_total_b": 32768 * MIB,
            "memory_used_b": used * MIB,
            "utilisation": busy / 100,
            "temperature_c": float(celsius),
            "clock_mhz": 1500.0,
        }
    return chips, _box(rows, [draw(st.integers(3, 60)) for _ in rows[0][0]])


@given(drawn_tables())
def test_columns_of_the_table_are_known_by_their_words(drawn: tuple[dict[int, dict[str, float]], str]) -> None:
    chips, text = drawn
    assert _values(text) == {index: pytest.approx(values) for index, values in chips.items()}


@given(st.permutations([*COLUMNS[0].split(","), "serial", "pstate"]), st.booleans(), st.booleans())
def test_columns_of_the_csv_are_known_by_their_names(names: list[str], in_header: bool, in_cells: bool) -> None:
    numbers = {
        "memory.total": ("32768", "MiB"),
        "memory.used": ("116", "MiB"),
        "gpu.power.draw": ("57", "W"),
        "temperature.gpu": ("36", "C"),
        "utilization.gpu": ("9", "%"),
    }
    words = {"index": "3", "name": "Iluvatar MR-V100", "gpu.current.power.limit": "150 W", "clocks.current.sm": "500 MHz"}
    header = ", ".join(f"{name} [{numbers[name][1]}]" if in_header and name in numbers else name for name in names)
    cells = {name: f"{number} {unit}" if in_cells else number for name, (number, unit) in numbers.items()} | words
    (card,) = tool.parse(f"{header}\n{', '.join(cells.get(name, 'N/A') for name in names)}\n")
    assert (card.index, card.name) == (3, "Iluvatar MR-V100")
    assert card.values == pytest.approx(
        {
            "power_w": 57.0,
            "power_limit_w": 150.0,
            "memory_total_b": 32768 * MIB,
            "memory_used_b": 116 * MIB,
            "utilisation": 0.09,
            "temperature_c": 36.0,
            "clock_mhz": 500.0,
        }
    )


@given(st.sampled_from(OUTPUTS), st.data())
def test_what_is_left_of_a_cut_output_is_right(text: str, data: st.DataObject) -> None:
    whole = _values(text)
    try:
        left = _values(text[: data.draw(st.integers(0, len(text)))])
    except Unavailable:
        return
    assert left.items() <= whole.items()


@given(st.sampled_from(OUTPUTS), st.sampled_from(["N/A", "-", "ERR!", "4294967295"]), st.data())
def test_a_word_in_a_numbers_place_costs_that_number(text: str, word: str, data: st.DataObject) -> None:
    whole = _values(text)
    begin, end = data.draw(st.sampled_from([found.span() for found in re.finditer(r"\d+(?= ?(?:MiB|MHz|W|C|%))", text)]))
    for index, values in _values(text[:begin] + word + text[end:]).items():
        assert values.items() <= whole[index].items()


@given(st.one_of(st.text(max_size=200), st.text(alphabet="|+-=GPU Name/01,index\n", max_size=200)))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    for words in (text, BI_V100.replace("0    Iluvatar BI-V100 ", text), f"{COLUMNS[0]}\n{text}\n"):
        try:
            tool.parse(words, COLUMNS[0])
        except Unavailable:
            continue


# --- the probe ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path, roots: Roots) -> Iterator[IluvatarProbe]:
    """A probe with nothing but the tool."""
    replace_text(roots.dev / "iluvatar0", "")
    probe = IluvatarProbe(roots, {"PATH": f"{tmp_path / 'bin'}:{os.defpath}"})
    yield probe
    probe.close()


def test_the_tool_and_the_library_tell_the_same(probe: IluvatarProbe, alone: IluvatarProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    ours, theirs = probe.discover().devices, alone.discover().devices
    for attribute in ("uid", "name", "index", "pci", "driver", "memory_total_b", "power_limit_w"):
        assert [getattr(d, attribute) for d in ours] == [getattr(d, attribute) for d in theirs]
    for uid in UIDS:
        assert _told(probe.sample(uid)) == _told(alone.sample(uid))


def test_so_they_do_of_cards_of_two_chips(fake: FakeLibrary, probe: IluvatarProbe, alone: IluvatarProbe, tmp_path: Path) -> None:
    fake.show(4, {**BI_V150, "0.temp": 32, "1.temp": 30, "2.temp": 31, "3.temp": 31})
    install(tmp_path / "bin", {TABLE: TWO_CHIPS})
    ours, theirs = probe.discover().devices, alone.discover().devices
    for attribute in ("uid", "name", "board", "covers", "power_reason", "memory_total_b"):
        assert [getattr(d, attribute) for d in ours] == [getattr(d, attribute) for d in theirs]
    for device in ours:
        assert _told(probe.sample(device.uid)) == _told(alone.sample(device.uid))


def _told(reading: Reading) -> tuple[float | None, ...]:
    return reading.power_w, reading.memory_used_b, reading.utilisation, reading.temperature_c, reading.clock_mhz


def test_the_tool_is_left_alone_where_the_library_tells_power(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    fake.show(4, BI_V150)
    probe = IluvatarProbe(roots, {**fake.env(), "PATH": f"{tmp_path / 'bin'}:{os.defpath}"}, check_s=0)
    assert len(probe.discover().devices) == 4
    assert not (tmp_path / "bin/ixsmi.calls").exists()
    probe.close()


@pytest.mark.parametrize(
    "answers", [{OLD: csv(COLUMNS[1])}, {NEW: "Field gpu.power.draw is not a valid field\n", OLD: csv(COLUMNS[1])}]
)
def test_an_older_tool_is_asked_by_its_own_names(alone: IluvatarProbe, tmp_path: Path, answers: Mapping[str, str]) -> None:
    install(tmp_path / "bin", answers)
    assert [device.uid for device in alone.discover().devices] == list(UIDS)
    assert [alone.sample(uid).power_w for uid in UIDS] == [57.0, 131.0]


def test_the_tool_in_corex_finds_its_library(roots: Roots, tmp_path: Path) -> None:
    replace_text(roots.dev / "iluvatar0", "")
    replace_text(tmp_path / "corex/lib64/libixml.so", "")
    program = install(tmp_path / "corex/bin")
    program.write_text(f'#!/bin/sh\n[ "$LD_LIBRARY_PATH" = "{tmp_path}/corex/lib64:/other" ] || exit 4\n{program.read_text()}')
    probe = IluvatarProbe(roots, {"COREX_HOME": str(tmp_path / "corex"), "PATH": os.defpath, "LD_LIBRARY_PATH": "/other"})
    assert [device.uid for device in probe.discover().devices] == list(UIDS)
    probe.close()


def test_a_tool_that_sees_nothing_is_a_problem_not_a_number(alone: IluvatarProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", dict.fromkeys((NEW, OLD, TABLE), "No supported GPUs found\n"))
    found = alone.discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert "No supported GPUs found" in problem.problem


class TestIluvatarToolConformance(ProbeConformance):
    name = "iluvatar"

    @pytest.fixture
    def working(self, alone: IluvatarProbe, tmp_path: Path) -> Probe:
        install(tmp_path / "bin")
        return alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return IluvatarProbe(make_roots(tmp_path / "none"), {"PATH": ""})
