"""What `mx-smi` prints, and has printed over its releases."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.probes import boxes
from bench.probes.metax import layouts
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from tests.probes.metax.host import SAMPLES, sample

TABLES = {
    "mx_smi_2.1.6_c550_no_cap.txt": [
        (0, "0000:2a:00.0", "MXC550", None, 44.0, None, 31.0, 810, 65536, 0.0),
        (1, "0000:3a:00.0", "MXC550", None, 46.0, None, 31.0, 810, 65536, 0.0),
    ],
    "mx_smi_2.1.12_c500.txt": [
        (0, "0000:0e:00.0", "MetaX C500", None, 54.0, 350.0, 35.0, 826, 65536, 0.0),
        (1, "0000:0f:00.0", "MetaX C500", None, 45.0, 350.0, 36.0, 826, 65536, 0.0),
    ],
    "mx_smi_2.2.8_n260.txt": [
        (0, "0000:01:00.0", "MetaX N260", None, 29.0, 225.0, 37.0, 666, 65536, 0.0),
        (1, "0000:21:00.0", "MetaX N260", None, 33.0, 225.0, 37.0, 666, 65536, 0.0),
    ],
    "mx_smi_2.2.9_c500_boards.txt": [
        (0, "0000:0e:00.0", "MetaX C500", "0", 57.0, 350.0, 35.0, 826, 65536, 0.0),
        (1, "0000:0f:00.0", "MetaX C500", "1", 58.0, 350.0, 37.0, 826, 65536, 0.0),
    ],
    "mx_smi_2.2.9_c600_two_dies.txt": [
        (0, "0000:67:00.0", "MetaX C600-A", "0", 93.0, 850.0, 31.0, 178, 73728, 0.0),
        (1, "0000:68:00.0", None, "0", None, None, 32.0, 179, 73728, 0.05),
        (2, "0000:86:00.0", "MetaX C600-A", "1", 94.0, 850.0, 32.0, 178, 73728, 0.0),
        (3, "0000:87:00.0", "MetaX C600-A", "1", 94.0, 850.0, 33.0, 178, 73728, 0.0),
    ],
}
VERSIONS = {
    "mx_smi_2.1.6_c550_no_cap.txt": ("2.5.014", "1.13.4.0"),
    "mx_smi_2.1.12_c500.txt": ("2.12.13", "1.20.3.0"),
    "mx_smi_2.2.8_n260.txt": ("3.0.11", "1.26.1.0"),
    "mx_smi_2.2.9_c500_boards.txt": ("3.4.4", "1.30.0.0"),
    "mx_smi_2.2.9_c600_two_dies.txt": ("3.9.10", "1.34.0.0"),
}
names = st.sampled_from(sorted(TABLES))


def _row(one: Told) -> tuple[object, ...]:
    sizes = (one.values.get(name) for name in ("memory_used_b", "memory_total_b"))
    mib = (None if size is None else size / (1 << 20) for size in sizes)
    watts = (one.values.get(name) for name in ("power_w", "power_limit_w", "temperature_c"))
    return (one.index, one.pci, one.name, one.board, *watts, *mib, one.values.get("utilisation"))


@pytest.mark.parametrize("name", TABLES)
def test_every_layout_of_the_table(name: str) -> None:
    told = layouts.table(sample(name))
    assert [_row(one) for one in told] == TABLES[name]
    assert {(one.driver, one.firmware) for one in told} == {VERSIONS[name]}


def test_every_sample_is_read_by_a_test() -> None:
    others = {"mx_smi_L_unavailable.txt", "mx_smi_show_temperature.txt", "mx_smi_show_board_power.txt"}
    assert {path.name for path in SAMPLES.iterdir()} == {*TABLES, *others}


def test_a_list_with_a_faulty_board() -> None:
    first, second = layouts.listing(sample("mx_smi_L_unavailable.txt")).values()
    assert (first.uuid, first.pci, first.faulty) == ("GPU-00000000-0000-4000-8000-0000000000a1", "0000:08:00.0", None)
    assert (second.uuid, second.pci, second.faulty) == (None, None, "Not Available(MetaX Sysfs File Unaccessible)")


def test_the_exact_values() -> None:
    assert layouts.sections(sample("mx_smi_show_temperature.txt")) == {0: {"temperature_c": 39.0}}
    told = layouts.sections(sample("mx_smi_show_board_power.txt"))
    assert told == {0: {"power_w": 47.917, "temperature_c": 39.0}, 1: {"power_w": 312.5, "temperature_c": 61.25}}


def test_exact_values_only_replace_those_of_the_table() -> None:
    """Of a second die the table tells no watts: those of its section are the board's once more."""
    told = layouts.table(sample("mx_smi_2.2.9_c600_two_dies.txt"))
    finer = {0: {"power_w": 93.4}, 1: {"power_w": 93.4, "temperature_c": 32.25}}
    first, second, *_ = layouts.refined(told, {}, finer)
    assert (first.values["power_w"], first.values["temperature_c"]) == (93.4, 31.0)
    assert "power_w" not in second.values
    assert second.values["temperature_c"] == 32.25


