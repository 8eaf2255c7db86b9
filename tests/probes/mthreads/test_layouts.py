"""What `mthreads-gmi` prints, and has printed over its releases."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.probes.mthreads import layouts
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from tests.probes.mthreads.host import GPU_0, GPU_1, SAMPLES, sample

Row = tuple[object, ...]

TABLES: dict[str, list[Row]] = {
    "gmi_1.14_s80_ecc_na.txt": [(0, "0000:04:00.0", None, "MTT S80", "2.7.0", None, None, 49.0, 2, 16384, 0.0, None)],
    "gmi_2.4.1_s5000.txt": [
        (0, "0000:18:00.0", None, "MTT S5000", "5.1.0-server", None, None, 48.0, 0, 81920, 0.0, None),
        (1, "0000:3a:00.0", None, "MTT S5000", "5.1.0-server", None, None, 48.0, 0, 81920, 0.0, None),
    ],
}
JSON: dict[str, list[Row]] = {
    "gmi_q.json": [
        (0, "0000:18:00.0", GPU_0, "MTT S5000", "5.1.0-server", 92.42, None, 48.0, 0, 81920, 0.0, 800.0),
        (1, "0000:2a:00.0", GPU_1, "MTT S5000", "5.1.0-server", None, None, 66.0, 74120, 81920, 0.97, None),
    ],
    "gmi_q_s5000.json": [
        (0, "0000:2a:00.0", GPU_0, "MTT S5000", "3.3.5-server", 96.66, 950.0, 27.0, 0, 81920, 0.0, None),
        (1, None, GPU_1, "MTT S5000", "3.3.5-server", 97.09, None, 26.0, 0, 81920, 0.0, None),
    ],
}
OUTLINES: dict[str, list[Row]] = {
    "gmi_q.txt": [(0, "0000:18:00.0", GPU_0, "MTT S5000", "5.1.0-server", 92.42, None, 48.0, 0, 81920, 0.0, 800.0)]
}
ALL = {**TABLES, **JSON, **OUTLINES}
tables = st.sampled_from(sorted(TABLES))
objects = st.sampled_from(sorted(JSON))


def _row(one: Told) -> Row:
    mib = (None if (size := one.values.get(name)) is None else size / (1 << 20) for name in ("memory_used_b", "memory_total_b"))
    watts = (one.values.get(name) for name in ("power_w", "power_limit_w", "temperature_c"))
    busy = (one.values.get(name) for name in ("utilisation", "clock_mhz"))
    return (one.index, one.pci, one.unique_id, one.name, one.driver, *watts, *mib, *busy)


@pytest.mark.parametrize("name", ALL)
def test_every_layout(name: str) -> None:
    assert [_row(one) for one in layouts.devices(sample(name))] == ALL[name]


def test_every_sample_is_read_by_a_test() -> None:
    assert {path.name for path in SAMPLES.iterdir()} == set(ALL)


@pytest.mark.parametrize("key", ["Power Draw", "Power Draw ", " POWER DRAW  "])
def test_the_key_of_power_with_its_blank_or_without(key: str) -> None:
    first, _ = layouts.devices(sample("gmi_q.json").replace('"Power Draw "', f'"{key}"'))
    assert first.values["power_w"] == 92.42


@pytest.mark.parametrize("name", JSON)
def test_only_the_current_limit_is_a_limit(name: str) -> None:
    """Others are what a limit may be set to."""
    text = sample(name).replace("Current Power Limit", "Max Power Limit")
    assert all("power_limit_w" not in one.values for one in layouts.devices(text))


def test_all_ones_in_16_bits_are_mebibytes_like_any_other() -> None:
    first, _ = layouts.devices(sample("gmi_q.json").replace('"Used": "0MiB"', '"Used": "65535MiB"'))
    assert first.values["memory_used_b"] == 65535 << 20


def test_the_table_says_why_it_tells_no_power() -> None:
    (one,) = layouts.devices(sample("gmi_1.14_s80_ecc_na.txt"))
    assert "no power" in one.reasons["power_w"]


# --- what a release may change --------------------------------------------------------------------------------------------


def _cells(text: str, change: Callable[[list[str]], list[str]]) -> str:
    """The text with the cells of the table's rows changed. A third row has one of the three only."""
    lines = [(line, line.split("|")) for line in text.split("\n")]
    return "\n".join("|".join(change(cells)) if len(cells) == 3 else line for line, cells in lines)


@given(name=tables, blanks=st.integers(2, 30))
def test_wider_or_narrower_columns_of_the_table(name: str, blanks: int) -> None:
    text = _cells(sample(name), lambda cells: [re.sub(r"(?<=\S)\s{2,}(?=\S)", " " * blanks, cell) for cell in cells])
    assert [_row(one) for one in layouts.devices(text)] == TABLES[name]


@given(name=tables, order=st.permutations(range(3)))
def test_columns_of_the_table_in_any_order(name: str, order: list[int]) -> None:
    text = _cells(sample(name), lambda cells: [cells[i] for i in order])
    assert [_row(one) for one in layouts.devices(text)] == TABLES[name]


@given(name=tables, at=st.integers(0, 3), word=st.sampled_from(["7", "12W", "99C", "100%", "1MiB(2MiB)", "-"]))
def test_more_columns_of_the_table(name: str, at: int, word: str) -> None:
    headings = iter(["New", "More", "Most"])
    text = _cells(sample(name), lambda cells: [*cells[:at], next(headings, word), *cells[at:]])
    assert [_row(one) for one in layouts.devices(text)] == TABLES[name]


