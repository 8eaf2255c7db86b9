from __future__ import annotations

import builtins
import os
import subprocess
import types
from pathlib import Path
from typing import Any

import pytest

from bench.clock import FakeClock
from bench.errors import ProbeError
from bench.probes.nvidia import nvml
from bench.probes.nvidia.probe import NvidiaProbe
from bench.probes.nvidia.sensors import power_timing
from bench.probes.presence import Roots
from bench.records import DeviceInfo
from tests.probes.conftest import put_under_binding
from tests.probes.fake_nvml import GPU_0, GPU_1, H100, FakeNvml
from tests.probes.trees import add_nvidia_card, replace_text

NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, UNKNOWN = 3, 4, 15, 999


def _by_uid(probe: NvidiaProbe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_board_is_described(probe: NvidiaProbe) -> None:
    device = _by_uid(probe)[GPU_0]
    assert (device.name, device.index, device.scope, device.pci) == ("NVIDIA H100 80GB HBM3", 0, "accelerator", "0000:18:00.0")
    assert (device.driver, device.memory_total_b, device.power_limit_w) == ("580.95.05", 85520809984, 700.0)
    assert device.power is not None
    assert device.power.api == "nvmlDeviceGetFieldValues(POWER_INSTANT, GPU)"
    assert device.power.averaging_window_s == 0.025
    assert device.energy is not None
    assert device.energy.wrap_j is None
    assert device.reasons == {}


def test_raw_units_become_ours(probe: NvidiaProbe) -> None:
    probe.discover()
    busy, idle = probe.sample(GPU_0), probe.sample(GPU_1)
    assert busy.power_w == pytest.approx(655.84)
    assert busy.energy_j is not None
    assert busy.energy_j >= 982134.567
    assert (busy.memory_used_b, busy.utilisation, busy.temperature_c, busy.clock_mhz) == (64265125888, 0.97, 63.0, 1755.0)
    assert busy.throttle == ("sw_power_cap",)
    assert idle.power_w == pytest.approx(70.12)
    assert idle.utilisation == 0.0
    assert idle.throttle == ()


@pytest.mark.parametrize(
    ("call", "quantity"),
    [
        ("energy", "energy_j"),
        ("utilisation", "utilisation"),
        ("temperature", "temperature_c"),
        ("clock", "clock_mhz"),
        ("throttle", "throttle"),
    ],
)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, UNKNOWN])
def test_one_failing_call_costs_one_quantity(bound: FakeNvml, probe: NvidiaProbe, call: str, quantity: str, code: int) -> None:
    bound.change(**{f"b0__{call}__ret": code})
    device = _by_uid(probe)[GPU_0]
    assert device.reasons[quantity]
    reading = probe.sample(GPU_0)
    assert getattr(reading, quantity) is None
    assert reading.power_w == pytest.approx(655.84)
    assert getattr(probe.sample(GPU_1), quantity) is not None


def test_a_passing_failure_heals(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__temperature__ret=UNKNOWN)
    probe.discover()
    assert probe.sample(GPU_0).temperature_c is None
    bound.change(b0__temperature__ret=None)
    assert probe.sample(GPU_0).temperature_c == 63.0


def test_no_limit_is_none_with_a_reason(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__limit__ret=NOT_SUPPORTED)
    device = _by_uid(probe)[GPU_0]
    assert device.power_limit_w is None
    assert "Not Supported" in device.reasons["power_limit_w"]


def test_without_a_counter_there_is_no_energy_sensor(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__energy__ret=NOT_SUPPORTED)
    assert _by_uid(probe)[GPU_0].energy is None


