"""`xpu-smi` of 1.x and 2.x: what it prints, and the probe where there is nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.ports import Probe
from bench.probes.intel import tool
from bench.probes.intel.probe import IntelProbe
from bench.probes.presence import Roots
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from bench.testing.probes import ProbeConformance
from tests.probes.intel.host import BYTES_PER_MIB, UUIDS
from tests.probes.intel.test_hwmon import add_card
from tests.probes.intel.test_library import NOWHERE
from tests.probes.intel.tool import install
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots

SAMPLES = Path(__file__).parent / "samples"
QUERIED = recorded(SAMPLES / "xpu_smi2_query_gpu.csv")
DUMPED = recorded(SAMPLES / "xpu_smi1_dump.csv")
DISCOVERED = recorded(SAMPLES / "xpu_smi1_discovery.json")
TABLE = recorded(SAMPLES / "xpu_smi1_stats_b60_tile_na.txt")
MAX = ("00000000-0000-0000-0000-0bd500008086", "00000000-0000-0001-0000-0bd500008086")


class TestSamples:
    def test_the_queries_of_2(self) -> None:
        first, second = tool.parse_query(QUERIED)
        assert (first.index, first.name) == (0, "Intel(R) Arc(TM) Pro B60 Graphics")
        assert first.values == {
            "power_w": 38.06,
            "power_limit_w": 200.0,
            "memory_total_b": 24_480 * BYTES_PER_MIB,
            "memory_used_b": 24.5 * BYTES_PER_MIB,
            "temperature_c": 54.0,
        }
        assert "no value ('N/A')" in first.reasons["utilisation"]
        assert "of the GPU, not of the card" in first.reasons["energy_j"]
        assert second.values == {
            k: v for k, v in first.values.items() if k in ("power_limit_w", "memory_total_b", "memory_used_b")
        }

    def test_what_1_dumps(self) -> None:
        """Five rows of one card: the newest counts."""
        (card,) = tool.parse_dump(DUMPED)
        assert card.index == 0
        assert card.values == {"power_w": 14.61, "utilisation": 0.0, "clock_mhz": 0.0}

    def test_statistics_of_the_only_tile_are_the_cards(self) -> None:
        card = tool.parse_statistics(TABLE)
        assert card.index == 0
        assert card.values == {
            "power_w": 38.0,
            "memory_used_b": 24 * BYTES_PER_MIB,
            "temperature_c": 54.0,
            "clock_mhz": 400.0,
        }
        assert "N/A" in card.reasons["utilisation"]

    def test_the_list_of_devices(self) -> None:
        first, second = tool.parse_discovery(DISCOVERED)
        assert (first.index, first.pci, first.unique_id, first.name) == (
            0,
            "0000:4d:00.0",
            MAX[0],
            "Intel(R) Data Center GPU Max 1550",
        )
        assert second.pci == "0000:9a:00.0"

    def test_an_empty_list_is_a_word(self) -> None:
        with pytest.raises(Unavailable, match="No device discovered"):
            tool.parse_discovery(recorded(SAMPLES / "xpu_smi1_discovery_none.json"))

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).parent
        tests = "".join((here / name).read_text(encoding="utf-8") for name in ("test_tool.py", "test_hwmon.py"))
        assert [path.name for path in SAMPLES.iterdir() if path.name not in tests] == []


def test_of_several_tiles_none_is_the_card() -> None:
    text = TABLE.replace(
        "| GPU Power (W)               | Tile 0: 38                                                         |",
        "| GPU Power (W)               | Tile 0: 22                                                         |\n"
        "|                             | Tile 1: 23                                                         |",
    )
    card = tool.parse_statistics(text)
    assert "power_w" not in card.values
    assert card.values["temperature_c"] == 54.0


QUANTITIES = {
    "power.draw": ("power_w", "W", 1.0),
    "power.limit": ("power_limit_w", "W", 1.0),
    "memory.total": ("memory_total_b", "MiB", float(BYTES_PER_MIB)),
    "memory.used": ("memory_used_b", "MiB", float(BYTES_PER_MIB)),
    "utilization.gpu": ("utilisation", "%", 0.01),
    "temperature.gpu": ("temperature_c", "C", 1.0),
    "clocks.current.graphics": ("clock_mhz", "MHz", 1.0),
}


@st.composite
def queried(draw: st.DrawFn) -> tuple[list[dict[str, float]], str]:
    """Cards, and the CSV of them: columns in any order and width, unknown ones between, with units or without."""
    names = draw(st.permutations(["index", "name", "timestamp", "energy.consumed", "fan.speed", *QUANTITIES]))
    units, pad = draw(st.booleans()), draw(st.integers(0, 5))
    cards, rows = [], []
    for index in range(draw(st.integers(1, 8))):
        numbers = {name: draw(st.integers(50, 100)) for name in QUANTITIES}
        numbers["memory.total"] += 100
        words = {
            "index": str(index),
            "name": "Arc",
            "timestamp": "12:37:01.114",
            "energy.consumed": "1049.75",
            "fan.speed": "N/A",
        }
        cards.append({ours: numbers[name] * factor for name, (ours, _, factor) in QUANTITIES.items()})
        rows.append(",".join(" " * pad + (words[name] if name in words else f"{numbers[name]:.2f}") for name in names))
    header = ",".join(f"{name} ({QUANTITIES[name][1]})" if units and name in QUANTITIES else name for name in names)
    return cards, "\n".join([header, *rows]) + "\n"


@given(queried())
def test_columns_are_known_by_their_names(drawn: tuple[list[dict[str, float]], str]) -> None:
    cards, text = drawn
    found = tool.parse_query(text)
    assert [one.index for one in found] == list(range(len(cards)))
    for one, card in zip(found, cards, strict=True):
        assert one.values == pytest.approx(card)


@given(st.sampled_from(["query", "dump", "discovery", "statistics"]), st.floats(0, 1))
def test_what_is_left_of_a_cut_output_is_right(kind: str, where: float) -> None:
    text, parse = {
        "query": (QUERIED, tool.parse_query),
        "dump": (DUMPED, tool.parse_dump),
        "discovery": (DISCOVERED, tool.parse_discovery),
        "statistics": (TABLE, lambda text: [tool.parse_statistics(text)]),
    }[kind]
    whole = {one.index: one for one in parse(text)}
    if kind == "dump":  # any of its rows may be the last one left
        rows = [parse("\n".join([DUMPED.splitlines()[0], row]) + "\n")[0].values for row in DUMPED.splitlines()[1:]]
    try:
        left = parse(text[: int(where * len(text))])
    except Unavailable:
        return
    for one in left:
        known = rows if kind == "dump" else [whole[one.index].values]
        assert any(one.values.items() <= values.items() for values in known)


@given(st.text(max_size=200))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    for parse in (tool.parse_query, tool.parse_dump, tool.parse_discovery, tool.parse_statistics):
        try:
            parse(text)
        except Unavailable:
            continue


@pytest.fixture
def alone(tmp_path: Path, roots: Roots) -> Iterator[IntelProbe]:
    """A probe with a card, and nothing to read it with but the tool."""
    add_card(roots, {"device": "0xe211"}, "0000:4d:00.0")
    probe = IntelProbe(roots, {**NOWHERE, "PATH": str(tmp_path / "bin")})
    yield probe
    probe.close()


def _two(watts: tuple[str, str]) -> str:
    """The machine of `host.B60` in the words of 2.x."""
    header = "index,uuid,name,pci.bus_id,driver_version,power.draw (W),power.limit (W),memory.total (MiB),memory.used (MiB)"
    rows = (
        f"0,{UUIDS[0]},Intel(R) Arc(TM) Pro B60 Graphics,0000:4d:00.0,1.6.33578,{watts[0]},200.00,24480,25",
        f"1,{UUIDS[1]},Intel(R) Arc(TM) Pro B60 Graphics,0000:5d:00.0,1.6.33578,{watts[1]},200.00,24480,20000",
    )
    return "\n".join([header, *rows]) + "\n"


def test_the_tool_and_the_library_tell_the_same(probe: IntelProbe, alone: IntelProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", query=_two(("38.00", "175.00")))
    ours, theirs = probe.discover().devices, alone.discover().devices
    for attribute in ("uid", "name", "index", "pci", "driver", "memory_total_b", "power_limit_w"):
        assert [getattr(d, attribute) for d in ours] == [getattr(d, attribute) for d in theirs]
    for uid in UUIDS:
        one, other = probe.sample(uid), alone.sample(uid)
        assert (one.power_w, one.memory_used_b) == (other.power_w, other.memory_used_b)


def test_its_energy_is_another_domains_and_left_out(alone: IntelProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", query=QUERIED)
    device = alone.discover().devices[0]
    assert device.energy is None
    assert "of the GPU, not of the card" in device.reasons["energy_j"]


def test_1_is_asked_in_its_own_words(alone: IntelProbe, tmp_path: Path) -> None:
    install(tmp_path / "bin", dump=DUMPED, discovery=DISCOVERED)
    (device,) = alone.discover().devices
    assert (device.uid, device.pci, device.name) == (MAX[0], "0000:4d:00.0", "Intel(R) Data Center GPU Max 1550")
    assert alone.sample(device.uid).power_w == 14.61


def test_statistics_are_asked_where_a_dump_tells_no_power(alone: IntelProbe, tmp_path: Path) -> None:
    """As 1.x on Arc Pro B60, which tells tiles only."""
    listed = json.dumps({"device_list": json.loads(DISCOVERED)["device_list"][:1]})
    install(tmp_path / "bin", dump=DUMPED.replace("14.61", "N/A").replace("14.59", "N/A"), discovery=listed, stats0=TABLE)
    (device,) = alone.discover().devices
    assert (device.uid, alone.sample(device.uid).power_w) == (MAX[0], 38.0)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"query": "Kunlun XPU-SMI 5.0.21\n"},
        {"query": "", "dump": "", "discovery": recorded(SAMPLES / "xpu_smi1_discovery_none.json")},
    ],
)
def test_a_tool_that_tells_nothing_is_a_problem_not_a_number(alone: IntelProbe, tmp_path: Path, answers: dict[str, str]) -> None:
    install(tmp_path / "bin", **answers)
    found = alone.discover()
    assert found.devices == ()
    (problem,) = found.problems
    assert "xpu-smi" in problem.problem.lower()


def test_nothing_is_told_of_a_device_that_is_not_in_the_list() -> None:
    assert tool.parse_discovery('{"device_list": [{"device_id": "0"}, 7, {"device_id": 1}]}') == [Told(index=1)]


class TestIntelToolConformance(ProbeConformance):
    name = "intel"

    @pytest.fixture
    def working(self, alone: IntelProbe, tmp_path: Path) -> Probe:
        install(tmp_path / "bin", query=QUERIED)
        return alone

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return IntelProbe(make_roots(tmp_path / "none"), NOWHERE)
