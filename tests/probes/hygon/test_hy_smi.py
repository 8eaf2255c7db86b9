"""What `hy-smi` prints, read into cards."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.probes.hygon import tool
from bench.probes.values import Unavailable
from tests.probes.hygon.tool import CARDS, JSON
from tests.probes.recorded import recorded

SAMPLES = Path(__file__).parent / "samples"
MIB = 1 << 20
BW1000 = recorded(SAMPLES / "hy_smi_table_bw1000.txt")
MALFORMED = recorded(SAMPLES / "hy_smi_bw_missing_commas.json")


def _values(text: str) -> dict[int, Mapping[str, float]]:
    return {one.index: one.values for one in tool.parse(text)}


class TestSamples:
    @pytest.mark.parametrize(
        ("sample", "name", "unique_id", "power_w", "celsius", "total_mib"),
        [
            ("hy_smi_24.04_z100l.json", "Z100L", "GPU-a000000000000000", 38.0, 41.0, 32752),
            ("hy_smi_25.04.json", "K100_AI", "GPU-a000000000000001", 77.0, 35.0, 65520),
        ],
    )
    def test_one_card_in_the_words_of_two_releases(
        self, sample: str, name: str, unique_id: str, power_w: float, celsius: float, total_mib: int
    ) -> None:
        (card,) = tool.parse(recorded(SAMPLES / sample))
        assert (card.index, card.name, card.unique_id) == (0, name, unique_id)
        assert card.values == {
            "power_w": power_w,
            "temperature_c": celsius,
            "memory_total_b": total_mib * MIB,
            "memory_used_b": 2 * MIB,
            "utilisation": 0.0,
        }

    def test_json_without_its_commas(self) -> None:
        """`hy_smi_bw_missing_commas.json`"""
        with pytest.raises(ValueError, match="delimiter"):
            json.loads(MALFORMED)
        first, second = tool.parse(MALFORMED)
        assert (first.name, second.name) == ("BW", "BW")
        assert first.values == {
            "power_w": 91.0,
            "temperature_c": 57.0,
            "memory_total_b": 65520 * MIB,
            "memory_used_b": 64169 * MIB,
            "utilisation": 0.0,
        }
        assert (second.values["power_w"], second.values["memory_used_b"]) == (84.0, 64104 * MIB)

    @pytest.mark.parametrize(
        ("sample", "expected"),
        [
            ("hy_smi_table_bw1000.txt", [(80.0, 1000.0, 50.0, 0.0), (512.0, 1000.0, 52.0, 0.996)]),
            ("hy_smi_table_k100ai.txt", [(114.0, 400.0, 59.0, 0.0), (511.0, 800.0, 55.0, 1.0)]),
            ("hy_smi_table_z100_fan_na.txt", [(38.0, 280.0, 41.0, 0.0), (39.0, 280.0, 44.0, 0.07)]),
        ],
    )
    def test_tables(self, sample: str, expected: Sequence[tuple[float, ...]]) -> None:
        names = ("power_w", "power_limit_w", "temperature_c", "utilisation")
        cards = tool.parse(recorded(SAMPLES / sample))
        assert [card.index for card in cards] == [0, 1]
        for card, numbers in zip(cards, expected, strict=True):
            assert card.values == pytest.approx(dict(zip(names, numbers, strict=True)))
            assert "share of memory" in card.reasons["memory_used_b"]

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        assert [path.name for path in SAMPLES.iterdir() if path.name not in here] == []


# --- JSON ---------------------------------------------------------------------------------------------------------------


def test_values_without_quotes_and_with_units() -> None:
    text = (
        '{"card0": {"GPU use (%)": "0%" "VRAM Total Memory (B)": 34359738368 "VRAM Total Used Memory (B)": 6870269952 '
        '"Temperature (Sensor edge) (C)": 41.0C "Average Graphics Package Power (W)": 80W} "card1": {"GPU use (%)": "7%"}}'
    )
    assert _values(text) == {
        0: {
            "utilisation": 0.0,
            "memory_total_b": 34359738368,
            "memory_used_b": 6870269952,
            "temperature_c": 41.0,
            "power_w": 80.0,
        },
        1: {"utilisation": pytest.approx(0.07)},
    }


@pytest.mark.parametrize("unique_id", ["TCA24620040801", "N/A", "", "0x0", "a0", "0000000000000000"])
def test_what_is_no_unique_id_is_left_out(unique_id: str) -> None:
    """Some releases print a serial number there: what the library tells is 64 bits."""
    (card,) = tool.parse(json.dumps({"card0": {**CARDS["card0"], "Unique ID": unique_id}}))
    assert card.unique_id is None
    assert card.pci == "0000:09:00.0"


@pytest.mark.parametrize(
    ("key", "value", "quantity"),
    [
        ("Average Graphics Package Power (W)", "N/A", "power_w"),
        ("Average Graphics Package Power (W)", "0.0", "power_w"),
        ("Average Graphics Package Power (W)", "2001", "power_w"),
        ("Max Graphics Package Power (W)", "0", "power_limit_w"),
        ("HCU use (%)", "101", "utilisation"),
        ("vram Total Memory (MiB)", "0", "memory_total_b"),
        ("vram Total Used Memory (MiB)", "65521", "memory_used_b"),
        ("vram Total Used Memory (MiB)", "18446744073709551615", "memory_used_b"),
        ("Temperature (Sensor junction) (C)", "0.0", "temperature_c"),
    ],
)
def test_what_is_no_reading_is_missing_with_the_reason(key: str, value: str, quantity: str) -> None:
    (card,) = tool.parse(json.dumps({"card0": {**CARDS["card0"], key: value}}))
    (whole,) = tool.parse(json.dumps({"card0": CARDS["card0"]}))
    assert quantity not in card.values
    assert card.reasons[quantity]
    assert card.values.items() <= whole.values.items()


@st.composite
def drawn_json(draw: st.DrawFn) -> tuple[dict[int, dict[str, float]], str]:
    """Cards, and nearly JSON of them: keys in any order, more of them, commas left out, lines of text before and after."""
    cards: dict[int, dict[str, float]] = {}
    objects = []
    for index in draw(st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True)):
        power, used, busy = draw(st.integers(1, 900)), draw(st.integers(0, 65520)), draw(st.integers(0, 100))
        in_bytes, word = draw(st.booleans()), draw(st.sampled_from(["DCU", "HCU"]))
        scale, unit = (MIB, "B") if in_bytes else (1, "MiB")
        fields = [
            ("Average Graphics Package Power (W)", f"{power}.0"),
            ("Average GFX Core Power (W)", "3.0"),
            (f"{word} use (%)", f"{busy}{draw(st.sampled_from(['', '%', '.0']))}"),
            (f"vram Total Memory ({unit})", str(65520 * scale)),
            (f"vram Total Used Memory ({unit})", str(used * scale)),
            ("", ""),
            ("", ""),
            *((f"new key {n} (W)", "7") for n in range(draw(st.integers(0, 3)))),
        ]
        comma = draw(st.sampled_from(["", ",", ", ", ",\n    "]))
        quoted = draw(st.booleans())
        inside = comma.join(
            f'"{key}": "{value}"' if quoted or not value or not comma else f'"{key}": {value}'
            for key, value in draw(st.permutations(fields))
        )
        objects.append(f'"card{index}": {{{inside}}}')
        cards[index] = {
            "power_w": float(power),
            "utilisation": busy / 100,
            "memory_total_b": 65520 * MIB,
            "memory_used_b": used * MIB,
        }
    before, after = (draw(st.sampled_from(["", "WARNING: no such feature {yet}\n", "[hy-smi] \n"])) for _ in range(2))
    return cards, f"{before}{{{draw(st.sampled_from(['', ', '])).join(objects)}}}\n{after}"


@given(drawn_json())
def test_json_is_read_by_its_keys(drawn: tuple[dict[int, dict[str, float]], str]) -> None:
    cards, text = drawn
    assert _values(text) == {index: pytest.approx(values) for index, values in cards.items()}


# --- the table ----------------------------------------------------------------------------------------------------------


@st.composite
def drawn_tables(draw: st.DrawFn) -> tuple[dict[int, dict[str, float]], str]:
    """Cards, and the table of them: columns in any order and width, more or fewer of them, units there or not."""
    word = draw(st.sampled_from(["HCU", "DCU", "Device"]))
    more = [f"New{n}%" for n in range(draw(st.integers(0, 3)))]
    names = draw(st.permutations([word, "Temp", "AvgPwr", "Perf", "PwrCap", "VRAM%", f"{word}%", *more]))
    units = draw(st.booleans())
    widths = [draw(st.integers(1, 20)) for _ in names]
    cards: dict[int, dict[str, float]] = {}
    rows = [list(names)]
    for index in range(draw(st.integers(1, 8))):
        power, celsius, busy = draw(st.integers(1, 900)), draw(st.integers(1, 110)), draw(st.integers(0, 100))
        cells = {
            word: str(index),
            "Temp": f"{celsius}.0{'C' if units else ''}",
            "AvgPwr": f"{power}.0{'W' if units else ''}",
            "Perf": "auto",
            "PwrCap": f"600.0{'W' if units else ''}",
            "VRAM%": "3%",
            f"{word}%": f"{busy}%",
        }
        rows.append([cells.get(name, "N/A") for name in names])
        cards[index] = {
            "power_w": float(power),
            "power_limit_w": 600.0,
            "temperature_c": float(celsius),
            "utilisation": busy / 100,
        }
    lines = [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    title, end = "=== System Management Interface ===", "====== End of SMI Log ======"
    return cards, "\n".join([title, "=" * 80, *lines, "=" * 80, end]) + "\n"


@given(drawn_tables())
def test_columns_are_known_by_their_words(drawn: tuple[dict[int, dict[str, float]], str]) -> None:
    cards, text = drawn
    assert _values(text) == {index: pytest.approx(values) for index, values in cards.items()}


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(Unavailable, match="twice"):
        tool.parse(BW1000.replace("Perf  ", "AvgPwr"))


def test_a_row_with_another_number_of_cells_is_no_card() -> None:
    assert list(_values(BW1000.replace("50.0C", "     "))) == [1]


# --- both ---------------------------------------------------------------------------------------------------------------


@given(st.sampled_from([JSON, MALFORMED, BW1000]), st.data())
def test_what_is_left_of_a_cut_output_is_right_or_refused(text: str, data: st.DataObject) -> None:
    whole = _values(text)
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        left = _values(cut)
    except Unavailable:
        return
    assert left == whole


@given(st.sampled_from([JSON, MALFORMED, BW1000]), st.sampled_from(["N/A", "-", "ERR!", "4294967295"]), st.data())
def test_a_word_in_a_numbers_place_costs_that_number(text: str, word: str, data: st.DataObject) -> None:
    whole = _values(text)
    begin, end = data.draw(st.sampled_from([found.span() for found in re.finditer(r"(?<=[ \"])\d+(?:\.\d+)?(?=[CW%\"])", text)]))
    for index, values in _values(text[:begin] + word + text[end:]).items():
        assert values.items() <= whole[index].items()


@given(st.one_of(st.text(max_size=200), st.text(alphabet='{}": card0123,\n=AvgPwr HCU', max_size=200)))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    for words in (text, f'{{"card0": {text}', f"HCU AvgPwr\n{text}\n==\n"):
        try:
            tool.parse(words)
        except Unavailable:
            continue
