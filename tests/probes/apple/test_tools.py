"""What `ioreg`, `macmon` and `powermetrics` print."""

from __future__ import annotations

import json
import plistlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.probes.apple import tools
from bench.probes.apple.chip import GPU, MODULE, Chip, facts
from bench.probes.tool import Told
from bench.probes.values import Unavailable
from tests.probes.apple.host import SAMPLES, SYSCTL
from tests.probes.recorded import recorded

M4 = Chip(name="Apple M4", memory_b=17_179_869_184, os="macOS 26.1")
IOREG = recorded(SAMPLES / "ioreg_ioaccelerator.txt")
MACMON = recorded(SAMPLES / "macmon_pipe.json")
PLIST = recorded(SAMPLES / "powermetrics.plist")
TEXT = recorded(SAMPLES / "powermetrics_gpu_power.txt")
Parse = Callable[[str, Chip], list[Told]]
OUTPUTS: tuple[tuple[Parse, str], ...] = (
    (tools.ioreg, IOREG),
    (tools.macmon, MACMON),
    (tools.powermetrics, PLIST),
    (tools.powermetrics, TEXT),
)


class TestSamples:
    def test_ioreg_of_an_m4(self) -> None:
        """`Device`, not `Renderer`; and without what the driver itself has in use."""
        (gpu,) = tools.ioreg(IOREG, M4)
        assert (gpu.unique_id, gpu.name, gpu.driver, gpu.quality) == (GPU, "Apple M4 GPU", "macOS 26.1", "modelled")
        assert gpu.values == {"memory_used_b": 550649856, "memory_total_b": 17_179_869_184, "utilisation": 0.03}
        assert "unified" in gpu.reasons["memory"]

    def test_macmon(self) -> None:
        gpu, module = tools.macmon(MACMON, M4)
        assert gpu.values == {"power_w": 0.017451683, "utilisation": 0.09, "clock_mhz": 461.0, "temperature_c": 36.95167}
        assert (module.unique_id, module.name, module.scope) == (MODULE, "Apple M4", "module")
        assert module.values == {"power_w": 0.22231553}

    def test_macmon_before_0_9(self) -> None:
        line = {"gpu_usage": [461, 0.0215], "gpu_power": 1.5, "all_power": 2.5, "temp": {"gpu_temp_avg": 0.0}}
        gpu, module = tools.macmon(f"{json.dumps(line)}\n", M4)
        assert gpu.values == {"power_w": 1.5, "utilisation": 0.0215, "clock_mhz": 461.0}
        assert module.values == {"power_w": 2.5}

    def test_powermetrics_as_a_plist(self) -> None:
        """5807 mJ in 5.0152 s: 1.158 W."""
        gpu, module = tools.powermetrics(PLIST, M4)
        assert gpu.values["power_w"] == pytest.approx(5.807 / 5.015221583)
        assert gpu.values["clock_mhz"] == 338.0
        assert gpu.values["utilisation"] == pytest.approx(0.0163)
        assert module.values["power_w"] == pytest.approx((1.923 + 5.807) / 5.015221583)
        assert (gpu.throttle, module.throttle) == ((), ())

    def test_powermetrics_as_text(self) -> None:
        gpu, module = tools.powermetrics(TEXT, M4)
        assert gpu.values == pytest.approx({"power_w": 0.028, "utilisation": 0.0163, "clock_mhz": 338.0})
        assert module.values == {"power_w": 0.983}
        assert gpu.throttle is None

    def test_powermetrics_without_root(self) -> None:
        with pytest.raises(Unavailable, match="must be invoked as the superuser"):
            tools.powermetrics(recorded(SAMPLES / "powermetrics_no_root.txt"), M4)

    def test_every_sample_has_a_test(self) -> None:
        here = Path(__file__).read_text(encoding="utf-8")
        assert [path.name for path in SAMPLES.iterdir() if path.name not in here] == []


def plist(**changes: Any) -> str:
    whole = plistlib.loads(PLIST.encode())
    return plistlib.dumps({**whole, **changes}).decode()


class TestPowermetrics:
    def test_of_several_samples_the_last(self) -> None:
        later = plist(processor={"gpu_energy": 20_000, "cpu_energy": 1000, "ane_energy": 0}, elapsed_ns=2_000_000_000)
        gpu, module = tools.powermetrics(f"{PLIST}\0{later}\0", M4)
        assert (gpu.values["power_w"], module.values["power_w"]) == (10.0, 10.5)

    def test_power_where_there_is_no_energy(self) -> None:
        gpu, module = tools.powermetrics(plist(processor={"gpu_power": 1157.88, "combined_power": 1541.31}), M4)
        assert (gpu.values["power_w"], module.values["power_w"]) == pytest.approx((1.15788, 1.54131))

    @pytest.mark.parametrize("told", [338_000_000, 338])
    def test_a_frequency_in_hertz_or_megahertz(self, told: int) -> None:
        gpu, _ = tools.powermetrics(plist(gpu={"freq_hz": told, "idle_ratio": 0.5}), M4)
        assert gpu.values["clock_mhz"] == 338.0

    @pytest.mark.parametrize(
        ("pressure", "limits"),
        [("Nominal", ()), *((word, ("thermal_pressure",)) for word in ("Light", "Moderate", "Heavy", "Critical", "Trapping"))],
    )
    def test_any_pressure_but_nominal_is_a_limit(self, pressure: str, limits: tuple[str, ...]) -> None:
        assert tools.powermetrics(plist(thermal_pressure=pressure), M4)[0].throttle == limits
        text = f"{TEXT}**** Thermal pressure ****\n\nCurrent pressure level: {pressure}\n"
        assert tools.powermetrics(text, M4)[0].throttle == limits