# --- what a release may change --------------------------------------------------------------------------------------------


def _rows(text: str, change: Callable[[list[str]], list[str]]) -> str:
    """The text with the cells of the table's rows changed."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if "Bus-id" in line)
    width = len(boxes.cells(lines[begin]) or [])
    for i, line in enumerate(lines[begin:], begin):
        found = boxes.cells(line)
        if found is not None and len(found) == width:
            lines[i] = "| " + " | ".join(change(found)) + " |"
    return "\n".join(lines) + "\n"


@given(name=names, blanks=st.integers(1, 30))
def test_wider_or_narrower_columns(name: str, blanks: int) -> None:
    between_words = re.compile(r"(?<![/\s])\s+(?![/\s])")
    text = _rows(sample(name), lambda cells: [between_words.sub(" " * blanks, cell) for cell in cells])
    assert [_row(one) for one in layouts.table(text)] == TABLES[name]


@given(name=names, order=st.permutations(range(4)))
def test_columns_in_any_order(name: str, order: list[int]) -> None:
    text = _rows(sample(name), lambda cells: [cells[i] for i in order if i < len(cells)])
    assert [_row(one) for one in layouts.table(text)] == TABLES[name]


@given(name=names, at=st.integers(0, 4), word=st.sampled_from(["7", "12W", "99C", "1/2", "100%", "-"]))
def test_more_columns(name: str, at: int, word: str) -> None:
    headings = iter(["New", "More"])
    text = _rows(sample(name), lambda cells: [*cells[:at], next(headings, word), *cells[at:]])
    assert [_row(one) for one in layouts.table(text)] == TABLES[name]


@given(name=names)
def test_values_without_units(name: str) -> None:
    text = _rows(sample(name), lambda cells: [re.sub(r"(?<=\d)(W|C|%|\s*MiB)(?=\s|$)", "", cell) for cell in cells])
    assert "350W" not in text
    assert [_row(one) for one in layouts.table(text)] == TABLES[name]


@given(name=names, word=st.sampled_from(["7", "12W / 34W", "99C", "5/65536 MiB", "100%", "-"]))
def test_more_rows_of_a_device(name: str, word: str) -> None:
    lines = sample(name).splitlines()
    taller = []
    for line in lines:
        taller.append(line)
        cells = boxes.cells(line) or []
        if any("Memory-Usage" in cell or "MiB" in cell for cell in cells):
            taller.append("| " + " | ".join(["Whatever" if "Memory-Usage" in line else word] * len(cells)) + " |")
    assert [_row(one) for one in layouts.table("\n".join(taller) + "\n")] == TABLES[name]


@given(name=names, share=st.floats(0, 1))
def test_a_cut_output_gives_no_wrong_value(name: str, share: float) -> None:
    text = sample(name)
    whole = {one.index: one for one in layouts.table(text)}
    try:
        told = layouts.table(text[: int(share * len(text))])
    except Unavailable:
        return
    for one in told:
        assert one.values.items() <= whole[one.index].values.items()
        assert one.pci in (None, whole[one.index].pci)
        assert one.name in (None, whole[one.index].name)


@given(share=st.floats(0, 1))
def test_a_cut_of_the_exact_values_gives_no_wrong_value(share: float) -> None:
    text = sample("mx_smi_show_board_power.txt")
    whole = layouts.sections(text)
    for index, found in layouts.sections(text[: int(share * len(text))]).items():
        assert found.items() <= whole[index].items()


@given(st.text(alphabet="|+-= \n0123456789/WC%GPUBus-idMemory-UsageNAMETempPwr:", max_size=300))
def test_anything_else_is_unavailable_never_a_crash(text: str) -> None:
    with contextlib.suppress(Unavailable):
        assert layouts.table(text)
    layouts.listing(text)
    layouts.sections(text)


@pytest.mark.parametrize("word", ["N/A", "NA", "-", "[Not Supported]", "Unknown"])
def test_a_word_in_the_place_of_a_number_is_the_reason(word: str) -> None:
    text = sample("mx_smi_2.2.8_n260.txt").replace("29W / 225W", f"{word} / 225W").replace("37C     33W", f"{word}  33W")
    first, second = layouts.table(text)
    assert "power_w" not in first.values
    assert first.values.get("power_limit_w") in (225.0, None)
    assert "temperature_c" not in second.values


@pytest.mark.parametrize("watts", ["0W", "0.2W", "29000W"])
def test_watts_that_can_not_be_believed_are_none(watts: str) -> None:
    first, second = layouts.table(sample("mx_smi_2.2.8_n260.txt").replace("29W / 225W", f"{watts} / 225W"))
    assert "implausible power" in first.reasons["power_w"]
    assert second.values["power_w"] == 33.0
