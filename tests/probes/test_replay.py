"""Recorded readings on the present clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import codec
from bench.clock import FakeClock
from bench.ports import Probe
from bench.probes.replay import CannotReplay, ReplayProbe, recorded
from bench.records import DeviceInfo, Reading, SensorInfo, Telemetry
from bench.store.parquet import write_telemetry
from bench.testing.probes import ProbeConformance

S = 1_000_000_000
BOARD = DeviceInfo(
    uid="GPU-1",
    probe="nvidia",
    vendor="nvidia",
    name="NVIDIA H100",
    index=3,
    scope="accelerator",
    board="GPU-1",
    covers=("MIG-1",),
    memory_total_b=1000,
    power=SensorInfo(api="nvml", unit="mW", averaging_window_s=0.025, gain_error=0.05),
)


def readings(start_ns: int = 50 * S) -> tuple[Reading, ...]:
    """Ten seconds at 1 Hz: 100, 110, ... W."""
    return tuple(
        Reading(
            uid="GPU-1",
            before_ns=start_ns + i * S,
            after_ns=start_ns + i * S + 1000,
            power_w=100.0 + 10 * i,
            memory_used_b=500,
            throttle=("sw_power_cap",) if i else (),
        )
        for i in range(10)
    )


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(b"".join(codec.encode(reading) + b"\n" for reading in readings()))
    return path


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    write_telemetry(tmp_path, "trial-1", Telemetry(devices=(BOARD,), readings=readings()))
    (tmp_path / "trial.json").write_bytes(codec.encode({"devices": [BOARD]}))
    return tmp_path / "telemetry.parquet"


class TestReplayConformance(ProbeConformance):
    name = "replay"
    vendor_modules = ("duckdb",)

    @pytest.fixture
    def working(self, shard: Path) -> Probe:
        return ReplayProbe({"BENCH_REPLAY_FILE": str(shard)})

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return ReplayProbe({"BENCH_REPLAY_FILE": str(tmp_path / "none.parquet")})


def test_a_shard_is_what_it_was_and_marked_simulated(shard: Path) -> None:
    (device,) = ReplayProbe({"BENCH_REPLAY_FILE": str(shard)}).discover().devices
    assert (device.uid, device.probe, device.quality, device.scope) == ("replay:GPU-1", "replay", "simulated", "accelerator")
    assert (device.name, device.board, device.covers) == ("NVIDIA H100", "replay:GPU-1", ("replay:MIG-1",))
    assert device.power == SensorInfo(api="replay of nvml", unit="mW", averaging_window_s=0.025, gain_error=0.05)


def test_parquet_and_lines_hold_the_same(shard: Path, lines: Path) -> None:
    assert recorded(shard) == recorded(lines) == list(readings())


def test_stamps_move_to_the_present_and_keep_their_distances(lines: Path) -> None:
    clock = FakeClock(monotonic_ns=1000 * S)
    probe = ReplayProbe({"BENCH_REPLAY_FILE": str(lines)}, clock)
    probe.discover()
    clock.advance(0.5)
    first = probe.sample("replay:GPU-1")
    clock.advance(3.0)
    later = probe.sample("replay:GPU-1")
    assert (first.power_w, later.power_w) == (100.0, 130.0)
    assert (first.before_ns, first.after_ns) == (1000 * S, 1000 * S + 1000)
    assert later.before_ns - first.before_ns == 3 * S
    assert later.throttle == ("sw_power_cap",)


def test_between_two_readings_the_earlier_is_handed_over_again(lines: Path) -> None:
    """With its own stamps, so that it counts once and in its place."""
    clock = FakeClock(monotonic_ns=1000 * S)
    probe = ReplayProbe({"BENCH_REPLAY_FILE": str(lines)}, clock)
    probe.discover()
    clock.advance(2.1)
    first = probe.sample("replay:GPU-1")
    clock.advance(0.8)
    assert probe.sample("replay:GPU-1") == first


def test_at_its_end_it_stands_still(lines: Path) -> None:
    clock = FakeClock(monotonic_ns=1000 * S)
    probe = ReplayProbe({"BENCH_REPLAY_FILE": str(lines)}, clock)
    probe.discover()
    clock.advance(1000)
    reading = probe.sample("replay:GPU-1")
    assert (reading.power_w, reading.before_ns) == (190.0, 1009 * S)


def test_without_a_trial_beside_it_the_device_is_only_recorded(lines: Path) -> None:
    (device,) = ReplayProbe({"BENCH_REPLAY_FILE": str(lines)}).discover().devices
    assert device.name == "recorded GPU-1"
    assert device.power is not None
    assert device.energy is None


@pytest.mark.parametrize("data", [b"", b"not json\n", b'{"power_w": 1}\n', b'{"uid": 5}\n'])
def test_what_is_no_recording_is_a_problem(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "telemetry.jsonl"
    path.write_bytes(data)
    with pytest.raises(CannotReplay):
        recorded(path)
    assert len(ReplayProbe({"BENCH_REPLAY_FILE": str(path)}).discover().problems) == 1


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(CannotReplay, match="can't be read as Parquet"):
        recorded(path)