class TestZeroWatts:
    """A model may see nothing of an idle GPU; but a chip that it does not know tells 0 for ever."""

    @pytest.mark.parametrize(("busy", "power_w"), [(0.0, 0.0), (0.005, 0.0), (0.4, None), (None, None)])
    def test_only_of_an_idle_gpu(self, busy: float | None, power_w: float | None) -> None:
        line = {"gpu_active_ratio": busy, "gpu_freq_mhz": 338, "gpu_power": 0.0, "all_power": 2.5}
        gpu, _ = tools.macmon(f"{json.dumps(line)}\n", M4)
        assert gpu.values.get("power_w") == power_w

    def test_never_of_the_module(self) -> None:
        line = {"gpu_active_ratio": 0.0, "gpu_freq_mhz": 338, "gpu_power": 0.0, "all_power": 0.0}
        assert len(tools.macmon(f"{json.dumps(line)}\n", M4)) == 1


class TestFacts:
    def test_what_sysctl_tells(self) -> None:
        assert facts(SYSCTL) == M4

    @pytest.mark.parametrize("text", ["", "hw.memsize: many\n", "hw.memsize: 0\nmachdep.cpu.brand_string:\n", "sysctl\n"])
    def test_what_it_does_not_tell_is_none(self, text: str) -> None:
        assert facts(text) == Chip()
        assert tools.ioreg(IOREG, facts(text))[0].values == {"memory_used_b": 550649856, "utilisation": 0.03}


@given(st.sampled_from(OUTPUTS), st.floats(0, 1))
def test_what_is_left_of_a_cut_output_is_right(output: tuple[Parse, str], where: float) -> None:
    parse, text = output
    whole = {one.index: one for one in parse(text, M4)}
    try:
        left = parse(text[: int(where * len(text))], M4)
    except Unavailable:
        return
    for one in left:
        assert one.values.items() <= whole[one.index].values.items()


@given(st.sampled_from(OUTPUTS), st.sampled_from(["N/A", "-1", "", "null", "1e999", "{}"]), st.data())
def test_a_word_in_a_numbers_place_is_missing(output: tuple[Parse, str], word: str, data: st.DataObject) -> None:
    parse, text = output
    numbers = [found.span() for found in re.finditer(r"(?<=[=:> ])\d+(?:\.\d+)?(?=[,}<% \n])", text)]
    begin, end = data.draw(st.sampled_from(numbers))
    whole = {one.index: one for one in parse(text, M4)}
    try:
        spoilt = parse(text[:begin] + word + text[end:], M4)
    except Unavailable:
        return
    for one in spoilt:
        for name, value in one.values.items():
            assert value == pytest.approx(whole[one.index].values[name], rel=0.01), name


@given(
    st.permutations(list(json.loads(MACMON).items())), st.dictionaries(st.text(min_size=1, max_size=8), st.integers(), max_size=3)
)
def test_keys_of_macmon_are_known_by_their_names(items: list[tuple[str, Any]], more: dict[str, int]) -> None:
    line = json.dumps({**more, **dict(items)})
    assert [one.values for one in tools.macmon(f"{line}\n", M4)] == [one.values for one in tools.macmon(MACMON, M4)]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)


@given(st.dictionaries(st.sampled_from(["gpu_power", "all_power", "gpu_usage", "temp", "gpu_active_ratio"]), JSON))
def test_macmon_of_another_shape_is_read_without_a_crash(line: dict[str, Any]) -> None:
    assert tools.macmon(f"{json.dumps(line)}\n", M4)


PLISTS = st.recursive(
    st.booleans() | st.floats(allow_nan=False) | st.integers(-(2**60), 2**60) | st.text("ab1", max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["gpu_energy", "cpu_energy", "ane_energy", "idle_ratio", "freq_hz"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["processor", "gpu", "elapsed_ns", "thermal_pressure"]), PLISTS, min_size=1))
def test_a_plist_of_another_shape_is_read_without_a_crash(sample: dict[str, Any]) -> None:
    assert tools.powermetrics(plistlib.dumps(sample).decode(), M4)


@given(st.text(max_size=200))
def test_any_other_text_is_refused_or_read_without_a_crash(text: str) -> None:
    for parse in (tools.ioreg, tools.macmon, tools.powermetrics):
        try:
            parse(text, M4)
        except Unavailable:
            continue
