"""What `npu-smi` prints: every recorded sample to the right values, and whatever else may come."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.probes.ascend.tool_text import Common, cards_by_microcontroller, parse, parse_common, parse_mapping
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from tests.probes.ascend.host import SAMPLES
from tests.probes.recorded import recorded

MIB = 1 << 20
TABLES = ("910b2", "910a_warning_procs", "a3_dual_die", "a3_26_wide", "310p3_duo_na")


def table(name: str) -> str:
    return recorded(SAMPLES / f"npu_smi_info_{name}.txt")


def common(name: str) -> Common:
    return parse_common(recorded(SAMPLES / f"npu_smi_t_common_{name}.txt"))


def sizes(told: Told) -> tuple[float, float]:
    return told.values["memory_used_b"] / MIB, told.values["memory_total_b"] / MIB


class TestSamples:
    def test_910b2(self) -> None:
        first, second = parse(table("910b2"))
        assert first.values == {
            "power_w": 101.4,
            "memory_used_b": 46456 * MIB,
            "memory_total_b": 65536 * MIB,
            "utilisation": 0.0,
            "temperature_c": 38.0,
        }
        assert (first.name, first.pci, first.driver, first.board) == ("Ascend 910B2", "0000:c1:00.0", "25.2.0", "card 0")
        assert (second.values["power_w"], sizes(second), second.values["temperature_c"]) == (96.9, (3395, 65536), 39.0)
        assert first.index != second.index

    def test_910a_whose_health_is_a_warning(self) -> None:
        """Its rows of processes are no devices, and its memory is the HBM, not the DDR."""
        first, second = parse(table("910a_warning_procs"))
        assert [(d.name, d.board) for d in (first, second)] == [("Ascend 910A", "card 2"), ("Ascend 910A", "card 3")]
        assert [d.values["power_w"] for d in (first, second)] == [69.0, 206.9]
        assert sizes(first) == (0, 32768)

    def test_two_dies_a_card(self) -> None:
        dies = parse(table("a3_dual_die"))
        assert [die.values.get("power_w") for die in dies] == [178.8, None, 185.4, None]
        assert [die.board for die in dies] == ["card 0", "card 0", "card 1", "card 1"]
        assert [sizes(die)[0] for die in dies] == [3397, 3186, 3397, 3185]
        assert [die.pci for die in dies] == ["0000:9d:00.0", "0000:9f:00.0", "0000:99:00.0", "0000:9b:00.0"]
        assert "the first one's is the card's" in dies[1].reasons["power_w"]

    def test_the_wider_table_of_26(self) -> None:
        first, second = parse(table("a3_26_wide"))
        assert (first.values["power_w"], second.values.get("power_w")) == (162.6, None)
        assert (sizes(first), sizes(second)) == ((2909, 65536), (2870, 65536))
        assert (first.values["temperature_c"], second.values["temperature_c"]) == (34.0, 35.0)

    def test_310p_duo(self) -> None:
        text = table("310p3_duo_na")
        first, second = parse(text)
        assert (first.values.get("power_w"), second.values.get("power_w")) == (None, None)
        assert (sizes(first), sizes(second)) == ((1529, 44280), (1412, 43693))
        assert (first.visible_as, second.visible_as, first.board) == ("0", "1", "card 2")
        assert cards_by_microcontroller(text) == [2]

    def test_310p_duo_with_what_its_microcontroller_says(self) -> None:
        first, second = parse(table("310p3_duo_na"), commons={2: common("310p_duo")})
        assert (first.values["power_w"], second.values.get("power_w")) == (45.2, None)
        assert (first.values["clock_mhz"], second.values["clock_mhz"]) == (960.0, 960.0)

    def test_common_of_a_310p_duo(self) -> None:
        told = common("310p_duo")
        assert told.card_power == ("45.2", "W")
        assert [told.chips[chip]["temperature"] for chip in (0, 1)] == [("60", "C"), ("59", "C")]

    def test_common_of_a_910b(self) -> None:
        """Two views of one thing: the chip's power is its own, the card's is beside it."""
        told = common("910b")
        assert (told.chips[0]["npu real-time power"], told.card_power) == (("69.0", "W"), ("45.2", "W"))
        assert (told.chips[0]["aicore curfreq"], told.chips[0]["temperature"]) == (("1000", "MHZ"), ("46", "C"))

    def test_an_occupied_device(self) -> None:
        with pytest.raises(Unavailable, match="ret is -8020"):
            parse(recorded(SAMPLES / "npu_smi_device_used_error.txt"))

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        stems = (re.sub(r"npu_smi_(info_|t_common_)?", "", path.stem) for path in SAMPLES.iterdir())
        assert [stem for stem in stems if f'"{stem}"' not in here and f"{stem}.txt" not in here] == []


@pytest.mark.parametrize("chip", ["310", "310P3"])
@pytest.mark.parametrize("told", ["Rated Power Dissipation(W)     : 12.8", "Power                          : 12.8"])
def test_rated_power_is_no_power(chip: str, told: str) -> None:
    text = table("310p3_duo_na").replace("310P3", chip.ljust(5)).replace("NA  ", "12.8")
    asked = parse_common(f"\tNPU ID                         : 2\n\tChip ID                        : 0\n\t{told}\n")
    assert [device.values.get("power_w") for device in parse(text, commons={2: asked})] == [None, None]


def test_the_cards_power_of_a_310() -> None:
    text = "\tChip ID : 0\n\tRated Power Dissipation(W) : 12.8\n\n\tChip Name : MCU\n\tPower Dissipation(W) : 16.9\n"
    assert parse_common(text).card_power == ("16.9", "W")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\tNPU ID   Chip ID   Chip Logic ID   Chip Name\n\t4   0   1   Ascend 310P3\n\t4   1   -   Mcu\n", {(4, 0): "1"}),
        (
            "\tNPU ID  Chip ID  Chip Logic ID  Chip Phy-ID  Chip Name\n\t0  0  1  8  Ascend910\n\t0  1  0  9  Ascend910\n",
            {(0, 0): "1", (0, 1): "0"},
        ),
        ("NPU ID   Slot ID   Chip ID   Chip Phy-ID   Chip Name\n1   3   0   5   Ascend950PR\n", {(1, 0): "5"}),
        ("NPU ID   Chip ID   Chip Logic ID   Chip Name\n0   0   12", {}),
        ("There is no NPU card on this server.\n", {}),
        ("", {}),
    ],
)
def test_logic_ids(text: str, expected: Mapping[tuple[int, int], str]) -> None:
    assert parse_mapping(text) == expected


# --- other layouts ------------------------------------------------------------------------------------------------------

Row = list[list[str]]
"""Cells of texts, one a column."""
SLASH = re.compile(r"\s*/\s*")


def rows_of(text: str) -> list[Row | str]:
    """The table taken apart: rows, and lines of any other kind as they are."""
    lines: list[Row | str] = []
    for line in text.splitlines():
        is_row = line.startswith("|") and not line.startswith("| No ")
        lines.append([SLASH.sub("/", cell).split() for cell in line.strip("|").split("|")] if is_row else line)
    return lines


def device_rows(lines: Sequence[Row | str]) -> list[tuple[Row, Row]]:
    """The pairs of rows of the header and of each device."""
    rows = [line for line in lines if not isinstance(line, str) and len(line) == 3]
    return list(zip(rows[::2], rows[1::2], strict=True))


def drawn_line(draw: st.DrawFn, row: Row) -> str:
    """The row in columns of any width; sizes with and without blanks around the slash."""
    cells = []
    for texts in row:
        spaced = [text.replace("/", draw(st.sampled_from(["/", " / ", "/ ", "    / "]))) for text in texts]
        cells.append(" ".join(text + " " * draw(st.integers(0, 9)) for text in spaced))
    return "| " + " | ".join(cells) + " |"


def drawn(draw: st.DrawFn, lines: Sequence[Row | str]) -> str:
    return "\n".join(line if isinstance(line, str) else drawn_line(draw, line) for line in lines) + "\n"


def until_processes(text: str) -> str:
    return text[: text.find("| NPU     Chip  ")] if "Process" in text else text


@st.composite
def other_widths(draw: st.DrawFn) -> tuple[str, str]:
    text = draw(st.sampled_from([table(name) for name in TABLES]))
    return text, drawn(draw, rows_of(text))


@st.composite
def other_order(draw: st.DrawFn) -> tuple[str, str]:
    """Columns of a cell, and cells of a row, in any order; some columns more, with and without a unit."""
    text = until_processes(draw(st.sampled_from([table(name) for name in TABLES])))
    lines = rows_of(text)
    pairs = device_rows(lines)
    for which in (0, 1):
        for cell in range(3):
            order = draw(st.permutations(range(len(pairs[0][which][cell]))))
            more = draw(st.sampled_from([None, "Fan(%)", "Slot", "Volt(V)"]))
            at = draw(st.integers(0, len(order)))
            for row, pair in enumerate(pairs):
                texts = [pair[which][cell][i] for i in order]
                if more is not None:
                    texts.insert(at, more if row == 0 else "7")
                pair[which][cell] = texts
        order = draw(st.permutations(range(3)))
        for pair in pairs:
            pair[which][:] = [pair[which][i] for i in order]
    return text, drawn(draw, lines)


@st.composite
def without_units(draw: st.DrawFn) -> tuple[str, str]:
    text = draw(st.sampled_from([table(name) for name in TABLES]))
    units = draw(st.lists(st.sampled_from(["(W)", "(C)", "(%)", "(MB)", "(page)"]), min_size=1))
    for_nothing = text
    for unit in units:
        for_nothing = for_nothing.replace(unit, "")
    return text, for_nothing


@given(st.one_of(other_widths(), other_order(), without_units()))
def test_another_layout_says_the_same(pair: tuple[str, str]) -> None:
    assert parse(pair[1]) == parse(pair[0])


@given(st.sampled_from(TABLES), st.integers(1, 5))
def test_more_devices_are_more_devices(name: str, times: int) -> None:
    """The same cards again, under numbers of their own."""
    text = table(name)
    lines = until_processes(text).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("| Chip")) + 2
    blocks = list(lines)
    for again in range(1, times + 1):
        for line in lines[first:]:
            moved = re.match(r"\| (\d+)( +)(\S*[A-Za-z])", line)
            blocks.append(f"| {int(moved[1]) + 20 * again}{moved[2]}{moved[3]}{line[moved.end() :]}" if moved else line)
    found = parse("\n".join(blocks) + "\n")
    before = parse(text)
    assert len(found) == len(before) * (times + 1)
    assert len({device.index for device in found}) == len(found)
    assert [device.values for device in found] == [device.values for device in before] * (times + 1)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_cut_anywhere_says_the_same_of_what_is_left(name: str) -> None:
    text = table(name)
    whole = {device.index: device for device in parse(text)}
    for end in range(text.index("Hugepages"), len(text)):
        try:
            left = parse(text[:end])
        except Unavailable:
            continue
        assert all(whole[device.index] == device for device in left), text[:end]


@given(st.sampled_from(["310p_duo", "910b"]), st.floats(0, 1))
def test_cut_lines_say_the_same_of_what_is_left(name: str, where: float) -> None:
    text = recorded(SAMPLES / f"npu_smi_t_common_{name}.txt")
    left, whole = parse_common(text[: int(where * len(text))]), parse_common(text)
    assert left.card_power in (None, whole.card_power)
    for chip, cells in left.chips.items():
        assert cells.items() <= whole.chips[chip].items()


@pytest.mark.parametrize(
    ("power", "expected"),
    [("0.0", None), ("-", None), ("NA", None), ("N/A", None), ("6553.5", None), ("4999.9", 4999.9), ("0.4", None), ("abc", None)],
)
def test_what_is_no_power_is_missing(power: str, expected: float | None) -> None:
    told = parse(table("910b2").replace("101.4", power))[0]
    assert told.values.get("power_w") == expected
    assert ("power_w" in told.reasons) == (expected is None)
    assert told.values["temperature_c"] == 38.0


def test_a_unit_of_the_header_is_heeded() -> None:
    told = parse(table("910b2").replace("Power(W)", "Power(mW)").replace("101.4", "101400"))[0]
    assert told.values["power_w"] == pytest.approx(101.4)


@pytest.mark.parametrize("cell", ["        38", "101.4   38", "101.4", ""])
def test_a_cell_that_lacks_a_text_costs_its_own_columns(cell: str) -> None:
    """Nobody can tell whose text is missing."""
    text = table("910b2").replace("101.4       38                0    / 0             ", cell)
    told = parse(text)[0]
    assert not {"power_w", "temperature_c"} & set(told.values)
    assert (sizes(told), told.pci) == ((46456, 65536), "0000:c1:00.0")


def test_rows_that_no_header_explains_are_not_read() -> None:
    third = "| 0                         | 0000:C1:00.0  | 7           7    / 7          7    / 7             |\n"
    lines = (line + third if "0000:" in line else line for line in table("910b2").splitlines(keepends=True))
    with pytest.raises(Unavailable, match="lists no device"):
        parse("".join(lines))


@pytest.mark.parametrize("busy", ["101", "612", "-1"])
def test_more_than_all_is_not_busy(busy: str) -> None:
    text = table("310p3_duo_na").replace("0000:01:00.0    | 0   ", f"0000:01:00.0    | {busy.ljust(4)}")
    assert all("utilisation" not in device.values for device in parse(text))


@pytest.mark.parametrize("sizes", ["46456/ 4096 ", "7      ", "NA   / NA", "1/2/3", "46456/99999999"])
def test_impossible_sizes_are_missing(sizes: str) -> None:
    told = parse(table("910b2").replace("46456/ 65536", sizes))[0]
    assert not {"memory_used_b", "memory_total_b"} & set(told.values)
    assert told.values["power_w"] == 101.4


@given(st.text(alphabet="|+-=/ \n0123456789.NPUChipBus-IdPower(W)Processabc:", max_size=400))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    parse_common(text)
    parse_mapping(text)
    for head in ("", table("910b2")[:900]):
        try:
            parse(head + text)
        except Unavailable:
            continue
