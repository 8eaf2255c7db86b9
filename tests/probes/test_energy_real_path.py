"""Series whose energy is known, through the real path: vendor binding on the compiled NVML, or a powercap tree, under the real
child, host and recorder; then the pure core. The same cases on exact stamps are in tests/timing/test_energy_cases.py.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from bench.probes.host import ChildProbeHost
from bench.probes.stream import ChildProbeStream
from bench.records import Telemetry, Window
from bench.session.telemetry import Recorder
from bench.timing import measure
from bench.timing.recorded import RecordedDevice, recorded_devices, recorded_scopes
from tests.probes.fake_nvml import H100, FakeNvml
from tests.probes.scripted import LEAD_S, Script, nvml_script, rapl_script
from tests.probes.trees import AMD_RANGE_UJ, INTEL_RANGE_UJ, make_roots, roots_env, write_powercap
from tests.timing.builders import Request, make_case, make_load, make_log

pytestmark = pytest.mark.alone  # polls that come late beside others are what some of these cases are about
SECONDS = 4.0
SQUARE_S = 2.0
NOT_SUPPORTED = 3
TURING, HOPPER = 6, 9
LATE_S = 0.12
"""How far the fake, the poll and the window may be apart on a busy machine: a poll and a refresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One recording: what was read, over which window."""

    telemetry: Telemetry
    window: Window
    rest: Window | None = None

    def device(self, uid: str, window: Window | None = None) -> RecordedDevice:
        return next(one for one in recorded_devices(self.telemetry, window or self.window) if one.device.uid == uid)

    def codes(self, uid: str, window: Window | None = None) -> list[str]:
        return [fault.code for fault in self.device(uid, window).faults]

    def joules(self, uid: str, window: Window | None = None) -> float:
        joules = self.device(uid, window).joules
        assert joules.energy_j is not None, joules.reason
        return joules.energy_j


def gpu(board: int) -> str:
    return f"GPU-00000000-aaaa-4bbb-8ccc-{board + 1:012d}"


# --- NVML -------------------------------------------------------------------------------------------------------------

CONSTANT, STEP, RAMP, PHASE_LOCKED, SERVING, GRACE = range(6)
SQUARE, STUCK, RESET, MIG, STEPPED, COARSE = range(6)
COMMON: dict[str, str | int] = {
    **H100,
    **{f"*.{key}": value for key, value in {"energy_rate_mw": 0, "power_mw": 300_000, "arch": HOPPER}.items()},
    **{f"0.{key}": H100[f"*.{key}"] for key in ("throttle", "utilisation")},
    "0.energy_rate_mw": 0,
}
BY_POWER: dict[str, str | int] = {
    **COMMON,
    **{f"{board}.energy.ret": NOT_SUPPORTED for board in (CONSTANT, STEP, RAMP, PHASE_LOCKED, SERVING)},
    **{f"{board}.arch": TURING for board in (CONSTANT, STEP, RAMP, SERVING)},
    **{f"{board}.name": "Tesla T4" for board in (CONSTANT, STEP, RAMP, SERVING)},
    f"{CONSTANT}.power_mw": 300_000,
    f"{PHASE_LOCKED}.power_mw": 200_000,
    f"{GRACE}.name": "NVIDIA GH200 480GB",
    f"{GRACE}.module_mw": 812_000,
    f"{GRACE}.energy_rate_mw": 812_000,
}
POWER_LAWS = {
    f"{STEP}.power_mw": lambda t: 100_000 if t < SECONDS / 2 else 500_000,
    f"{RAMP}.power_mw": lambda t: 50_000 + 100_000 * max(t, 0.0),
    f"{SERVING}.power_mw": lambda t: 120_000 if t < 0 else 600_000,
}
BY_COUNTER: dict[str, str | int] = {
    **COMMON,
    f"{STUCK}.power_mw": 400_000,
    f"{MIG}.mig": 3,
    f"{MIG}.power_mw": 200_000,
    f"{MIG}.energy_rate_mw": 200_000,
    f"{STEPPED}.power_mw": 500_000,
    f"{STEPPED}.energy_rate_mw": 500_000,
    f"{COARSE}.energy_rate_mw": 300_000,
    f"{COARSE}.energy_step_ms": 2000,
}
COUNTER_LAWS = {
    f"{SQUARE}.power_mw": lambda t: 500_000 if t % SQUARE_S < SQUARE_S / 2 else 100_000,
    f"{SQUARE}.energy_mj": lambda t: 1e6 + 1e3 * square_j(t),
    f"{RESET}.energy_mj": lambda t: 22_543_283_000 + 3e5 * t if t < SECONDS / 2 else 200_000 + 3e5 * t,
}


def square_j(t: float) -> float:
    whole, rest = divmod(t + 10, SQUARE_S)
    half = SQUARE_S / 2
    return 300.0 * SQUARE_S * whole + 500.0 * min(rest, half) + 100.0 * max(rest - half, 0.0)


@pytest.fixture(scope="module")
def nvml(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Seen, Seen]:
    """Two hosts of six boards at once: more would take above 1% of a slow core, and be polled less often than the cases want."""
    with ExitStack() as stack:
        recordings = []
        for values, laws in ((BY_POWER, POWER_LAWS), (BY_COUNTER, COUNTER_LAWS)):
            folder = tmp_path_factory.mktemp("scripted-nvml")
            fake = FakeNvml(library=nvml_library, state=folder / "state")
            fake.show(6, values)
            env = {**roots_env(make_roots(folder)), **fake.env(), "BENCH_PROBES": "nvidia"}
            recorder = stack.enter_context(Recorder(ChildProbeHost(env, deadline_s=30)))
            recordings.append((recorder, stack.enter_context(nvml_script(fake, laws))))
        first, second = (recorded(recorder, script) for recorder, script in recordings)
    return first, second


@pytest.fixture
def by_power(nvml: tuple[Seen, Seen]) -> Seen:
    return nvml[0]


@pytest.fixture
def by_counter(nvml: tuple[Seen, Seen]) -> Seen:
    return nvml[1]


def recorded(recorder: Recorder, script: Script) -> Seen:
    """From 1.5 s before the script's zero to `SECONDS` after it."""
    recorder.settle(30)
    recorder.rest(script.seconds_left() + SECONDS)
    telemetry = recorder.telemetry()
    assert telemetry.ends == ()
    zero_ns = script.zero_ns
    rest = Window(t0_ns=zero_ns - round(1.5e9), t1_ns=zero_ns)
    return Seen(telemetry=telemetry, window=Window(t0_ns=zero_ns, t1_ns=zero_ns + round(SECONDS * 1e9)), rest=rest)


