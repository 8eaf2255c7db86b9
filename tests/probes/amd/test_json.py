"""What the tools print: every recorded sample to the right values, and whatever else may come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.probes.amd import tool_json
from bench.probes.amd import values as amd_values
from bench.probes.values import Unavailable, pci_address, quantity

SAMPLES = Path(__file__).parent.parent / "samples/amd"
NUMBERS = ("power_w", "energy_j", "memory_used_b", "memory_total_b", "utilisation", "temperature_c", "clock_mhz")


def sample(name: str) -> str:
    """A recorded output, without the line that says where it comes from."""
    first, _, rest = (SAMPLES / name).read_text(encoding="utf-8").partition("\n")
    assert first.startswith("# SOURCE")
    return rest


def values(gpu: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for name in NUMBERS:
        try:
            found[name] = tool_json.value_of(gpu, name)
        except Unavailable:
            continue
    return found


class TestSamples:
    def test_rocm_7_in_two_partitions(self) -> None:
        gpus = tool_json.told(sample("amd_smi_metric_rocm7_mi300x_dpx.json"))
        assert values(gpus[0]) == {"power_w": 133.0, "energy_j": 20909145.914, "utilisation": 0.0}
        assert values(gpus[1]) == {}

    def test_rocm_6_is_a_list_of_the_same(self) -> None:
        seven = json.loads(sample("amd_smi_metric_rocm7_mi300x_dpx.json"))
        assert tool_json.told(json.dumps(seven["gpu_data"])) == tool_json.told(json.dumps(seven))

    def test_energy_as_csv(self) -> None:
        gpus = tool_json.told(sample("amd_smi_metric_energy.csv"))
        assert values(gpus[0]) == {"energy_j": 20909279.020}
        assert values(gpus[1]) == {}  # its last row is N/A

    def test_a_radeons_outline(self) -> None:
        gpus = tool_json.told(sample("amd_smi_metric_text_radeon.txt"))
        assert values(gpus[0]) == {"power_w": 20.0, "utilisation": 0.0, "clock_mhz": 14.0}

    def test_rocm_smi_on_a_radeon(self) -> None:
        gpus = tool_json.told(sample("rocm_smi_rx7800xt.json"))
        assert values(gpus[0]) == {
            "power_w": 53.0,
            "memory_used_b": 11615076352,
            "memory_total_b": 17163091968,
            "utilisation": 1.0,
            "temperature_c": 51.0,
        }
        assert amd_values.unique_id(tool_json.about(gpus[0], "Unique ID")) == "GPU-1a2b3c4d5e6f7081"
        assert tool_json.about(gpus[0], "Serial Number") is None

    def test_rocm_smi_on_a_board_of_two_dies(self) -> None:
        gpus = tool_json.told(sample("rocm_smi_mi250_dual_die.json"))
        assert values(gpus[0])["power_w"] == 102.0
        assert "power_w" not in values(gpus[1])
        assert values(gpus[1])["memory_used_b"] == 11665408
        with pytest.raises(Unavailable, match="Secondary die"):
            tool_json.value_of(gpus[1], "power_w")

    def test_rocm_smi_in_plain_lines(self) -> None:
        gpus = tool_json.told(sample("rocm_smi_showpower_mi250.txt"))
        watts = [values(gpus[number]).get("power_w") for number in range(8)]
        assert watts == [237.0, None, 230.0, None, 220.0, None, 235.0, None]

    def test_a_table_of_processes_holds_no_reading(self) -> None:
        with pytest.raises(Unavailable, match="can't be read"):
            tool_json.told(sample("amd_smi_processes_gfx1151.txt"))

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        assert [path.name for path in SAMPLES.iterdir() if f'"{path.name}"' not in here] == []


DPX = json.loads(sample("amd_smi_metric_rocm7_mi300x_dpx.json"))
MI250 = json.loads(sample("rocm_smi_mi250_dual_die.json"))
LISTED = DPX["gpu_data"]


def _shuffled(value: Any, draw: st.DrawFn) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    return [_shuffled(each, draw) for each in value] if isinstance(value, list) else value


@st.composite
def reordered(draw: st.DrawFn) -> tuple[Any, Any]:
    whole = draw(st.sampled_from([DPX, MI250, LISTED]))
    return whole, _shuffled(whole, draw)


@given(reordered())
def test_the_order_of_keys_changes_nothing(pair: tuple[Any, Any]) -> None:
    before, after = (tool_json.told(json.dumps(value)) for value in pair)
    assert {n: values(gpu) for n, gpu in before.items()} == {n: values(gpu) for n, gpu in after.items()}


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[Any, Any]:
    """A sample, and the same with some places replaced by N/A, another type, or nothing."""
    whole = draw(st.sampled_from([DPX, MI250, LISTED]))
    rot: st.SearchStrategy[Any] = st.sampled_from(
        ["N/A", None, [], {}, "", "N/A (Secondary die)", True, -1, 4294967295, float("nan")]
    )

    def spoil(value: Any, depth: int) -> Any:
        if depth >= 2 and draw(st.integers(0, 4)) == 0:
            return draw(rot)
        if isinstance(value, dict):
            kept = {
                key: each for key, each in value.items() if key in ("gpu", "gpu_data") or depth < 2 or draw(st.integers(0, 5))
            }
            return {key: each if key == "gpu" else spoil(each, depth + 1) for key, each in kept.items()}
        return [spoil(each, depth + 1) for each in value] if isinstance(value, list) else value

    return whole, spoil(whole, 0 if isinstance(whole, dict) else 1)


@given(spoilt())
def test_spoilt_places_cost_their_own_values_only(pair: tuple[Any, Any]) -> None:
    """Whatever is still there is unchanged, and nothing that was not there appears."""
    whole, text = tool_json.told(json.dumps(pair[0])), json.dumps(pair[1])
    try:
        left = tool_json.told(text)
    except Unavailable:
        return
    for number, gpu in left.items():
        good = values(whole[number])
        assert {name: value for name, value in values(gpu).items() if good.get(name) != value} == {}


@given(st.sampled_from([DPX, MI250, LISTED]), st.floats(0, 1), st.sampled_from([None, 2, 4]))
def test_truncated_json_is_refused(whole: Any, where: float, indent: int | None) -> None:
    text = json.dumps(whole, indent=indent)
    cut = text[: int(where * (len(text) - 1))]
    with pytest.raises(Unavailable):
        tool_json.told(cut)


BANNERS = [
    "",
    "WARNING: AMD GPU device(s) is/are in a low-power state.\n\n",
    "[INFO] rsmi v7\n{ not json\n",
    "\x1b[33m[1] x\x1b[0m\n",
]


@given(st.sampled_from([DPX, MI250, LISTED]), st.sampled_from(BANNERS), st.sampled_from(BANNERS))
def test_words_around_the_json_change_nothing(whole: Any, before: str, after: str) -> None:
    assert tool_json.told(f"{before}{json.dumps(whole, indent=4)}\n{after}") == tool_json.told(json.dumps(whole))


@given(st.text(max_size=300))
@example("GPU: \N{SUPERSCRIPT TWO}\n A: 1")
@example("gpu,a\n0\r,1\n\N{SUPERSCRIPT TWO},2")
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    try:
        gpus = tool_json.told(text)
    except Unavailable:
        return
    for gpu in gpus.values():
        values(gpu)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (133, "power", 133.0),
        ("102.0", "power", 102.0),
        ("20 W", "power", 20.0),
        ({"value": 133, "unit": "W"}, "power", 133.0),
        ({"value": "133", "unit": "W"}, "power", 133.0),
        ({"value": 750_000_000, "unit": "uW"}, "power", 750.0),
        ({"value": 196_288, "unit": "MB"}, "memory", 196_288 * 2**20),
        ({"value": 37, "unit": "%"}, "share", 0.37),
        ("45 \N{DEGREE SIGN}C", "temperature", 45.0),
        ({"value": 20909.145, "unit": "kJ"}, "energy", 20_909_145.0),
    ],
)
def test_values_and_their_units(value: object, kind: str, expected: float) -> None:
    assert quantity(value, kind) == pytest.approx(expected)


@pytest.mark.parametrize(
    "value",
    [
        "N/A",
        "",
        "N/A (Secondary die)",
        None,
        [],
        {},
        True,
        65535,
        4294967295,
        2**64 - 1,
        -1,
        float("nan"),
        float("inf"),
        {"value": "N/A"},
    ],
)
def test_marks_are_missing_never_0(value: object) -> None:
    with pytest.raises(Unavailable):
        quantity(value, "power")


def test_all_ones_of_16_bits_are_no_mark_of_a_size() -> None:
    assert quantity("65535 MiB", "memory") == 65535 << 20
    with pytest.raises(Unavailable):
        quantity(65535, "power")


@pytest.mark.parametrize("unit", ["A", "J", "m"])
def test_a_unit_of_another_kind_is_refused(unit: str) -> None:
    with pytest.raises(Unavailable, match="none of power"):
        quantity({"value": 5, "unit": unit}, "power")


@given(st.floats(0.9954, 1.0046))
def test_near_the_exact_unit_the_exact_unit_is_meant(factor: float) -> None:
    assert amd_values.joules_per_count(amd_values.EXACT_UJ * factor) == 2.0**-16


@given(st.one_of(st.floats(1e-3, 0.994), st.floats(1.006, 100)))
def test_far_from_it_the_resolution_told_is_taken(factor: float) -> None:
    told = amd_values.EXACT_UJ * factor
    assert amd_values.joules_per_count(told) == pytest.approx(told * 1e-6)


@pytest.mark.parametrize("resolution", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_resolution_is_refused(resolution: float) -> None:
    with pytest.raises(Unavailable):
        amd_values.joules_per_count(resolution)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0x1A2B", "GPU-0000000000001a2b"),
        ("GPU-1a2b3c4d5e6f7081", "GPU-1a2b3c4d5e6f7081"),
        ("N/A", None),
        ("0x0", None),
        ("", None),
    ],
)
def test_unique_ids(text: str, expected: str | None) -> None:
    assert amd_values.unique_id(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("c1:00.0", "0000:c1:00.0"),
        ("00000001:03:00.2", "0001:03:00.2"),
        ("N/A", None),
        (7, None),
    ],
)
def test_pci_addresses(text: object, expected: str | None) -> None:
    assert pci_address(text) == expected
