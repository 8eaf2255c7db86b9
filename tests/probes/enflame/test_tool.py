"""`efsmi`: what it prints, and the probe where there is nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes.enflame import tool
from bench.probes.enflame.probe import EnflameProbe
from bench.probes.presence import Roots
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from bench.records import Reading
from bench.testing.probes import ProbeConformance
from tests.fakes.library import FakeLibrary
from tests.probes.enflame.host import PLACES, UIDS
from tests.probes.enflame.tool import CALLS, install, path
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, replace_text

SAMPLES = Path(__file__).parent / "samples"
MIB = 1 << 20
QUERY = recorded(SAMPLES / "efsmi_q.txt")
SIZES = recorded(SAMPLES / "efsmi_q_sizes.txt")
L300 = recorded(SAMPLES / "efsmi_l300.txt")
V1_2 = recorded(SAMPLES / "efsmi_v1.2_s60.txt")
SRIOV = recorded(SAMPLES / "efsmi_v1.6_s60g_sriov.txt")
DMON = recorded(SAMPLES / "efsmi_dmon.txt")
OUTPUTS = (QUERY, SIZES, L300, V1_2, SRIOV, DMON)


class TestSamples:
    def test_a_query(self) -> None:
        (card,) = tool.parse(QUERY)
        assert (card.index, card.name, card.unique_id, card.pci) == (0, "S60", "GCU-0000000000000001", "0000:0e:00.0")
        assert card.driver == "1.4.3"
        assert card.values == {
            "power_w": 96.0,
            "power_limit_w": 300.0,
            "memory_total_b": 42976 * MIB,
            "memory_used_b": 0,
            "temperature_c": 35.0,
            "utilisation": 0.0,
        }

    def test_a_query_of_two_cards_with_other_names_of_sizes(self) -> None:
        first, second = tool.parse(SIZES)
        assert [(card.index, card.unique_id, card.pci) for card in (first, second)] == [
            (0, UIDS[0], "0000:17:00.0"),
            (1, UIDS[1], "0000:18:00.0"),
        ]
        assert (first.values["memory_used_b"], second.values["memory_used_b"]) == (0, 36160 * MIB)
        assert (second.values["power_w"], second.values["temperature_c"], second.values["utilisation"]) == (232.0, 58.0, 0.97)

    def test_the_oldest_names_of_sizes(self) -> None:
        text = SIZES.replace("Total Size", "Mem Size  ").replace("Used Size", "Mem Usage")
        assert [card.values for card in tool.parse(text)] == [card.values for card in tool.parse(SIZES)]

    def test_a_table_of_1_7(self) -> None:
        (card,) = tool.parse(L300)
        assert (card.index, card.name, card.pci) == (0, "Enflame L300", "0000:2d:00.0")
        assert (card.driver, card.firmware) == ("1.7.2.14", "40.2.8.3")
        assert card.values == {
            "power_w": 68.0,
            "power_limit_w": 300.0,
            "memory_total_b": 147456 * MIB,
            "temperature_c": 35.0,
            "utilisation": 0.0,
        }

    def test_a_table_of_1_2(self) -> None:
        """No slash between the watts, a blank before the C, other rules."""
        (card,) = tool.parse(V1_2)
        assert (card.name, card.pci, card.driver, card.firmware) == ("S60", "0000:0e:00.0", "1.2.0.301", "31.1.3")
        assert card.values == {
            "power_w": 105.0,
            "power_limit_w": 300.0,
            "memory_total_b": 49120 * MIB,
            "temperature_c": 39.0,
            "utilisation": 0.0,
        }

    def test_a_virtual_function_has_no_power(self) -> None:
        (card,) = tool.parse(SRIOV)
        assert card.values == {"memory_total_b": 23552 * MIB, "temperature_c": 34.0, "utilisation": 0.0}
        assert "N/A" in card.reasons["power_w"]

    def test_the_monitor(self) -> None:
        first, second = tool.parse(DMON)
        assert first.values == {"power_w": 101.0, "memory_total_b": 42976 * MIB, "temperature_c": 36.0, "utilisation": 0.0}
        assert second.values == {"power_w": 232.0, "memory_total_b": 42976 * MIB, "temperature_c": 58.0, "utilisation": 0.97}

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        assert [path.name for path in SAMPLES.iterdir() if path.name not in here] == []


def _boxed(rows: Sequence[Sequence[str]], widths: Sequence[int], rule: str) -> list[str]:
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return [*lines, "|" + "+".join(rule * (width + 2) for width in widths) + "|"]


@st.composite
def drawn_tables(draw: st.DrawFn) -> tuple[list[Told], str]:
    """Cards, and a table of them: cells and words in any order and width, more of them, blanks before units or none."""
    gap, slash = draw(st.sampled_from(["", " "])), draw(st.sampled_from([" / ", "/", "  "]))
    degree = draw(st.sampled_from(["\u2103", " C", "C", " \u00b0C"]))
    order = [draw(st.permutations(range(3))) for _ in range(2)]
    inside = draw(st.permutations(range(3)))
    extra = draw(st.integers(0, 2))
    blank = " " * draw(st.integers(2, 6))

    def arranged(cells: Sequence[str], which: int, more: str) -> list[str]:
        return [*(cells[i] for i in order[which]), *[more] * extra]

    def hot(words: Sequence[str]) -> str:
        return blank.join(words[i] for i in inside)

    header = [
        arranged((f"DEV{blank}NAME", "Boot FW VER", f"BUS-ID{blank}ECC"), 0, "Extra"),
        arranged((hot(("TEMP", "Lpm", "Pwr(Usage/Cap)")), f"Mem{blank}GCU Virt", f"DUsed{blank}SN"), 1, "More"),
    ]
    cards: list[Told] = []
    rows: list[list[list[str]]] = []
    for index in range(draw(st.integers(1, 8))):
        watts, celsius, busy = draw(st.integers(1, 599)), draw(st.integers(1, 110)), draw(st.integers(0, 100))
        name = draw(st.sampled_from(["S60", "Enflame L300", "Enflame S60G"]))
        power = f"{watts}{gap}W{slash}300{gap}W"
        first = (f"{index}{blank}{name}", "40.2.8.3", f"00:{index:02x}:00.0{blank}Enable")
        second = (hot((f"{celsius}{degree}", "LP1", power)), f"147456{gap}MiB Disable", f"{busy}{gap}%{blank}A000X1")
        rows.append([arranged(first, 0, "7W 8MiB"), arranged(second, 1, "9W 3% 4C")])
        numbers = (watts, 300, 147456 * MIB, celsius, busy / 100)
        names = ("power_w", "power_limit_w", "memory_total_b", "temperature_c", "utilisation")
        cards.append(Told(index=index, pci=f"0000:{index:02x}:00.0", name=name, values=dict(zip(names, numbers, strict=True))))
    widths = [draw(st.integers(40, 60)) for _ in header[0]]
    lines = ["| EFSMI: 1.7.2.14          Driver Ver: 1.7.2.14 |", "|----------------|", *_boxed(header, widths, "=")]
    return cards, "\n".join([*lines, *(line for card in rows for line in _boxed(card, widths, "-"))]) + "\n"


@given(drawn_tables())
def test_columns_of_the_table_are_known_by_their_words(drawn: tuple[list[Told], str]) -> None:
    cards, text = drawn
    found = tool.parse(text)
    assert [(one.index, one.pci, one.name) for one in found] == [(one.index, one.pci, one.name) for one in cards]
    for one, card in zip(found, cards, strict=True):
        assert one.values == pytest.approx(card.values)
        assert (one.driver, one.firmware) == ("1.7.2.14", "40.2.8.3")


@st.composite
def drawn_monitors(draw: st.DrawFn) -> tuple[list[dict[str, float]], str]:
    """Readings, and the lines of them: columns in any order and width, more of them."""
    units = {"Dev": "Idx", "Pwr": "W", "DTemp": "C", "DUsed": "%", "Mem": "MiB", "Dpm": "L", "Fan": "%", "TxPci": "MiB/s"}
    names = draw(st.permutations(list(units)))
    width = draw(st.integers(7, 20))
    readings, rows = [], []
    for index in range(draw(st.integers(1, 8))):
        cells = {
            "Dev": index,
            "Pwr": draw(st.integers(1, 500)),
            "DTemp": draw(st.integers(1, 99)),
            "DUsed": draw(st.integers(0, 100)),
        }
        rows.append({**cells, "Mem": 42976, "Dpm": "Sleep", "Fan": 55, "TxPci": 12})
        readings.append({"power_w": cells["Pwr"], "temperature_c": cells["DTemp"], "utilisation": cells["DUsed"] / 100})
    first = names.index("Dev")
    names = [names[first], *names[:first], *names[first + 1 :]]
    header = [f"*{''.join(str(word).ljust(width) for word in words)}" for words in (names, [units[name] for name in names])]
    lines = ["".join(str(row[name]).ljust(width) for name in names) for row in rows]
    return readings, "\n".join([*header, *lines]) + "\n"


@given(drawn_monitors())
def test_columns_of_the_monitor_are_known_by_their_words(drawn: tuple[list[dict[str, float]], str]) -> None:
    readings, text = drawn
    for one, reading in zip(tool.parse(text), readings, strict=True):
        assert one.values == pytest.approx({**reading, "memory_total_b": 42976 * MIB})


@given(st.sampled_from(OUTPUTS), st.floats(0, 1))
def test_what_is_left_of_a_cut_output_is_right(text: str, where: float) -> None:
    whole = {one.index: one for one in tool.parse(text)}
    try:
        left = tool.parse(text[: int(where * len(text))])
    except Unavailable:
        return
    for one in left:
        assert one.values.items() <= whole[one.index].values.items()


@given(st.sampled_from(OUTPUTS), st.sampled_from(["N/A", "-1", "", "ERR!", "4294967295"]), st.data())
def test_a_word_in_a_numbers_place_is_missing(text: str, word: str, data: st.DataObject) -> None:
    numbers = [found.span() for found in re.finditer(r"\d+(?:\.\d+)?(?= ?(?:MiB|W|C|%|\u2103)\b)", text)]
    if not numbers:
        numbers = [found.span() for found in re.finditer(r"(?<= )\d+(?= )", text)]
    begin, end = data.draw(st.sampled_from(numbers))
    whole = {one.index: one.values for one in tool.parse(text)}
    for one in tool.parse(text[:begin] + word + text[end:]):
        assert one.values.items() <= whole[one.index].items()


@given(st.text(max_size=200) | st.text(alphabet="*Dev Idx0|\n1W", max_size=80))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    try:
        tool.parse(text)
    except Unavailable:
        return


# --- the probe ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path: Path, roots: Roots) -> Iterator[EnflameProbe]:
    """A probe with nothing but the tool."""
    replace_text(roots.dev / "gcu0", "")
    probe = EnflameProbe(roots, {"PATH": path(tmp_path / "bin"), "BENCH_EFML_LIBRARY": "/nowhere"})
    yield probe
    probe.close()


@pytest.mark.parametrize("interface", ["fake", "old"])
def test_the_tool_and_the_library_tell_the_same(
    alone: EnflameProbe, roots: Roots, tmp_path: Path, request: pytest.FixtureRequest, interface: str
) -> None:
    install(tmp_path / "bin", query=SIZES)
    shown: FakeLibrary = request.getfixturevalue(interface)
    probe = EnflameProbe(roots, {**shown.env(), "PATH": path(tmp_path / "bin")})
    ours, theirs = probe.discover().devices, alone.discover().devices
    for attribute in ("uid", "name", "index", "pci", "driver", "memory_total_b", "power_limit_w", "scope"):
        assert [getattr(d, attribute) for d in ours] == [getattr(d, attribute) for d in theirs], attribute
    for uid in UIDS:
        assert _told(probe.sample(uid)) == _told(alone.sample(uid))
    probe.close()


def _told(reading: Reading) -> tuple[float | None, ...]:
    return reading.power_w, reading.memory_used_b, reading.utilisation, reading.temperature_c


def test_names_that_the_library_lacks_are_asked_for_once(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin", query=SIZES)
    probe = EnflameProbe(roots, {**fake.env(), "PATH": path(tmp_path / "bin")})
    assert [(device.uid, device.driver) for device in probe.discover().devices] == [(uid, "1.4.3.4") for uid in UIDS]
    assert (tmp_path / "bin" / CALLS).read_text(encoding="utf-8") == "-q\n"
    probe.close()


def test_names_of_another_card_are_not_taken(fake: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin", query=SIZES.replace(": 18", ": 5e"))
    probe = EnflameProbe(roots, {**fake.env(), "PATH": path(tmp_path / "bin")})
    assert [(device.uid, device.driver) for device in probe.discover().devices] == [(UIDS[0], "1.4.3.4"), (PLACES[1], None)]
    probe.close()


def test_the_tool_is_left_alone_where_the_library_tells_all(old: FakeLibrary, roots: Roots, tmp_path: Path) -> None:
    install(tmp_path / "bin", query=SIZES)
    probe = EnflameProbe(roots, {**old.env(), "PATH": path(tmp_path / "bin")})
    assert probe.discover().devices[0].power is not None
    assert not (tmp_path / "bin" / CALLS).exists()
    probe.close()


@pytest.mark.parametrize(
    ("forms", "power_w"), [({"table": L300}, 68.0), ({"monitor": DMON}, 101.0), ({"query": "", "table": V1_2}, 105.0)]
)
def test_the_first_form_that_it_answers(alone: EnflameProbe, tmp_path: Path, forms: dict[str, str], power_w: float) -> None:
    install(tmp_path / "bin", **forms)
    first = alone.discover().devices[0]
    assert alone.sample(first.uid).power_w == power_w
    assert first.power is not None
    assert first.power.api == "efsmi"


def test_a_tool_that_fails_is_a_problem_not_a_number(alone: EnflameProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin")
    found = alone.discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert "exit status 2: efsmi: unknown argument -q" in problem.problem


class TestEnflameToolConformance(ProbeConformance):
    name = "enflame"

    @pytest.fixture
    def working(self, alone: EnflameProbe, tmp_path: Path) -> Probe:
        install(tmp_path / "bin", query=SIZES)
        return alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return EnflameProbe(make_roots(tmp_path / "none"), {"PATH": "", "BENCH_EFML_LIBRARY": "/nowhere"})