def test_constant_power_is_its_product_with_time(by_power: Seen) -> None:
    """A board without a counter: equal readings are not thinned out."""
    assert by_power.joules(gpu(CONSTANT)) == pytest.approx(300 * SECONDS, rel=1e-6)
    assert by_power.device(gpu(CONSTANT)).method == "integral"
    assert set(by_power.codes(gpu(CONSTANT))) <= {"part_time_sensor"}  # on a machine too slow for ten polls a second


def test_a_step_of_power(by_power: Seen) -> None:
    assert by_power.joules(gpu(STEP)) == pytest.approx(300 * SECONDS, abs=400 * LATE_S)


def test_a_ramp(by_power: Seen) -> None:
    """A left sum would be a whole poll behind: 50 * 0.1 J on top of the fake's own delay."""
    truth_j = 50 * SECONDS + 50 * SECONDS**2
    assert by_power.joules(gpu(RAMP)) == pytest.approx(truth_j, abs=100 * SECONDS * LATE_S / 2)


def test_a_sensor_that_sees_one_phase_of_the_load_has_an_interval_that_covers_the_truth(by_power: Seen) -> None:
    """700 W for 25 ms and 200 W for 75 ms; the sensor always averages over a quiet part."""
    found = by_power.device(gpu(PHASE_LOCKED))
    assert by_power.joules(gpu(PHASE_LOCKED)) == pytest.approx(200 * SECONDS, rel=1e-6)
    assert by_power.codes(gpu(PHASE_LOCKED)) == ["part_time_sensor"]
    assert found.joules.low_j is not None
    assert found.joules.high_j is not None
    assert found.joules.low_j <= 325 * SECONDS <= found.joules.high_j


def test_a_counter_sees_all_of_a_square_wave(by_counter: Seen) -> None:
    found = by_counter.device(gpu(SQUARE))
    assert found.method == "counter"
    assert found.joules.energy_j == pytest.approx(300 * SECONDS, abs=500 * LATE_S)
    assert found.other_j == pytest.approx(300 * SECONDS, rel=0.1)


def test_a_counter_that_stands_still_gives_way_to_the_integral(by_counter: Seen) -> None:
    assert by_counter.joules(gpu(STUCK)) == pytest.approx(400 * SECONDS, rel=1e-6)
    assert "counter_stuck" in by_counter.codes(gpu(STUCK))
    assert by_counter.device(gpu(STUCK)).method == "integral"


def test_a_counter_that_falls_is_a_reset_and_no_energy(by_counter: Seen) -> None:
    found = by_counter.device(gpu(RESET))
    assert found.joules.energy_j is None
    assert by_counter.codes(gpu(RESET)) == ["counter_reset"]


