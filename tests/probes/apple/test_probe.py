"""The probe on a made-up Mac: a stand-in for the binding, tools on a path of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.ports import Probe
from bench.probes.apple.chip import GPU, MODULE
from bench.probes.apple.probe import AppleProbe
from bench.probes.host import ChildProbeHost
from bench.probes.placement import resolve
from bench.probes.presence import Roots, opened_by_signs
from bench.testing.probes import ProbeConformance
from tests.probes.apple.host import BINDING, MEMORY_B, SAMPLES, Mac, mac
from tests.probes.polling import until
from tests.probes.recorded import recorded
from tests.probes.trees import make_roots, roots_env

MACMON = json.dumps(
    {
        "gpu_power": 12.5,
        "all_power": 17.0,
        "gpu_freq_mhz": 1380,
        "gpu_active_ratio": 0.97,
        "temp": {"gpu_temp_avg": 61.5},
    }
)
PLIST = recorded(SAMPLES / "powermetrics.plist")


class TestBinding:
    @pytest.fixture(autouse=True)
    def _here(self, binding: Mac) -> None: ...

    def test_the_gpu_and_the_module_around_it(self, probe: AppleProbe) -> None:
        gpu, module = probe.discover().devices
        assert (gpu.uid, gpu.name, gpu.scope, gpu.quality, gpu.driver) == (
            GPU,
            "Apple M4 GPU",
            "accelerator",
            "modelled",
            "macOS 26.1",
        )
        assert (module.uid, module.name, module.scope, module.quality) == (MODULE, "Apple M4", "module", "modelled")
        assert (gpu.memory_total_b, gpu.covers, module.board) == (MEMORY_B, (), GPU)
        assert gpu.energy is not None
        assert (gpu.energy.api, gpu.energy.unit) == ("zeus-apple-silicon gpu_mj", "mJ")
        assert (gpu.power, gpu.power_reason) == (None, "zeus-apple-silicon counts energy; power is its rise")
        assert "unified" in gpu.reasons["memory"]

    def test_millijoules_become_joules(self, shown: Mac, probe: AppleProbe) -> None:
        shown.count(gpu_w=0, cpu_w=0, ane_w=0)
        probe.discover()
        first = probe.sample(GPU).energy_j
        shown.count(gpu_mj=5_807_000 + 5_807)
        assert first == 5807.0
        assert probe.sample(GPU).energy_j == pytest.approx(5807.0 + 5.807)
        assert probe.sample(MODULE).energy_j == pytest.approx(5812.807 + 900.0 + 3.0)
        assert [(raw.value, raw.unit) for raw in probe.raw(GPU)] == [(5_812_807.0, "mJ")]

    def test_use_and_memory_come_from_ioreg(self, probe: AppleProbe) -> None:
        probe.discover()
        reading = probe.sample(GPU)
        assert (reading.memory_used_b, reading.utilisation) == (550_649_856, 0.03)

    @pytest.mark.parametrize("part", ["ane_mj", "cpu_total_mj"])
    def test_a_sum_without_a_part_is_none(self, shown: Mac, probe: AppleProbe, part: str) -> None:
        shown.count(**{part: None})
        assert [device.uid for device in probe.discover().devices] == [GPU]

    def test_a_counter_that_fails_for_a_while(self, shown: Mac, probe: AppleProbe) -> None:
        probe.discover()
        shown.count(broken=1)
        assert probe.sample(GPU).energy_j is None
        shown.count(broken=None)
        assert probe.sample(GPU).energy_j is not None

    @pytest.mark.parametrize(
        "state", [{"gpu_mj": None}, {"subscription": False}, {"gpu_mj": 0, "gpu_w": 0, "cpu_total_mj": None}]
    )
    def test_a_chip_that_it_does_not_know_is_left_to_the_tools(
        self, shown: Mac, probe: AppleProbe, state: dict[str, object]
    ) -> None:
        shown.count(**state)
        shown.install("macmon", MACMON + "\n")
        gpu, _ = probe.discover().devices
        assert gpu.energy is None
        assert probe.sample(gpu.uid).power_w == 12.5

    def test_the_tools_are_left_alone_where_it_counts(self, shown: Mac, probe: AppleProbe) -> None:
        shown.install("macmon", MACMON + "\n")
        probe.discover()
        assert "macmon" not in (shown.bin / "calls").read_text(encoding="utf-8")

    def test_a_chip_of_unknown_name(self, shown: Mac, probe: AppleProbe) -> None:
        (shown.bin / "sysctl.out").unlink()
        gpu, _ = probe.discover().devices
        assert (gpu.name, gpu.memory_total_b, gpu.driver) == ("Apple silicon", None, None)
        assert probe.sample(GPU).memory_used_b == 550_649_856

    def test_without_ioreg_there_is_energy(self, shown: Mac, probe: AppleProbe) -> None:
        (shown.bin / "ioreg.out").unlink()
        found = probe.discover()
        assert [device.uid for device in found.devices] == [GPU, MODULE]
        assert probe.sample(GPU).energy_j is not None
        assert "ioreg: no such service" in found.problems[0].problem


class TestTools:
    @pytest.fixture(autouse=True)
    def _alone(self, no_binding: Mac) -> None: ...

    def test_macmon(self, shown: Mac, probe: AppleProbe) -> None:
        shown.install("macmon", MACMON + "\n")
        gpu, module = probe.discover().devices
        assert gpu.power is not None
        assert (gpu.power.api, gpu.scope, module.scope, module.board) == ("macmon", "accelerator", "module", GPU)
        reading = probe.sample(GPU)
        assert (reading.power_w, reading.temperature_c, reading.clock_mhz) == (12.5, 61.5, 1380.0)
        assert (reading.memory_used_b, reading.utilisation) == (550_649_856, 0.03)
        assert probe.sample(MODULE).power_w == 17.0

    def test_powermetrics_where_sudo_asks_nothing(self, shown: Mac, probe: AppleProbe) -> None:
        shown.install("powermetrics", PLIST.replace("Nominal", "Heavy"))
        shown.install("sudo")
        (shown.bin / "sudo.open").touch()
        gpu, module = probe.discover().devices
        reading = probe.sample(gpu.uid)
        assert reading.power_w == pytest.approx(1.158, abs=0.001)
        assert reading.throttle == ("thermal_pressure",)
        assert probe.sample(module.uid).power_w == pytest.approx(1.541, abs=0.001)

    def test_nobody_is_asked_for_a_password(self, shown: Mac, probe: AppleProbe) -> None:
        shown.install("powermetrics", PLIST)
        shown.install("sudo")
        found = probe.discover()
        (gpu,) = found.devices
        assert gpu.power is None
        (problem,) = found.problems
        assert "a password is required" in problem.problem
        assert "zeus-apple-silicon can't be imported" in problem.problem
        assert "tokjoule[apple]" in problem.fix

    def test_with_nothing_of_all_that_it_says_what_to_install(self, shown: Mac, probe: AppleProbe) -> None:
        (shown.bin / "ioreg.out").unlink()
        found = probe.discover()
        assert found.devices == ()
        (problem,) = found.problems
        assert problem.subject == "platform darwin-arm64"
        assert "brew install macmon" in problem.fix


class TestPlatform:
    @pytest.mark.parametrize(("platform", "opened"), [("darwin-arm64", True), ("darwin-x86_64", False), ("linux-aarch64", False)])
    def test_only_apple_silicon_opens_the_probe(self, roots: Roots, platform: str, opened: bool) -> None:
        env = {**roots_env(roots), "LD_LIBRARY_PATH": "", "BENCH_PLATFORM": platform}
        assert ("apple" in opened_by_signs(env)) == opened

    def test_elsewhere_no_tool_is_run(self, binding: Mac, roots: Roots) -> None:
        probe = AppleProbe(roots, {**binding.env(), "BENCH_PLATFORM": "linux-x86_64"})
        assert probe.discover().devices == ()
        assert not (binding.bin / "calls").exists()

    def test_nothing_hides_the_gpu_from_an_engine(self, binding: Mac, probe: AppleProbe) -> None:
        placement = resolve(probe.discover().devices, ["apple:0"])
        assert (placement.device_uids, placement.visibility_env) == ((GPU, MODULE), {})


def test_in_the_child(shown: Mac, roots: Roots) -> None:
    host = ChildProbeHost({**roots_env(roots), **shown.env(), "PYTHONPATH": str(BINDING)}, deadline_s=30.0)
    stream = host.open("apple", 0.05)
    try:
        assert [device.uid for device in stream.discovery().devices] == [GPU, MODULE]
        joules: list[float] = []

        def risen() -> bool:
            joules.extend(r.energy_j for r in stream.drain() if r.uid == GPU and r.energy_j is not None)
            assert stream.ended() is None
            return len(joules) > 3 and joules[-1] > joules[0]

        until(risen)
    finally:
        stream.close()


class _Apple(ProbeConformance):
    name = "apple"
    vendor_modules = ("zeus_apple_silicon",)

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return AppleProbe(make_roots(tmp_path / "none"), {"PATH": "", "BENCH_PLATFORM": "linux-x86_64"})


class TestAppleBindingConformance(_Apple):
    @pytest.fixture
    def working(self, binding: Mac, probe: AppleProbe) -> Probe:
        return probe


class TestAppleToolConformance(_Apple):
    @pytest.fixture
    def working(self, no_binding: Mac, tmp_path: Path, roots: Roots) -> Iterator[Probe]:
        shown = mac(tmp_path / "mac")
        shown.install("macmon", MACMON + "\n")
        probe = AppleProbe(roots, shown.env())
        yield probe
        probe.close()
