"""The probe through the real `amdsmi` on the compiled library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from bench.clock import FakeClock
from bench.errors import ProbeError
from bench.probes.amd import library as amd_library
from bench.probes.amd.library import Amdsmi
from bench.probes.amd.probe import AmdProbe
from bench.probes.presence import Roots
from bench.probes.values import Unavailable
from bench.records import DeviceInfo
from tests.fakes.build import shared_library
from tests.probes.amd.cards import RX_7900, add_card
from tests.probes.amd.fake_amdsmi import GPU_0, GPU_1, GPU_2, GPU_3, MI250, MI300X, FakeAmdsmi

NOT_SUPPORTED, NO_PERMISSION, BUSY, NOT_FOUND, NOT_INIT, NO_DRIVER = 2, 10, 30, 31, 32, 34


def _by_uid(probe: AmdProbe) -> dict[str, DeviceInfo]:
    return {device.uid: device for device in probe.discover().devices}


def test_a_board_is_described(probe: AmdProbe) -> None:
    device = _by_uid(probe)[GPU_1]
    assert (device.name, device.index, device.scope, device.pci) == ("AMD Instinct MI300X", 1, "accelerator", "0000:15:00.0")
    assert (device.driver, device.memory_total_b, device.power_limit_w) == ("amdgpu 6.12.12", 206_141_652_992, 750.0)
    assert device.power is not None
    assert device.power.api.startswith("amdsmi_get_power_info[current_socket_power] (amdsmi 7.")
    assert device.power.unit == "W"
    assert device.energy is not None
    assert device.energy.wrap_j is None
    assert device.reasons == {}


def test_raw_units_become_ours(probe: AmdProbe) -> None:
    probe.discover()
    idle, busy = probe.sample(GPU_0), probe.sample(GPU_1)
    assert (idle.power_w, busy.power_w) == (133.0, 717.0)
    assert (busy.memory_used_b, busy.utilisation, busy.temperature_c, busy.clock_mhz) == (180_000_000_000, 0.99, 84.0, 2100.0)
    assert busy.throttle == ("sw_power_cap", "memory_thermal")
    assert idle.throttle == ()


def test_the_accumulator_counts_exact_units(bound: FakeAmdsmi, probe: AmdProbe) -> None:
    """65,536,000 counts are 1000 J: the library's 15.3 uJ would make it 1002.7."""
    bound.change(all__energy_rate_w=133)
    probe.discover()
    bound.change(b0__energy=65_536_000, b0__energy_rate_w=0)
    assert probe.sample(GPU_0).energy_j == pytest.approx(1000.0, rel=1e-12)
    bound.change(b0__energy=1_370_283_310_000, b0__resolution=15.3)
    assert probe.sample(GPU_0).energy_j == pytest.approx(20_908_863.98, abs=0.01)


@pytest.mark.parametrize(("resolution", "joules"), [(15.3, 1000.0), (15.259, 1000.0), (15.5, 1015.808), (1.0, 65.536)])
def test_another_resolution_is_taken_at_its_word(bound: FakeAmdsmi, probe: AmdProbe, resolution: float, joules: float) -> None:
    probe.discover()
    bound.change(b0__energy=65_536_000, b0__energy_rate_w=0, b0__resolution=resolution)
    assert probe.sample(GPU_0).energy_j == pytest.approx(joules, rel=1e-6)


def test_older_parts_tell_average_power(bound: FakeAmdsmi, probe: AmdProbe) -> None:
    bound.change(b0__current=None, b0__average=94, all__current=None, b0__energy_rate_w=94)
    device = _by_uid(probe)[GPU_0]
    assert device.power is not None
    assert "[average_socket_power]" in device.power.api
    assert probe.sample(GPU_0).power_w == 94.0


@pytest.mark.parametrize("mark", [0xFFFF, 0xFFFFFFFF, 0, 7000])
def test_marks_and_impossible_watts_are_missing(bound: FakeAmdsmi, probe: AmdProbe, mark: int) -> None:
    probe.discover()
    bound.change(b1__current=mark)
    assert probe.sample(GPU_1).power_w is None
    assert probe.sample(GPU_0).power_w == 133.0