def test_slices_take_their_parents_energy_once(by_counter: Seen) -> None:
    found = by_counter.device(gpu(MIG))
    assert by_counter.joules(gpu(MIG)) == pytest.approx(200 * SECONDS, abs=200 * LATE_S)
    assert len(found.device.covers) == 3
    assert not any(device.uid.startswith("MIG-") for device in by_counter.telemetry.devices)
    assert any("3 slices" in text for text in found.joules.warnings)


def test_ends_between_changes_of_the_counter_are_interpolated(by_counter: Seen) -> None:
    """A counter of 100 ms steps at 500 W: raw end points would scatter by 20.4 J in each of these windows."""
    ours, raw = [], []
    readings = [r for r in by_counter.telemetry.readings if r.uid == gpu(STEPPED) and r.energy_j is not None]
    for begin_s in np.arange(0.0, SECONDS - 2.6, 0.023):
        t0_ns = by_counter.window.t0_ns + round(begin_s * 1e9)
        window = Window(t0_ns=t0_ns, t1_ns=t0_ns + round(2.5e9))
        ours.append(by_counter.device(gpu(STEPPED), window).joules)
        first, last = (max(r.energy_j or 0.0 for r in readings if r.before_ns <= at) for at in (t0_ns, window.t1_ns))
        raw.append(last - first)
    found = np.array([joules.energy_j for joules in ours if joules.energy_j is not None])
    assert len(found) == len(ours)
    assert np.abs(found - 1250).max() < 500 * LATE_S
    assert float(np.std(raw - np.full(len(raw), 1250.0))) > float(np.std(found))
    covered = [j.low_j <= 1250 <= j.high_j for j in ours if j.low_j is not None and j.high_j is not None]
    assert np.mean(covered) >= 0.95


def test_a_window_shorter_than_the_counters_step_is_missing(by_counter: Seen) -> None:
    window = Window(t0_ns=by_counter.window.t0_ns + 10**9, t1_ns=by_counter.window.t0_ns + 10**9 + 40_000_000)
    found = by_counter.device(gpu(COARSE), window)
    assert found.joules.energy_j is None
    assert "below_sensor_resolution" in (found.joules.reason or "")


def test_grace_hopper_counts_the_module_apart(by_power: Seen) -> None:
    assert by_power.joules(gpu(GRACE)) == pytest.approx(300 * SECONDS, rel=1e-6)
    module = by_power.device(f"{gpu(GRACE)}/module")
    assert (module.device.scope, module.method) == ("module", "counter")
    assert module.joules.energy_j == pytest.approx(812 * SECONDS, abs=812 * LATE_S)
    power = by_power.device(gpu(GRACE)).device.power
    assert power is not None
    assert power.averaging_window_s == 0.02


def test_a_sum_with_a_missing_part_is_missing(by_counter: Seen) -> None:
    (boards,) = [s for s in recorded_scopes(by_counter.telemetry, by_counter.window) if s.scope == "accelerator"]
    assert boards.joules.energy_j is None
    assert "counter_reset" in (boards.joules.reason or "")


def test_gross_and_net_joules_per_token(by_power: Seen) -> None:
    """600 W over an idle of 120 W for 3000 tok/s: 0.2 J/token gross, 0.16 net."""
    board = next(device for device in by_power.telemetry.devices if device.uid == gpu(SERVING))
    readings = tuple(r for r in by_power.telemetry.readings if r.uid == board.uid)
    seen = replace(by_power.telemetry, devices=(board,), readings=readings, idle=by_power.rest, resident=by_power.rest)
    tokens = [(i / 3.0, 4) for i in range(round(3000 * SECONDS))]
    log = make_log(
        [Request(sent_ms=-1.0, chunks=tokens, usage=len(tokens), prompt=10, closed_ms=SECONDS * 1e3 - 0.1)], by_power.window.t0_ns
    )
    found = measure(make_case(), make_load(log, by_power.window), seen, {}, {}).metrics
    assert found["j_per_output_tok"].value == pytest.approx(0.2, rel=0.03)
    assert found["j_per_output_tok_net"].value == pytest.approx(0.16, rel=0.04)
    assert found["output_tok_per_s"].value == pytest.approx(3000, rel=0.001)
    for name, truth in (("j_per_output_tok", 0.2), ("j_per_output_tok_net", 0.16), ("tok_per_j", 5.0), ("power_mean_w", 600.0)):
        metric = found[name]
        assert metric.low is not None
        assert metric.high is not None
        assert metric.low <= truth <= metric.high, name