@pytest.mark.parametrize(
    ("broken", "api", "window_s"),
    [
        ({"b0__instant__ret": NOT_SUPPORTED}, "nvmlDeviceGetFieldValues(POWER_AVERAGE, GPU)", 1.0),
        ({"b0__instant__ret": NOT_SUPPORTED, "b0__average__ret": NOT_SUPPORTED}, "nvmlDeviceGetPowerUsage", 1.0),
    ],
)
def test_power_falls_back(bound: FakeNvml, probe: NvidiaProbe, broken: dict[str, int], api: str, window_s: float) -> None:
    bound.change(**broken)
    power = _by_uid(probe)[GPU_0].power
    assert power is not None
    assert (power.api, power.averaging_window_s) == (api, window_s)
    assert probe.sample(GPU_0).power_w is not None


def test_no_power_at_all_says_why(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__instant__ret=NOT_SUPPORTED, b0__average__ret=NOT_SUPPORTED, b0__power__ret=NO_PERMISSION)
    device = _by_uid(probe)[GPU_0]
    assert device.power is None
    assert "Insufficient Permissions" in (device.power_reason or "")
    assert probe.sample(GPU_0).power_w is None


@pytest.mark.parametrize(
    ("key", "value", "quantity"),
    [
        ("power_mw", 0xFFFFFFFF, "power_w"),
        ("power_mw", 0, "power_w"),
        ("power_mw", 1_500_000, "power_w"),
        ("energy_mj", 2**64 - 1, "energy_j"),
        ("memory_used", 2**64 - 1, "memory_used_b"),
        ("temperature", 0xFFFFFFFF, "temperature_c"),
        ("utilisation", 0xFFFFFFFF, "utilisation"),
        ("clock", 0xFFFFFFFF, "clock_mhz"),
        ("throttle", 2**64 - 1, "throttle"),
    ],
)
def test_sentinels_and_wrong_units_are_missing(bound: FakeNvml, probe: NvidiaProbe, key: str, value: int, quantity: str) -> None:
    """Also 1500 W on a board with a limit of 700 W: a unit gone wrong, not a reading."""
    probe.discover()
    assert getattr(probe.sample(GPU_0), quantity) is not None
    bound.change(**{f"b0__{key}": value, "b0__energy_rate_mw": 0})
    assert getattr(probe.sample(GPU_0), quantity) is None


def test_a_lost_board_does_not_stop_the_others(bound: FakeNvml, probe: NvidiaProbe) -> None:
    probe.discover()
    bound.change(b0__energy__ret=GPU_IS_LOST, b0__instant__ret=GPU_IS_LOST)
    with pytest.raises(ProbeError, match="GPU is lost"):
        probe.sample(GPU_0)
    assert probe.sample(GPU_1).power_w == pytest.approx(70.12)


def test_a_board_lost_before_discovery_is_a_problem(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__handle__ret=GPU_IS_LOST)
    found = probe.discover()
    assert [d.uid for d in found.devices] == [GPU_1]
    assert [(p.subject, "GPU is lost" in p.problem) for p in found.problems] == [("nvidia:0", True)]


def test_a_counter_that_falls_is_handed_on_as_it_is(bound: FakeNvml, probe: NvidiaProbe) -> None:
    """Whether it is a reset is for the energy core to say; the probe never mends."""
    bound.change(b0__energy_rate_mw=0)
    probe.discover()
    assert probe.sample(GPU_0).energy_j == pytest.approx(982134.567)
    bound.change(b0__energy_mj=1000)
    assert probe.sample(GPU_0).energy_j == pytest.approx(1.0)


def test_version_2_leaves_out_what_the_driver_reserves(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__memory_v2__ret=25)
    probe.discover()
    assert probe.sample(GPU_0).memory_used_b == 64265125888 + 629145600
    assert probe.sample(GPU_1).memory_used_b == 4325376