@given(name=tables)
def test_values_of_the_table_without_units(name: str) -> None:
    text = _cells(sample(name), lambda cells: [re.sub(r"(?<=\d)(C|%|MiB)(?=[\s()]|$)", "", cell) for cell in cells])
    assert "0MiB" not in text
    assert [_row(one) for one in layouts.devices(text)] == TABLES[name]


def _shuffled(value: Any, order: st.DataObject) -> Any:
    if isinstance(value, dict):
        keys = order.draw(st.permutations(list(value)))
        return {key: _shuffled(value[key], order) for key in keys}
    return [_shuffled(one, order) for one in value] if isinstance(value, list) else value


@given(name=objects, order=st.data(), indent=st.sampled_from([None, 0, 8]))
def test_keys_in_any_order_and_style(name: str, order: st.DataObject, indent: int | None) -> None:
    text = json.dumps(_shuffled(json.loads(sample(name)), order), indent=indent)
    assert [_row(one) for one in layouts.devices(text)] == JSON[name]


def _with_more(value: Any) -> Any:
    if isinstance(value, dict):
        return {"New": "7W", **{key: _with_more(below) for key, below in value.items()}, "More": {"Power Draw ": "9W"}}
    return [_with_more(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", JSON)
def test_more_keys(name: str) -> None:
    text = json.dumps(_with_more(json.loads(sample(name))))
    assert [_row(one) for one in layouts.devices(text)] == JSON[name]


@pytest.mark.parametrize("name", JSON)
def test_values_without_units_or_apart_from_them(name: str) -> None:
    text = sample(name)
    bare = re.sub(r'(?<=\d)(W|C|%|MHz|MiB)"', '"', text)
    apart = re.sub(r'(?<=\d)(W|C|%|MHz|MiB)"', r' \1"', text)
    assert "MiB" not in bare
    assert " MiB" in apart
    for changed in (bare, apart, f"Warning: driver is older than tool\n{text}\ndone\n"):
        assert [_row(one) for one in layouts.devices(changed)] == JSON[name]


@given(step=st.integers(1, 9), gap=st.integers(0, 60))
def test_an_outline_with_other_steps(step: int, gap: int) -> None:
    lines = []
    for line in sample("gmi_q.txt").splitlines():
        depth = (len(line) - len(line.lstrip())) // 4
        lines.append(" " * (depth * step) + re.sub(r"\s+: ", f"{' ' * gap}: ", line.lstrip(), count=1))
    assert [_row(one) for one in layouts.devices("\n".join(lines) + "\n")] == OUTLINES["gmi_q.txt"]


def test_an_outline_of_two_devices() -> None:
    head, _, first = sample("gmi_q.txt").partition("GPU0 00000000:18:00.0\n")
    second = first.replace("92.42W", "N/A").replace("0b1", "0b2").replace("48C", "66C")
    one, two = layouts.devices(f"{head}GPU0 00000000:18:00.0\n{first}GPU1 00000000:2a:00.0\n{second}")
    assert (one.values["power_w"], one.unique_id, two.unique_id) == (92.42, GPU_0, GPU_1)
    assert "power_w" not in two.values
    assert (two.index, two.pci, two.values["temperature_c"]) == (1, "0000:2a:00.0", 66.0)


@given(name=st.sampled_from(sorted(ALL)), share=st.floats(0, 1))
def test_a_cut_output_gives_no_wrong_value(name: str, share: float) -> None:
    text = sample(name)
    whole = {one.index: one for one in layouts.devices(text)}
    try:
        told = layouts.devices(text[: int(share * len(text))])
    except Unavailable:
        return
    for one in told:
        assert one.values.items() <= whole[one.index].values.items()
        assert one.pci in (None, whole[one.index].pci)
        assert one.name in (None, whole[one.index].name)
        assert one.unique_id in (None, whole[one.index].unique_id)


@given(st.text(alphabet='|+-= \n0123456789WC%GPUIDNamePCIeMem:"{}[],iTtpow()MiB', max_size=300))
def test_anything_else_is_unavailable_never_a_crash(text: str) -> None:
    with contextlib.suppress(Unavailable):
        assert layouts.devices(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no device found\n",
        "[]",
        "{}",
        '{"GPU": []}',
        '{"GPU": {"0": {}}}',
        '{"GPU": [1, null, {"Index": "one"}]}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_what_is_no_list_of_devices(text: str) -> None:
    with pytest.raises(Unavailable, match="can't be read"):
        layouts.devices(text)


@pytest.mark.parametrize("word", ["N/A", "NA", "-", "[Not Supported]", "Unknown", "", "0.00W", "29000W", "-1W", "65535W", "nan"])
def test_a_word_in_the_place_of_watts_is_the_reason(word: str) -> None:
    first, second = layouts.devices(sample("gmi_q_s5000.json").replace("96.66W", word))
    assert "power_w" not in first.values
    assert first.reasons["power_w"]
    assert second.values["power_w"] == 97.09


@pytest.mark.parametrize("found", [None, 5, [], "text", {"Power Draw ": None}, {"Power Draw ": [1]}])
def test_sections_of_another_kind(found: object) -> None:
    whole = json.loads(sample("gmi_q.json"))
    whole["GPU"][0]["Power Readings"] = found
    first, _ = layouts.devices(json.dumps(whole))
    assert "power_w" not in first.values
    assert first.values["temperature_c"] == 48.0
