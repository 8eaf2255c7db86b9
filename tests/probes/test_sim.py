"""The simulated device: its law against sums done here, and the file it reads."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.clock import FakeClock
from bench.errors import ProbeError, UsageError
from bench.ports import Probe
from bench.probes.sim import MAGIC, UID, SimProbe, law_of
from bench.probes.sim_law import Emitted, Law, counter_j, energy_j, power_w
from bench.testing.probes import ProbeConformance

S = 1_000_000_000


def emission(path: Path, rows: list[tuple[int, int]], start_ns: int = 1) -> None:
    """An emission file as the mock engine leaves it."""
    path.write_bytes(MAGIC + struct.pack("<q", start_ns) + b"".join(struct.pack("<qq", *row) for row in rows))


def append(path: Path, rows: list[tuple[int, int]], *, torn: bool = False) -> None:
    data = b"".join(struct.pack("<qq", *row) for row in rows)
    with path.open("ab") as file:
        file.write(data[:-5] if torn else data)


def made(path: Path, clock: FakeClock, **law: str) -> SimProbe:
    env = {"BENCH_SIM_EMISSION": str(path), "BENCH_SIM_IDLE_W": "50", "BENCH_SIM_J_PER_TOKEN": "0.5", "BENCH_SIM_UPDATE_MS": "0"}
    probe = SimProbe(env | {f"BENCH_SIM_{name}": text for name, text in law.items()}, clock)
    probe.discover()
    return probe


class TestSimConformance(ProbeConformance):
    name = "sim"

    @pytest.fixture
    def working(self, tmp_path: Path) -> Probe:
        emission(tmp_path / "emission", [(1, 5), (2, 0)])
        return SimProbe({"BENCH_SIM_EMISSION": str(tmp_path / "emission")})

    @pytest.fixture
    def absent(self, tmp_path: Path) -> Probe:
        return SimProbe({})


def test_it_says_that_it_is_simulated_and_by_which_law(tmp_path: Path) -> None:
    (device,) = made(tmp_path / "none", FakeClock()).discover().devices
    assert (device.quality, device.scope) == ("simulated", "accelerator")
    assert device.power is not None
    assert device.energy is not None
    assert device.power.api == device.energy.api == "simulated: P = 50 W + 0.5 J/token"


def test_without_an_engine_it_idles(tmp_path: Path) -> None:
    clock = FakeClock()
    probe = made(tmp_path / "none", clock)
    first = probe.sample(UID)
    clock.advance(10)
    later = probe.sample(UID)
    assert (first.power_w, later.power_w) == (50.0, 50.0)
    assert later.energy_j is not None
    assert first.energy_j is not None
    assert later.energy_j - first.energy_j == pytest.approx(500.0)


def test_it_is_read_no_later_than_the_last_moment_accounted_for(tmp_path: Path) -> None:
    clock = FakeClock(monotonic_ns=100 * S)
    probe = made(tmp_path / "e", clock)
    clock.advance(10)
    emission(tmp_path / "e", [(105 * S, 40), (109_900_000_000, 60), (109_940_000_000, 0)])
    reading = probe.sample(UID)
    assert reading.before_ns == reading.after_ns == 109_940_000_000
    assert reading.energy_j == pytest.approx(50 * 9.94 + 0.5 * 100)
    assert reading.power_w == pytest.approx(50 + 0.5 * 60 / 0.1)
    assert (reading.memory_used_b, reading.utilisation) == (None, None)  # those columns have no simulated twin


def test_polls_and_not_the_engines_writes_say_when_it_is_read(tmp_path: Path) -> None:
    """An engine that writes right after each burst would always be seen at its busiest."""
    clock = FakeClock(monotonic_ns=100 * S)
    probe = made(tmp_path / "e", clock, J_PER_TOKEN="1", IDLE_W="0")
    rng, step_ns, sent_ns = random.Random(3), 13_000_000, 100 * S
    emission(tmp_path / "e", [])
    watts = []
    for _ in range(500):
        clock.advance(0.09 + 0.02 * rng.random())
        while sent_ns + step_ns + 10_000 <= clock.monotonic_ns():
            sent_ns += step_ns
            append(tmp_path / "e", [(sent_ns, 8), (sent_ns + 10_000, 0)])  # each burst is accounted for at once
        watts.append(probe.sample(UID).power_w or 0.0)
    assert sum(watts[5:]) / len(watts[5:]) == pytest.approx(8 / 0.013, rel=0.01)  # at the engine's moments: 640 W


def test_tokens_whose_stamp_is_not_accounted_for_wait(tmp_path: Path) -> None:
    """A reading must not hold tokens of later than its own stamp."""
    clock = FakeClock(monotonic_ns=100 * S)
    probe = made(tmp_path / "e", clock)
    clock.advance(1)
    emission(tmp_path / "e", [(100_500_000_000, 10), (100_600_000_000, 0), (100_700_000_000, 90)])
    assert probe.sample(UID).energy_j == pytest.approx(50 * 0.6 + 0.5 * 10)
    append(tmp_path / "e", [(100_800_000_000, 0)])
    assert probe.sample(UID).energy_j == pytest.approx(50 * 0.8 + 0.5 * 100)


def test_a_torn_record_is_read_when_it_is_whole(tmp_path: Path) -> None:
    clock = FakeClock(monotonic_ns=100 * S)
    probe = made(tmp_path / "e", clock)
    clock.advance(0.5)
    emission(tmp_path / "e", [(100_100_000_000, 10), (100_200_000_000, 0)])
    append(tmp_path / "e", [(100_300_000_000, 7), (100_400_000_000, 0)], torn=True)
    assert probe.sample(UID).energy_j == pytest.approx(50 * 0.2 + 0.5 * 10)
    with (tmp_path / "e").open("ab") as file:
        file.write(struct.pack("<qq", 100_400_000_000, 0)[-5:])
    assert probe.sample(UID).energy_j == pytest.approx(50 * 0.4 + 0.5 * 17)


def test_an_engine_that_is_gone_leaves_the_device_idle(tmp_path: Path) -> None:
    clock = FakeClock(monotonic_ns=100 * S)
    probe = made(tmp_path / "e", clock)
    clock.advance(1)
    emission(tmp_path / "e", [(100_900_000_000, 10), (100_950_000_000, 0)])
    probe.sample(UID)
    clock.advance(5)
    reading = probe.sample(UID)
    assert (reading.power_w, reading.before_ns) == (50.0, 106 * S)
    assert reading.energy_j == pytest.approx(50 * 6 + 0.5 * 10)


def test_the_next_engines_file_goes_on_counting(tmp_path: Path) -> None:
    """It may be as long as the one before: its beginning tells them apart."""
    clock = FakeClock(monotonic_ns=100 * S)
    probe = made(tmp_path / "e", clock)
    clock.advance(1)
    emission(tmp_path / "e", [(100_900_000_000, 10), (100_950_000_000, 0)], start_ns=1)
    probe.sample(UID)
    clock.advance(1)
    emission(tmp_path / "e", [(101_900_000_000, 30), (101_950_000_000, 0)], start_ns=2)
    assert probe.sample(UID).energy_j == pytest.approx(50 * 1.95 + 0.5 * 40)


@pytest.mark.parametrize("data", [b"", b"tjemi", b"not an emission file at all, but long enough", MAGIC])
def test_a_file_that_is_none_is_an_idle_device(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "e").write_bytes(data)
    assert made(tmp_path / "e", FakeClock()).sample(UID).power_w == 50.0


def test_counter_and_power_can_each_be_left_out(tmp_path: Path) -> None:
    clock = FakeClock()
    without = made(tmp_path / "e", clock, COUNTER="off")
    assert without.discover().devices[0].energy is None
    assert without.sample(UID).energy_j is None
    only = made(tmp_path / "e", clock, POWER="off")
    assert only.discover().devices[0].power_reason == "BENCH_SIM_POWER is off"
    assert only.sample(UID).power_w is None


def test_noise_has_its_own_seed(tmp_path: Path) -> None:
    def watts(seed: str) -> list[float | None]:
        probe = made(tmp_path / "e", FakeClock(), NOISE="0.1", SEED=seed)
        return [probe.sample(UID).power_w for _ in range(5)]

    assert watts("1") == watts("1") != watts("2")
    assert len(set(watts("1"))) == 5


@pytest.mark.parametrize(
    ("name", "text"), [("IDLE_W", "-1"), ("IDLE_W", "hot"), ("NOISE", "2"), ("J_PER_TOKEN", "nan"), ("UPDATE_MS", "1e9")]
)
def test_a_law_that_is_none_is_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"BENCH_SIM_{name}"):
        law_of({f"BENCH_SIM_{name}": text})


def test_a_switch_is_on_or_off(tmp_path: Path) -> None:
    probe = SimProbe({"BENCH_SIM_EMISSION": str(tmp_path / "e"), "BENCH_SIM_COUNTER": "maybe"})
    with pytest.raises(UsageError, match="neither on nor off"):
        probe.discover()


def test_before_discovery_there_is_no_device() -> None:
    with pytest.raises(ProbeError):
        SimProbe({}).sample(UID)


def test_the_counter_moves_at_its_updates_only() -> None:
    law, emitted = Law(idle_w=100.0, j_per_token=0.0, update_s=0.1), Emitted()
    shown = [counter_j(law, emitted, 0, at_ns) for at_ns in (0, 99_999_999, 100_000_000, 150_000_000, 200_000_000)]
    assert shown == pytest.approx([0.0, 0.0, 10.0, 10.0, 20.0])


@given(st.lists(st.tuples(st.integers(0, 4 * S), st.integers(1, 50)), max_size=200), st.integers(0, 4 * S), st.integers(0, 4 * S))
def test_energy_is_idle_and_tokens_and_windows_add_up(rows: list[tuple[int, int]], a: int, b: int) -> None:
    law, emitted = Law(idle_w=30.0, j_per_token=0.2), Emitted()
    for row in sorted(rows):
        emitted.add(*row)
    low, high = sorted((a, b))
    between = energy_j(law, emitted, 0, high) - energy_j(law, emitted, 0, low)
    tokens = sum(count for stamp, count in rows if low < stamp <= high)
    assert between == pytest.approx(30.0 * (high - low) / S + 0.2 * tokens, abs=1e-9)


def test_power_integrates_to_energy() -> None:
    """Read at every averaging window's end, watts times seconds are the joules."""
    rng = random.Random(7)
    law, emitted = Law(idle_w=30.0, j_per_token=0.2, averaging_s=0.1), Emitted()
    for stamp in sorted(rng.randrange(3 * S) for _ in range(2000)):
        emitted.add(stamp, 1)
    ends = range(S // 10, 3 * S + 1, S // 10)
    joules = sum(power_w(law, emitted, at_ns) * 0.1 for at_ns in ends)
    assert joules == pytest.approx(energy_j(law, emitted, 0, 3 * S))


def test_what_is_long_past_is_forgotten() -> None:
    emitted = Emitted(kept_s=1.0)
    for second in range(1000):
        emitted.add(second * S, 3)
    assert emitted.total == 3000
    assert len(emitted._stamps_ns) < 10
    assert emitted.until(998 * S) == 2997