@pytest.mark.parametrize(
    ("call", "quantity"),
    [
        ("energy", "energy_j"),
        ("activity", "utilisation"),
        ("temp", "temperature_c"),
        ("clock", "clock_mhz"),
        ("violation", "throttle"),
        ("power", "power_w"),
    ],
)
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, BUSY, NOT_FOUND])
def test_one_failing_call_costs_one_quantity(bound: FakeAmdsmi, probe: AmdProbe, call: str, quantity: str, code: int) -> None:
    bound.change(**{f"b0__{call}__ret": code})
    device = _by_uid(probe)[GPU_0]
    reason = device.power_reason if quantity == "power_w" else device.reasons[quantity]
    assert f"amdsmi_get_{call}" in (reason or "") or "amdsmi_get" in (reason or "")
    assert getattr(probe.sample(GPU_0), quantity) is None
    assert getattr(probe.sample(GPU_1), quantity) is not None


def test_memory_falls_back_to_the_older_call(bound: FakeAmdsmi, probe: AmdProbe) -> None:
    bound.change(b0__memory_total__ret=2, b0__memory_used__ret=2, b0__vram_total_mib=196_288, b0__vram_used_mib=65_535)
    assert _by_uid(probe)[GPU_0].memory_total_b == 196_288 << 20
    assert probe.sample(GPU_0).memory_used_b == 65_535 << 20


@pytest.mark.parametrize("code", [NOT_INIT, NO_DRIVER])
def test_a_lost_driver_is_an_error_of_that_device(bound: FakeAmdsmi, probe: AmdProbe, code: int) -> None:
    probe.discover()
    bound.change(b0__energy__ret=code)
    with pytest.raises(ProbeError, match="amdsmi_get_energy_count"):
        probe.sample(GPU_0)
    assert probe.sample(GPU_1).power_w == 717.0


def test_a_passing_failure_heals(bound: FakeAmdsmi, probe: AmdProbe) -> None:
    bound.change(b0__temp__ret=BUSY)
    probe.discover()
    assert probe.sample(GPU_0).temperature_c is None
    bound.change(b0__temp__ret=None)
    assert probe.sample(GPU_0).temperature_c == 38.0


class TestCounter:
    @pytest.mark.parametrize("rate_w", [0, 13, 1400])
    def test_one_that_does_not_fit_the_power_is_refused(self, bound: FakeAmdsmi, probe: AmdProbe, rate_w: int) -> None:
        bound.change(b0__energy_rate_w=rate_w)
        devices = _by_uid(probe)
        assert devices[GPU_0].energy is None
        assert "the energy counter rose by" in devices[GPU_0].reasons["energy_j"]
        assert probe.sample(GPU_0).energy_j is None
        assert devices[GPU_1].energy is not None

    def test_one_that_is_a_little_off_is_kept_and_told(self, bound: FakeAmdsmi, probe: AmdProbe) -> None:
        bound.change(b0__energy_rate_w=200)
        found = probe.discover()
        assert found.devices[0].energy is not None
        assert [problem.subject for problem in found.problems] == [GPU_0]
        assert "ratio 1.5" in found.problems[0].problem

    def test_without_power_it_can_not_be_checked(self, bound: FakeAmdsmi, probe: AmdProbe) -> None:
        bound.change(b0__current=0xFFFF)
        assert "no power to check" in _by_uid(probe)[GPU_0].reasons["energy_j"]

    def test_a_reset_is_handed_on_as_it_is(self, bound: FakeAmdsmi, probe: AmdProbe) -> None:
        """Whether a fall is a wrap or a reset is for the energy core: the probe must not hide it."""
        probe.discover()
        before = probe.sample(GPU_0).energy_j
        bound.change(b0__energy=65_536, b0__energy_rate_w=0)
        after = probe.sample(GPU_0).energy_j
        assert before is not None
        assert after is not None
        assert after == pytest.approx(1.0)
        assert after < before