def test_an_old_driver_without_newer_symbols(
    old_nvml_library: Path, tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml(library=old_nvml_library, state=tmp_path / "old")
    fake.show(1, {**H100, "0.name": "Tesla V100-SXM2-16GB"})
    put_under_binding(fake, monkeypatch)
    probe = NvidiaProbe(roots)
    device = _by_uid(probe)[GPU_0]
    reading = probe.sample(GPU_0)
    probe.close()
    assert device.power is not None
    assert device.power.api == "nvmlDeviceGetPowerUsage"
    assert device.power.averaging_window_s is None
    assert reading.power_w == pytest.approx(655.84)
    assert reading.throttle == ("sw_power_cap",)


def test_mig_slices_are_covered_by_their_board(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__mig=3, b0__utilisation__ret=NOT_SUPPORTED)
    devices = _by_uid(probe)
    assert set(devices) == {GPU_0, GPU_1}
    assert len(devices[GPU_0].covers) == 3
    assert all(uid.startswith("MIG-") for uid in devices[GPU_0].covers)
    assert devices[GPU_1].covers == ()


def test_a_board_split_among_slices_is_shared_and_one_slice_is_not(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__mig=3, b1__mig=1)
    devices = _by_uid(probe)
    assert (devices[GPU_0].shared or "").startswith("MIG: 3 slices")
    assert devices[GPU_1].shared is None


@pytest.mark.parametrize(("mode", "shared"), [(0, False), (1, False), (2, True), (3, True), (4, True)])
def test_a_virtual_gpu_is_shared_and_one_passed_through_is_not(
    bound: FakeNvml, probe: NvidiaProbe, mode: int, shared: bool
) -> None:
    bound.change(b0__virtualization=mode)
    assert (_by_uid(probe)[GPU_0].shared is not None) is shared


@pytest.mark.parametrize("variable", ["CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
def test_a_board_split_among_containers_is_shared(probe: NvidiaProbe, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _by_uid(probe)[GPU_0].shared is None
    monkeypatch.setenv(variable, "50")
    assert variable in (_by_uid(probe)[GPU_0].shared or "")


def _as_on_the_host(roots: Roots) -> None:
    replace_text(roots.proc / "2/comm", "kthreadd\n")


def test_processes_of_the_engines_tree_are_not_foreign(bound: FakeNvml, roots: Roots) -> None:
    _as_on_the_host(roots)
    probe, me = NvidiaProbe(roots, harness_pid=2**22 + 9), os.getpid()
    with subprocess.Popen(["sleep", "60"]) as child, subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        bound.change(b0__pids=f"{child.pid} {other.pid}")
        probe.discover()
        assert probe.sample(GPU_0).foreign_processes == 2  # nobody has said yet that one of them is the engine
        probe.watch([child.pid])
        assert probe.sample(GPU_1).foreign_processes == 0
        assert probe.sample(GPU_0).foreign_processes == 1
        bound.change(b0__pids=f"{child.pid} {2**22 + 7}")
        probe.watch([])
        assert probe.sample(GPU_0).foreign_processes == 0  # the other number belongs to nobody any more
        probe.watch([me])
        bound.change(b0__pids=f"{child.pid} {other.pid} {me}")
        assert probe.sample(GPU_0).foreign_processes == 0
        child.kill()
        other.kill()
    probe.close()


def test_what_comes_while_the_engine_starts_may_be_the_engine(bound: FakeNvml, roots: Roots) -> None:
    """One in a container is the daemon's child, not ours."""
    _as_on_the_host(roots)
    clock = FakeClock()
    probe = NvidiaProbe(roots, clock, harness_pid=2**22 + 9)
    with subprocess.Popen(["sleep", "60"]) as engine, subprocess.Popen(["sleep", "60"]) as other:
        probe.discover()
        assert probe.sample(GPU_0).foreign_processes == 0
        bound.change(b0__pids=f"{engine.pid} {other.pid}")
        clock.advance(2)
        assert probe.sample(GPU_0).foreign_processes == 0
        probe.watch([engine.pid])
        assert probe.sample(GPU_0).foreign_processes == 1
        engine.kill()
        other.kill()
    probe.close()


def test_in_a_container_what_was_there_before_is_foreign(bound: FakeNvml, roots: Roots) -> None:
    """Process ids of the host can't be looked up from inside."""
    bound.change(b0__pids="3999001 3999002")
    clock = FakeClock()
    probe = NvidiaProbe(roots, clock)
    probe.discover()
    assert probe.sample(GPU_0).foreign_processes == 2
    bound.change(b0__pids="3999001 3999002 3999003", b1__pids="3999003")
    clock.advance(2)
    assert probe.sample(GPU_0).foreign_processes == 2  # the engine is starting
    bound.change(b0__pids="3999002 3999003")
    probe.watch([os.getpid()])
    assert probe.sample(GPU_0).foreign_processes == 1
    assert probe.sample(GPU_1).foreign_processes == 0  # first looked at when the engine was there


def test_a_driver_that_tells_no_processes_costs_nothing_else(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__processes__ret=NOT_SUPPORTED)
    probe.discover()
    probe.watch([os.getpid()])
    assert probe.sample(GPU_0).foreign_processes is None
    assert probe.sample(GPU_0).power_w == pytest.approx(655.84)
    assert probe.sample(GPU_1).foreign_processes == 0


def test_raw_values_are_the_drivers_own(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__energy_rate_mw=0)
    probe.discover()
    raw = {value.quantity: value for value in probe.raw(GPU_0)}
    assert (raw["power_w"].value, raw["power_w"].unit) == (655840.0, "mW")
    assert (raw["energy_j"].value, raw["energy_j"].unit) == (982134567.0, "mJ")


def test_grace_hopper_keeps_gpu_and_module_apart(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.show(1, {**H100, "0.name": "NVIDIA GH200 480GB", "0.module_mw": 812000})
    gpu, module = probe.discover().devices
    assert (gpu.scope, gpu.energy) == ("accelerator", None)
    assert "module" in gpu.reasons["energy_j"]
    assert (module.scope, module.uid, module.covers, module.board) == ("module", f"{GPU_0}/module", (GPU_0,), GPU_0)
    assert module.energy is not None
    gpu_reading, module_reading = probe.sample(gpu.uid), probe.sample(module.uid)
    assert gpu_reading.power_w == pytest.approx(655.84)
    assert gpu_reading.energy_j is None
    assert module_reading.power_w == pytest.approx(812.0)
    assert module_reading.energy_j is not None
    assert module_reading.memory_used_b is None


def test_gb10_takes_its_memory_from_the_host(bound: FakeNvml, probe: NvidiaProbe, roots: Roots) -> None:
    replace_text(roots.proc / "meminfo", "MemTotal:       125000000 kB\nMemFree: 1 kB\nMemAvailable:   100000000 kB\n")
    bound.show(1, {**H100, "0.name": "NVIDIA GB10", "0.power_mw": 4720})
    bound.change(b0__memory__ret=NOT_SUPPORTED, b0__memory_v2__ret=NOT_SUPPORTED, b0__limit__ret=NOT_SUPPORTED)
    (device,) = probe.discover().devices
    assert device.memory_total_b == 125000000 * 1024
    assert "unified" in device.reasons["memory"]
    reading = probe.sample(device.uid)
    assert reading.power_w == pytest.approx(4.72)
    assert reading.memory_used_b == 25000000 * 1024


def test_another_board_without_memory_does_not_take_the_hosts(bound: FakeNvml, probe: NvidiaProbe, roots: Roots) -> None:
    replace_text(roots.proc / "meminfo", "MemTotal: 125000000 kB\nMemAvailable: 100000000 kB\n")
    bound.change(b0__memory__ret=NOT_SUPPORTED, b0__memory_v2__ret=NOT_SUPPORTED)
    device = _by_uid(probe)[GPU_0]
    assert device.memory_total_b is None
    assert "Not Supported" in device.reasons["memory_total_b"]
    assert probe.sample(GPU_0).memory_used_b is None


def test_a_board_without_uuid_is_known_by_its_address(bound: FakeNvml, probe: NvidiaProbe) -> None:
    bound.change(b0__uuid__ret=NOT_SUPPORTED)
    assert "pci:0000:18:00.0" in _by_uid(probe)


@pytest.mark.parametrize(
    ("code", "fix"),
    [(9, "modprobe nvidia"), (NO_PERMISSION, "/dev/nvidiactl"), (18, "reboot"), (UNKNOWN, "nvidia-smi")],
)
def test_a_library_without_a_driver_is_a_problem(bound: FakeNvml, probe: NvidiaProbe, code: int, fix: str) -> None:
    bound.change(all__init__ret=code)
    found = probe.discover()
    assert found.devices == ()
    assert len(found.problems) == 1
    assert fix in found.problems[0].fix


def test_a_card_without_the_library_is_a_problem(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_library(monkeypatch)
    add_nvidia_card(roots)
    (problem,) = NvidiaProbe(roots).discover().problems
    assert "libnvidia-ml.so.1" in problem.problem
    assert problem.subject == "PCI device 0000:18:00.0"
    assert "--gpus all" in problem.fix


def test_no_gpus_behind_a_loaded_driver(bound: FakeNvml, probe: NvidiaProbe, roots: Roots) -> None:
    bound.show(0, {})
    assert probe.discover().problems == ()
    add_nvidia_card(roots)
    (problem,) = probe.discover().problems
    assert "no GPU" in problem.problem


def test_a_missing_binding_matters_only_beside_a_card(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_binding(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pynvml":
            raise ModuleNotFoundError("No module named 'pynvml'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_binding)
    monkeypatch.setattr("bench.probes.nvidia.probe.library", lambda env, vendor: None)
    assert NvidiaProbe(roots).discover().problems == ()
    add_nvidia_card(roots)
    (problem,) = NvidiaProbe(roots).discover().problems
    assert problem.fix == "pip install 'tokjoule[nvidia]'"


def test_the_deprecated_wrapper_is_refused(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pynvml", types.ModuleType("pynvml"))
    add_nvidia_card(roots)
    (problem,) = NvidiaProbe(roots).discover().problems
    assert "deprecated" in problem.problem
    assert "nvidia-ml-py" in problem.fix


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (1, ()),
        (0x4, ("sw_power_cap",)),
        (0x48, ("hw_slowdown", "hw_thermal")),
        (0x20, ("sw_thermal",)),
        (0x80, ("hw_power_brake",)),
        (0x10001, ("unknown_0x10000",)),
    ],
)
def test_limits_have_standard_names(bits: int, names: tuple[str, ...]) -> None:
    assert nvml.throttle_names(bits) == names


@pytest.mark.parametrize(
    ("field", "architecture", "name", "window_s"),
    [
        ("instant", 5, "Tesla V100", 0.010),
        ("usage", 6, "Tesla T4", 0.100),
        ("instant", 7, "NVIDIA A100-SXM4-80GB", 0.025),
        ("usage", 7, "NVIDIA A100-SXM4-80GB", 0.025),
        ("usage", 7, "NVIDIA A40", 1.0),
        ("usage", 8, "NVIDIA L40S", 1.0),
        ("instant", 9, "NVIDIA H100 80GB HBM3", 0.025),
        ("instant", None, "NVIDIA H100 80GB HBM3", 0.025),
        ("instant", 9, "NVIDIA GH200 480GB", 0.020),
        ("instant", 7, "NVIDIA RTX A3000 Laptop GPU", None),
        ("instant", 8, "NVIDIA L40S", None),
        ("instant", None, "NVIDIA New", None),
    ],
)
def test_averaging_windows(field: str, architecture: int | None, name: str, window_s: float | None) -> None:
    assert power_timing(field, architecture, name).averaging_s == window_s


def _without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
