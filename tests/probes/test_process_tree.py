from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.clock import FakeClock
from bench.probes.cpu import CpuProbe
from bench.probes.presence import Roots
from bench.probes.process_tree import CpuTimes, ProcessTree, Use, cpu_spent_s
from tests.probes.polling import until

SPIN = "import time\nend = time.process_time() + {s}\nwhile time.process_time() < end: pass\n"
PARENT_OF_SPINNERS = """
import subprocess, sys
print("ready", flush=True)
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", line.encode().decode("unicode_escape")])
    print("done", flush=True)
"""
DOUBLE_FORK = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        held = bytearray(64 << 20)
        held[::4096] = b"x" * len(held[::4096])
        print(os.getpid(), flush=True)
        time.sleep(600)
    time.sleep(float(sys.argv[1]))
    os._exit(0)
time.sleep(600)
"""


def times(own_s: float, waited_s: float = 0.0) -> CpuTimes:
    return CpuTimes(own_s=own_s, waited_s=waited_s)


class TestCpuSpent:
    def test_growth_of_each(self) -> None:
        assert cpu_spent_s({1: times(1), 2: times(5)}, {1: times(2), 2: times(8)}) == pytest.approx(4)

    def test_a_newcomer_counts_whole(self) -> None:
        assert cpu_spent_s({1: times(1)}, {1: times(1), 2: times(3)}) == pytest.approx(3)

    def test_one_that_ended_counts_only_what_is_new(self) -> None:
        """Its parent's waited seconds hold its whole life, 7 s, of which 5 were counted before."""
        assert cpu_spent_s({1: times(1), 2: times(5)}, {1: times(1, 7)}) == pytest.approx(2)

    def test_born_and_ended_in_between(self) -> None:
        assert cpu_spent_s({1: times(1)}, {1: times(1, 0.5)}) == pytest.approx(0.5)

    def test_nobody_waited(self) -> None:
        assert cpu_spent_s({1: times(1), 2: times(500)}, {1: times(2)}) == pytest.approx(1)

    def test_nothing_left(self) -> None:
        assert cpu_spent_s({1: times(5)}, {}) == 0

    @given(
        st.dictionaries(st.integers(1, 5), st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=5),
        st.dictionaries(st.integers(1, 5), st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=5),
    )
    def test_never_negative(self, before: dict[int, tuple[float, float]], after: dict[int, tuple[float, float]]) -> None:
        spent_s = cpu_spent_s({p: times(*t) for p, t in before.items()}, {p: times(*t) for p, t in after.items()})
        assert spent_s >= 0

    @given(
        st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=6),
        st.sets(st.integers(1, 5)),
    )
    def test_splitting_the_time_adds_up(self, spent: list[tuple[float, float, float]], ending: set[int]) -> None:
        """Two looks count what one long look counts, whoever of the root's children ends in the second half."""
        start = {pid: times(a) for pid, (a, _, _) in enumerate(spent)}
        middle = {pid: times(a + b) for pid, (a, b, _) in enumerate(spent)}
        gone = {pid for pid in ending if 0 < pid < len(spent)}
        waited_s = sum(sum(spent[pid]) for pid in gone)
        end = {pid: times(a + b + c, waited_s if pid == 0 else 0) for pid, (a, b, c) in enumerate(spent) if pid not in gone}
        assert cpu_spent_s(start, middle) + cpu_spent_s(middle, end) == pytest.approx(cpu_spent_s(start, end), abs=1e-6)


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT_OF_SPINNERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()


def _let_child_spin(parent: subprocess.Popen[str], seconds: float) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(SPIN.format(s=seconds).encode("unicode_escape").decode() + "\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "done\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="macOS does not tell the CPU time of children waited for")
def test_a_child_that_came_and_went_between_looks_is_counted(parent: subprocess.Popen[str]) -> None:
    clock = FakeClock()
    tree = ProcessTree(parent.pid, clock)
    _let_child_spin(parent, 0.3)
    clock.advance(2.0)
    use = tree.sample()
    assert use.utilisation is not None
    spent_s = use.utilisation * 2.0 * (os.cpu_count() or 1)
    assert spent_s >= 0.3


def test_use_is_told_only_when_the_tree_was_looked_through(parent: subprocess.Popen[str]) -> None:
    clock = FakeClock()
    tree = ProcessTree(parent.pid, clock)
    clock.advance(0.1)
    early = tree.sample()
    assert early.utilisation is None
    assert early.memory_b is not None
    assert early.memory_b > 1 << 20
    clock.advance(1.0)
    assert tree.sample().utilisation is not None


def test_an_idle_tree_is_a_measured_zero(parent: subprocess.Popen[str]) -> None:
    clock = FakeClock()
    tree = ProcessTree(parent.pid, clock)
    clock.advance(1000.0)
    assert tree.sample().utilisation == pytest.approx(0.0, abs=1e-3)


def test_an_ended_tree_is_missing_not_zero(parent: subprocess.Popen[str]) -> None:
    clock = FakeClock()
    tree = ProcessTree(parent.pid, clock)
    parent.kill()
    parent.wait()
    clock.advance(2.0)
    assert tree.sample() == Use(memory_b=None, utilisation=None)


def test_a_pid_that_never_was(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.wait()
    assert ProcessTree(parent.pid).sample() == Use(memory_b=None, utilisation=None)


def test_a_double_fork_stays_in_the_tree() -> None:
    """The grandchild is adopted by init while we watch; its 64 MiB still count."""
    process = subprocess.Popen([sys.executable, "-c", DOUBLE_FORK, "600"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    try:
        clock = FakeClock()
        tree = ProcessTree(process.pid, clock)
        import psutil

        middle = psutil.Process(grandchild).ppid()
        os.kill(middle, signal.SIGKILL)
        until(lambda: psutil.Process(grandchild).ppid() != middle)
        clock.advance(2.0)
        memory_b = tree.sample().memory_b
        assert memory_b is not None
        assert memory_b > 64 << 20
    finally:
        os.kill(grandchild, signal.SIGKILL)
        process.kill()
        process.wait()


def test_a_watched_tree_is_a_device_of_its_own(roots: Roots) -> None:
    probe = CpuProbe(roots)
    probe.discover()
    (device,) = probe.watch([os.getpid()]).devices
    assert (device.scope, device.power, device.energy) == ("process", None, None)
    assert "RSS" in device.name
    reading = probe.sample(device.uid)
    assert reading.memory_used_b is not None
    assert device.memory_total_b is not None
    assert 1 << 20 < reading.memory_used_b < device.memory_total_b