class TestBoardsOfTwo:
    @pytest.fixture(autouse=True)
    def _dies(self, bound: FakeAmdsmi) -> None:
        bound.show(4, MI250)

    def test_the_even_die_covers_the_odd_one(self, probe: AmdProbe) -> None:
        devices = _by_uid(probe)
        assert [d.covers for d in devices.values()] == [(GPU_1,), (), (GPU_3,), ()]
        assert [d.board for d in devices.values()] == [GPU_0, GPU_0, GPU_2, GPU_2]
        assert devices[GPU_1].power is None
        assert GPU_0 in (devices[GPU_1].power_reason or "")
        assert devices[GPU_3].energy is None

    def test_power_once_a_board_memory_once_a_die(self, probe: AmdProbe) -> None:
        probe.discover()
        readings = [probe.sample(uid) for uid in (GPU_0, GPU_1, GPU_2, GPU_3)]
        assert [r.power_w for r in readings] == [102.0, None, 94.0, None]
        assert all(r.memory_used_b == 11_665_408 for r in readings)

    def test_a_primary_die_may_come_second(self, bound: FakeAmdsmi, probe: AmdProbe) -> None:
        bound.change(b0__average=0, b0__energy=0, b1__average=102, b1__energy=5_000_000_000, b1__energy_rate_w=102)
        devices = _by_uid(probe)
        assert devices[GPU_1].covers == (GPU_0,)
        assert devices[GPU_0].power is None

    def test_nothing_is_covered_by_a_board_that_can_not_be_read(self, bound: FakeAmdsmi, probe: AmdProbe) -> None:
        bound.change(b0__power__ret=NO_PERMISSION, b0__energy__ret=NO_PERMISSION)
        devices = _by_uid(probe)
        assert devices[GPU_0].covers == ()
        assert "Permission" in (devices[GPU_0].power_reason or "")


def test_partitions_are_measured_with_the_first(bound: FakeAmdsmi, probe: AmdProbe) -> None:
    same: dict[str, str | int | float] = {
        "0.bus": 5,
        "1.bus": 5,
        "1.function": 1,
        "0.serial": "a0b0c000",
        "1.serial": "a0b0c000",
        "1.current": 0xFFFF,
        "1.energy": 0,
    }
    bound.show(2, {**MI300X, **same})
    first, second = probe.discover().devices
    assert (first.uid, second.uid) == ("amd:pci:0000:05:00.0", "amd:pci:0000:05:00.1")  # one unique id for both
    assert first.covers == (second.uid,)
    assert second.board == first.uid
    assert probe.sample(first.uid).power_w == 133.0
    assert probe.sample(second.uid).power_w is None


def test_of_an_apu_power_is_the_modules(bound: FakeAmdsmi, probe: AmdProbe) -> None:
    bound.change(b0__name="AMD Instinct MI300A")
    assert _by_uid(probe)[GPU_0].scope == "module"


def test_a_list_that_shrinks_and_grows(bound: FakeAmdsmi, probe: AmdProbe) -> None:
    assert len(probe.discover().devices) == 2
    bound.change(devices=1)
    assert list(_by_uid(probe)) == [GPU_0]
    with pytest.raises(ProbeError, match=GPU_1):
        probe.sample(GPU_1)
    bound.change(devices=2)
    assert len(probe.discover().devices) == 2


def test_the_kernels_files_fill_what_the_library_lacks(bound: FakeAmdsmi, probe: AmdProbe, roots: Roots) -> None:
    """As on gfx1151, where the library says N/A to everything: each quantity by itself, joined by PCI address."""
    bound.show(1, {"*.name": "Radeon RX 7900 XTX", "*.serial": "1a2b3c4d5e6f7081", "*.bus": 3, "*.edge": 48})
    add_card(roots, "0000:03:00.0", RX_7900)
    (device,) = probe.discover().devices
    assert device.uid == "GPU-1a2b3c4d5e6f7081"
    assert device.name == "Radeon RX 7900 XTX"
    assert device.power is not None
    assert (device.power.api, device.power.unit) == ("hwmon power1_average", "uW")
    assert (device.memory_total_b, device.power_limit_w) == (25_753_026_560, 327.0)
    reading = probe.sample(device.uid)
    assert (reading.power_w, reading.memory_used_b, reading.utilisation) == (53.0, 1_288_490_188, 0.37)
    assert reading.temperature_c == 48.0  # of the library, which comes first