def test_polls_that_stop_for_a_second_leave_a_gap(nvml_library: Path, tmp_path: Path) -> None:
    fake = FakeNvml(library=nvml_library, state=tmp_path / "state")
    fake.show(1, {**H100, "0.power_mw": 300_000, "0.energy.ret": NOT_SUPPORTED, "0.arch": TURING, "0.name": "Tesla T4"})
    env = {**roots_env(make_roots(tmp_path)), **fake.env(), "BENCH_PROBES": "nvidia"}
    with Recorder(ChildProbeHost(env, deadline_s=30)) as recorder:
        recorder.settle(30)
        (stream,) = recorder.streams()
        assert isinstance(stream, ChildProbeStream)
        begin_ns = recorder.rest(1.0).t0_ns
        os.kill(stream.pid, signal.SIGSTOP)
        threading.Event().wait(1.0)
        os.kill(stream.pid, signal.SIGCONT)
        end_ns = recorder.rest(1.0).t1_ns
        seen = Seen(telemetry=recorder.telemetry(), window=Window(t0_ns=begin_ns, t1_ns=end_ns))
    found = seen.device(gpu(0))
    assert 0.5 < found.coverage < 0.8
    assert found.joules.energy_j is None
    assert seen.codes(gpu(0)) == ["power_coverage"]


# --- RAPL -------------------------------------------------------------------------------------------------------------

WRAPS, LOSES_WRAPS, NO_RANGE, FALLS, AMD_WRAPS, STEADY = range(6)
RANGES = {WRAPS: INTEL_RANGE_UJ, LOSES_WRAPS: 60_000_000, FALLS: INTEL_RANGE_UJ, AMD_WRAPS: AMD_RANGE_UJ, STEADY: INTEL_RANGE_UJ}


RAPL_LAWS = {
    WRAPS: lambda t: (INTEL_RANGE_UJ / 1e6 - 200.0 + 100.0 * t) % (INTEL_RANGE_UJ / 1e6),
    LOSES_WRAPS: lambda t: (100.0 * (t + LEAD_S)) % 60.0,
    NO_RANGE: lambda t: 9000.0 + 100.0 * t if t < SECONDS / 2 else 10.0 + 100.0 * t,
    FALLS: lambda t: 200_000.0 + 100.0 * t if t < SECONDS / 2 else 200.0 + 100.0 * t,
    AMD_WRAPS: lambda t: (AMD_RANGE_UJ / 1e6 - 800.0 + 400.0 * t) % (AMD_RANGE_UJ / 1e6),
    STEADY: lambda t: 5.0 + 120.0 * (t + LEAD_S),
}


@pytest.fixture(scope="module")
def rapl(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    roots = make_roots(tmp_path_factory.mktemp("scripted-rapl"))
    files = {f"intel-rapl/intel-rapl:{n}/name": f"package-{n}" for n in RAPL_LAWS}
    files |= {f"intel-rapl/intel-rapl:{n}/energy_uj": "1" for n in RAPL_LAWS}
    files |= {f"intel-rapl/intel-rapl:{n}/max_energy_range_uj": str(range_uj) for n, range_uj in RANGES.items()}
    powercap = write_powercap(roots, files)
    env = {**roots_env(roots), "BENCH_PROBES": "cpu"}
    with rapl_script(powercap, RAPL_LAWS) as script, Recorder(ChildProbeHost(env, deadline_s=30)) as recorder:
        return recorded(recorder, script)


@pytest.mark.parametrize(("package", "power_w"), [(WRAPS, 100.0), (AMD_WRAPS, 400.0)])
def test_a_wrap_between_polls_is_added_back(rapl: Seen, package: int, power_w: float) -> None:
    series = [r.energy_j for r in rapl.telemetry.readings if r.uid == f"rapl:package-{package}" and r.energy_j is not None]
    assert min(series) < 10_000 < max(series), "the counter has not wrapped"
    assert rapl.joules(f"rapl:package-{package}") == pytest.approx(power_w * SECONDS, abs=power_w * LATE_S)
    assert rapl.codes(f"rapl:package-{package}") == []


@pytest.mark.parametrize("package", [LOSES_WRAPS, NO_RANGE, FALLS])
def test_a_fall_that_may_be_anything_is_refused(rapl: Seen, package: int) -> None:
    found = rapl.device(f"rapl:package-{package}")
    assert found.joules.energy_j is None
    assert [fault.code for fault in found.faults] == ["counter_reset"]


def test_windows_of_one_recording_add_up(rapl: Seen) -> None:
    cut_ns = rapl.window.t0_ns + round(1.7e9)
    uid = f"rapl:package-{STEADY}"
    whole = rapl.joules(uid)
    parts = rapl.joules(uid, replace(rapl.window, t1_ns=cut_ns)) + rapl.joules(uid, replace(rapl.window, t0_ns=cut_ns))
    assert parts == pytest.approx(whole, rel=1e-9)