def test_a_slow_call_for_limits_is_left_out(bound: FakeAmdsmi) -> None:
    """Some versions look twice, 100 ms apart: at 10 Hz that would be all the time there is."""
    import amdsmi

    clock = FakeClock()

    def slow(handle: Any) -> dict[str, Any]:
        clock.advance(0.1)
        return {"active_ppt_pwr": True}

    lib = types.SimpleNamespace(**{**vars(amdsmi), "amdsmi_get_violation_status": slow})
    lib.amdsmi_init()
    try:
        card = amd_library.cards(Amdsmi(lib=lib, origin="test"), clock)[0]
    finally:
        lib.amdsmi_shut_down()
    with pytest.raises(Unavailable, match="too dear to poll"):
        card.quantities["throttle"].get()


def test_the_accumulators_older_name(bound: FakeAmdsmi) -> None:
    """It was called `power` before ROCm 6.2.1."""
    import amdsmi

    told = {"power": 65_536_000, "counter_resolution": 15.3, "timestamp": 1}
    lib = types.SimpleNamespace(**{**vars(amdsmi), "amdsmi_get_energy_count": lambda handle: told})
    assert amd_library._energy_j(Amdsmi(lib=lib, origin="test"), object()) == pytest.approx(1000.0)


class TestLoading:
    """In processes of their own: a library stays loaded."""

    @staticmethod
    def _loaded(env: dict[str, str], *paths: Path) -> str:
        code = (
            "import os\n"
            "from bench.probes.amd import library\n"
            "try: print(library.load(os.environ).origin)\n"
            "except library.CannotLoad as error: print('cannot:', error)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_env(env, *paths))
        return done.stdout.strip().splitlines()[-1]

    def test_without_its_library_the_binding_raises_a_key_error(self, tmp_path: Path) -> None:
        said = self._loaded({"ROCM_PATH": str(tmp_path)})
        assert said.startswith("cannot:")
        assert "libamd_smi.so can't be loaded" in said

    def test_the_one_installed_with_rocm_comes_first(self, fake_amdsmi: FakeAmdsmi, tmp_path: Path) -> None:
        rocm = _rocm_with_binding(fake_amdsmi, tmp_path, version="26.7.1")
        assert self._loaded({**fake_amdsmi.env(), "ROCM_PATH": str(rocm)}) == f"amdsmi 26.7.1 of {rocm}"

    def test_a_broken_one_gives_way_to_that_of_pypi(self, fake_amdsmi: FakeAmdsmi, tmp_path: Path) -> None:
        rocm = _rocm_with_binding(fake_amdsmi, tmp_path, version="26.7.1")
        wrapper = rocm / "share/amd_smi/amdsmi/amdsmi_wrapper.py"
        wrapper.write_text(
            wrapper.read_text(encoding="utf-8") + "\n_libraries['libamd_smi.so'].no_such_symbol\n", encoding="utf-8"
        )
        assert self._loaded({**fake_amdsmi.env(), "ROCM_PATH": str(rocm)}).endswith("from PyPI")

    def test_a_missing_symbol_is_told(self, tmp_path: Path) -> None:
        shared_library("amdsmi.c", tmp_path / "lib/libamd_smi.so", ["FAKE_NO_ENERGY"])
        said = self._loaded({"ROCM_PATH": str(tmp_path)})
        assert said.startswith("cannot:")
        assert "amdsmi_get_energy_count" in said

    def test_that_of_pypi_must_fit_the_rocm_installed(self, fake_amdsmi: FakeAmdsmi, tmp_path: Path) -> None:
        rocm = tmp_path / "rocm"
        (rocm / "lib").mkdir(parents=True)
        shutil.copy(fake_amdsmi.rocm / "lib/libamd_smi.so", rocm / "lib")
        (rocm / ".info").mkdir()
        (rocm / ".info/version").write_text("6.4.1-83\n", encoding="ascii")
        assert "does not fit ROCm 6.x" in self._loaded({**fake_amdsmi.env(), "ROCM_PATH": str(rocm)})
        (rocm / ".info/version").write_text("7.0.2-56\n", encoding="ascii")
        assert self._loaded({**fake_amdsmi.env(), "ROCM_PATH": str(rocm)}).endswith("from PyPI")

    def test_a_failing_start_is_told(self, fake_amdsmi: FakeAmdsmi) -> None:
        fake_amdsmi.change(all__init__ret=NO_DRIVER)
        said = self._loaded(fake_amdsmi.env())
        assert said.startswith("cannot:")
        assert "DRIVER_NOT_LOADED" in said


def test_a_card_without_a_library_is_read_from_the_files(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setitem(sys.modules, "pyrsmi.rocml", None)
    add_card(roots, "0000:03:00.0", RX_7900)
    found = AmdProbe(roots, {"PATH": ""}).discover()
    assert found.devices[0].power is not None
    assert found.problems == ()


def test_what_is_lacking_without_a_library_is_told_with_the_fix(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setitem(sys.modules, "pyrsmi.rocml", None)
    add_card(roots, "0000:03:00.0", {k: v for k, v in RX_7900.items() if "power1_average" not in k})
    found = AmdProbe(roots, {"PATH": ""}).discover()
    assert found.devices[0].power is None
    (problem,) = found.problems
    assert problem.subject == found.devices[0].uid
    assert "amd-smi-lib" in problem.fix


def test_a_pyrsmi_alone_is_used(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """-1 is pyrsmi's word for a failed call, and it must not become a number."""
    rocml = types.ModuleType("pyrsmi.rocml")
    answers: dict[str, Any] = {
        "smi_initialize": lambda: None,
        "smi_get_device_count": lambda: 2,
        "smi_get_device_name": lambda index: b"AMD Instinct MI210",
        "smi_get_device_pci_id": lambda index: 0xC300 + 0x1000 * index,
        "smi_get_device_average_power": lambda index: (94.0, -1)[index],
        "smi_get_device_memory_used": lambda index: 11_665_408,
        "smi_get_device_memory_total": lambda index: 68_702_699_520,
        "smi_get_device_utilization": lambda index: (50, -1)[index],
    }
    for name, answer in answers.items():
        setattr(rocml, name, answer)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setitem(sys.modules, "pyrsmi", types.ModuleType("pyrsmi"))
    monkeypatch.setitem(sys.modules, "pyrsmi.rocml", rocml)
    probe = AmdProbe(roots, {"PATH": ""})
    first, second = probe.discover().devices
    assert (first.pci, first.name, first.memory_total_b) == ("0000:c3:00.0", "AMD Instinct MI210", 68_702_699_520)
    assert first.power is not None
    assert first.power.api == "pyrsmi smi_get_device_average_power"
    assert (probe.sample(first.uid).power_w, probe.sample(first.uid).utilisation) == (94.0, 0.5)
    assert second.power is None
    assert "failed" in (second.power_reason or "")


def _env(env: dict[str, str], *paths: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("ROCM_PATH", "ROCM_HOME", "LD_LIBRARY_PATH")}
    return {**kept, **env, "PYTHONPATH": os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _rocm_with_binding(fake: FakeAmdsmi, tmp_path: Path, *, version: str) -> Path:
    """A ROCm folder with the library and a binding of its own."""
    import importlib.util

    spec = importlib.util.find_spec("amdsmi")
    assert spec is not None
    assert spec.origin is not None
    rocm = tmp_path / "own"
    (rocm / "lib").mkdir(parents=True)
    shutil.copy(fake.rocm / "lib/libamd_smi.so", rocm / "lib")
    shutil.copytree(Path(spec.origin).parent, rocm / "share/amd_smi/amdsmi")
    (rocm / "share/amd_smi/amdsmi/_version.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    return rocm
