"""Real children, under the real binding where a vendor library has to misbehave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bench import codec
from bench.ports import ProbeStream
from bench.probes import stream as stream_module
from bench.probes import wire
from bench.probes.host import ChildProbeHost
from bench.probes.presence import Roots
from bench.probes.stream import ChildProbeStream
from bench.records import Reading
from tests.probes.fake_nvml import GPU_0, GPU_1, FakeNvml
from tests.probes.polling import until
from tests.probes.trees import TWO_SOCKETS, add_nvidia_card, roots_env, write_powercap

PERIOD_S = 0.05
Open = Callable[..., ProbeStream]


@pytest.fixture
def open_probe(roots: Roots) -> Iterator[Open]:
    opened: list[ProbeStream] = []

    def open_probe(name: str, extra: dict[str, str] | None = None, deadline_s: float = 30.0) -> ProbeStream:
        host = ChildProbeHost({**roots_env(roots), **(extra or {})}, deadline_s=deadline_s)
        opened.append(host.open(name, PERIOD_S))
        return opened[-1]

    yield open_probe
    for stream in opened:
        stream.close()


def pid_of(stream: ProbeStream) -> int:
    assert isinstance(stream, ChildProbeStream)
    return stream.pid


def collect(stream: ProbeStream, uid: str, count: int) -> list[Reading]:
    got: list[Reading] = []

    def enough() -> bool:
        got.extend(r for r in stream.drain() if r.uid == uid)
        assert stream.ended() is None
        return len(got) >= count

    until(enough)
    return got


class TestLiving:
    def test_rapl_through_a_child(self, open_probe: Open, roots: Roots) -> None:
        write_powercap(roots, TWO_SOCKETS)
        stream = open_probe("cpu")
        assert len(stream.discovery().devices) == 4
        readings = collect(stream, "rapl:package-1", 5)
        assert [r.energy_j for r in readings] == pytest.approx([1122.334455] * len(readings))
        stamps = [r.before_ns for r in readings]
        assert stamps == sorted(set(stamps))

    def test_nvml_through_a_child(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        stream = open_probe("nvidia", fake_nvml.env())
        assert [d.uid for d in stream.discovery().devices] == [GPU_0, GPU_1]
        assert collect(stream, GPU_0, 3)[0].power_w == pytest.approx(655.84)

    def test_what_was_learnt_about_sensors_arrives(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        fake_nvml.change(all__energy_step_ms=20)
        stream = open_probe("nvidia", fake_nvml.env())

        def timed() -> bool:
            sensors = [d.energy for d in stream.discovery().devices]
            return all(s is not None and s.update_period_s and s.call_cost_s for s in sensors)

        until(timed)
        for device in stream.discovery().devices:
            assert device.energy is not None
            assert device.energy.update_period_s is not None
            assert 0.01 < device.energy.update_period_s < 0.1

    def test_watch_returns_with_the_tree_in_the_discovery(self, open_probe: Open) -> None:
        stream = open_probe("cpu")
        stream.discovery()
        stream.watch([os.getpid()])
        (device,) = stream.discovery().devices
        assert device.uid == f"process:{os.getpid()}"
        assert (collect(stream, device.uid, 1)[0].memory_used_b or 0) > 1 << 20

    def test_a_lost_board_is_a_problem_and_the_stream_lives(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        stream = open_probe("nvidia", fake_nvml.env())
        collect(stream, GPU_0, 2)
        fake_nvml.change(b0__energy__ret=15, b0__instant__ret=15)
        until(lambda: stream.discovery().problems)
        (problem,) = stream.discovery().problems
        assert (problem.subject, "GPU is lost" in problem.problem) == (GPU_0, True)
        stream.drain()
        assert [reading.power_w for reading in collect(stream, GPU_1, 3)[:3]] == pytest.approx([70.12] * 3)

    def test_it_settles_once_its_sensors_are_timed(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        stream = open_probe("nvidia", fake_nvml.env())
        assert not stream.settled()
        until(stream.settled)
        sensors = [device.power for device in stream.discovery().devices]
        assert all(sensor is not None and sensor.call_cost_s is not None for sensor in sensors)

    def test_it_outlives_the_thread_that_opened_it(self, open_probe: Open) -> None:
        """Linux kills a child with the thread that started it, where asked to: so it is asked only from the main thread."""
        opened: list[ProbeStream] = []

        def open_and_wait() -> None:
            opened.append(open_probe("cpu"))
            opened[0].discovery()

        thread = threading.Thread(target=open_and_wait)
        thread.start()
        thread.join()
        stream = opened[0]
        stream.watch([os.getpid()])
        assert all((reading.memory_used_b or 0) > 1 << 20 for reading in collect(stream, f"process:{os.getpid()}", 3))

    def test_ctrl_c_does_not_reach_it(self, open_probe: Open) -> None:
        stream = open_probe("cpu")
        assert os.getsid(pid_of(stream)) != os.getsid(0)

    def test_a_folder_with_our_names_does_not_shadow_us(
        self, open_probe: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "bench.py").write_text("raise SystemExit('not this one')")
        monkeypatch.chdir(tmp_path)
        stream = open_probe("cpu")
        assert [p.subject for p in stream.discovery().problems] == ["RAPL"]


class TestMisbehaving:
    def test_prints_to_stdout_do_no_harm(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        fake_nvml.change(all__init__print="Welcome to NVML!", all__energy__print='{"readings": []}')
        stream = open_probe("nvidia", fake_nvml.env())
        assert len(stream.discovery().devices) == 2
        assert [reading.power_w for reading in collect(stream, GPU_0, 5)[:5]] == pytest.approx([655.84] * 5)

    def test_a_flood_on_stderr_does_no_harm(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        fake_nvml.change(b0__temperature__flood=200_000)
        stream = open_probe("nvidia", fake_nvml.env())
        assert [reading.power_w for reading in collect(stream, GPU_1, 5)[:5]] == pytest.approx([70.12] * 5)
        assert isinstance(stream, ChildProbeStream)
        assert len(stream._stderr) <= stream_module._KEPT_STDERR_B

    def test_a_crash_ends_the_stream_with_its_signal(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        stream = open_probe("nvidia", fake_nvml.env())
        collect(stream, GPU_0, 2)
        fake_nvml.change(b1__clock__print="about to go", b1__clock__crash=1)
        reason = until(stream.ended)
        assert "SIGSEGV" in reason
        assert "about to go" in reason
        assert len(stream.discovery().devices) == 2
        assert any(reason in p.problem for p in stream.discovery().problems)

    def test_a_crash_in_discovery_is_a_problem(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        fake_nvml.change(all__init__crash=1)
        found = open_probe("nvidia", fake_nvml.env()).discovery()
        assert found.devices == ()
        assert "SIGSEGV" in found.problems[0].problem

    def test_a_hanging_call_ends_the_stream(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        stream = open_probe("nvidia", fake_nvml.env())
        collect(stream, GPU_0, 2)
        fake_nvml.change(b0__utilisation__hang_s=600)
        assert "hangs" in until(stream.ended)
        until(lambda: not _alive(pid_of(stream)))

    def test_a_hang_in_discovery_does_not_answer(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        fake_nvml.change(all__init__hang_s=600)
        stream = open_probe("nvidia", fake_nvml.env(), deadline_s=1.0)
        (problem,) = stream.discovery().problems
        assert "did not answer for 1.0 s" in problem.problem
        until(lambda: not _alive(pid_of(stream)))

    def test_an_unknown_probe_is_an_ended_stream(self, open_probe: Open) -> None:
        stream = open_probe("nvdia")
        assert "Did you mean 'nvidia'?" in until(stream.ended)
        assert "unknown probe" in stream.discovery().problems[0].problem

    def test_a_killed_child_says_so(self, open_probe: Open) -> None:
        stream = open_probe("cpu")
        stream.discovery()
        os.kill(pid_of(stream), signal.SIGKILL)
        assert "SIGKILL" in until(stream.ended)
        stream.watch([os.getpid()])

    def test_no_interpreter_is_an_ended_stream(self, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        stream = ChildProbeHost(roots_env(roots)).open("cpu", PERIOD_S)
        assert "could not be started" in (stream.ended() or "")
        assert stream.drain() == []
        assert stream.discovery().problems
        stream.close()


class TestClosing:
    def test_a_healthy_child_ends_at_once_and_leaves_no_reason(self, open_probe: Open) -> None:
        stream = open_probe("cpu")
        stream.discovery()
        stream.close()
        stream.close()
        assert stream.ended() is None
        assert not _alive(pid_of(stream))

    def test_a_hung_child_is_ended_too(self, open_probe: Open, fake_nvml: FakeNvml) -> None:
        stream = open_probe("nvidia", fake_nvml.env())
        collect(stream, GPU_0, 1)
        fake_nvml.change(b0__utilisation__hang_s=600)
        stream.close()
        assert not _alive(pid_of(stream))

    def test_one_that_ignores_everything_is_left(self) -> None:
        """Stuck in the kernel: not even SIGKILL ends it. Stood for by a kill that does nothing."""
        deaf = [sys.executable, "-c", "import time; time.sleep(600)"]
        stream = ChildProbeStream("deaf", deaf, dict(os.environ), PERIOD_S, deadline_s=60.0, kill=lambda pid, number: None)
        try:
            closer = threading.Thread(target=stream.close)
            closer.start()
            closer.join(10.0)
            assert not closer.is_alive()
            assert _alive(pid_of(stream))
        finally:
            os.kill(pid_of(stream), signal.SIGKILL)
            stream._process.wait()

    @pytest.mark.parametrize("state", ["sampling", "hung", "stopped"])
    def test_kill_9_of_the_harness_leaves_no_child(self, fake_nvml: FakeNvml, roots: Roots, state: str) -> None:
        """`stopped` can't run any code of its own: only the kernel's parent-death signal ends it (Linux)."""
        if state == "hung":
            fake_nvml.change(all__init__hang_s=600)
        code = (
            "import sys, threading\n"
            "from bench.probes.host import ChildProbeHost\n"
            "stream = ChildProbeHost().open('nvidia', 0.05)\n"
            "stream.discovery() if sys.argv[1] != 'hung' else None\n"
            "print(stream.pid, flush=True)\n"
            "threading.Event().wait()\n"
        )
        env = {**os.environ, **roots_env(roots), **fake_nvml.env()}
        harness = subprocess.Popen([sys.executable, "-c", code, state], stdout=subprocess.PIPE, text=True, env=env)
        assert harness.stdout is not None
        child = int(harness.stdout.readline())
        assert _alive(child)
        if state == "stopped":
            os.kill(child, signal.SIGSTOP)
        harness.kill()
        harness.wait()
        try:
            until(lambda: not _alive(child))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def test_kill_9_is_noticed_while_a_stranger_holds_our_pipe(self, fake_nvml: FakeNvml, roots: Roots) -> None:
        """A hung child whose end of input never comes sees that it has another parent. Opened in a thread: no signal either."""
        fake_nvml.change(all__init__hang_s=600)
        code = (
            "import subprocess, threading\n"
            "from bench.probes.host import ChildProbeHost\n"
            "def work():\n"
            "    stream = ChildProbeHost().open('nvidia', 0.05)\n"
            "    held = stream._process.stdin.fileno()\n"
            "    stranger = subprocess.Popen(['sleep', '600'], pass_fds=[held], stdout=subprocess.DEVNULL)\n"
            "    print(stream.pid, stranger.pid, flush=True)\n"
            "    threading.Event().wait()\n"
            "threading.Thread(target=work).start()\n"
        )
        env = {**os.environ, **roots_env(roots), **fake_nvml.env()}
        harness = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
        assert harness.stdout is not None
        child, stranger = map(int, harness.stdout.readline().split())
        try:
            harness.kill()
            harness.wait()
            until(lambda: not _alive(child))
            assert _alive(stranger)
        finally:
            os.kill(stranger, signal.SIGKILL)


class TestLines:
    def test_the_newest_readings_are_kept_when_nobody_drains(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream_module, "KEPT_READINGS", 100)
        readings = tuple(Reading(uid="a", before_ns=k, after_ns=k) for k in range(1000))
        stream = _talking(tmp_path, [wire.Line(readings=readings)])
        until(stream.ended)
        assert [r.before_ns for r in stream.drain()] == list(range(900, 1000))
        assert stream.drain() == []
        stream.close()

    @pytest.mark.parametrize("noise", [b"hello\n", b'{"readings": 7}\n', b"\xff\xfe\n"])
    def test_a_line_that_is_not_ours_ends_the_stream(self, tmp_path: Path, noise: bytes) -> None:
        stream = _talking(tmp_path, [], noise)
        assert "not ours" in until(stream.ended)
        stream.close()

    def test_fatal_is_the_reason(self, tmp_path: Path) -> None:
        stream = _talking(tmp_path, [wire.Line(fatal="OSError: libfoo.so")])
        assert "libfoo.so" in until(stream.ended)
        stream.close()


def _talking(folder: Path, lines: list[wire.Line], raw: bytes = b"") -> ChildProbeStream:
    said = folder / "said"
    said.write_bytes(b"".join(codec.encode(line) + b"\n" for line in lines) + raw)
    return ChildProbeStream("talking", ["cat", str(said)], dict(os.environ), PERIOD_S)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class TestNames:
    def _names(self, roots: Roots, monkeypatch: pytest.MonkeyPatch, **env: str) -> tuple[str, ...]:
        monkeypatch.setattr("bench.probes.presence._LIBRARY_FOLDERS", ())
        return ChildProbeHost({**roots_env(roots), "BENCH_PROBES": "", "LD_LIBRARY_PATH": "", **env}).names()

    def test_cpu_is_always_worth_opening(self, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self._names(roots, monkeypatch) == ("cpu",)

    def test_a_card_without_any_driver_is_a_sign(self, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
        add_nvidia_card(roots)
        assert self._names(roots, monkeypatch) == ("cpu", "nvidia")

    @pytest.mark.parametrize("sign", ["dev/nvidia0", "dev/nvidiactl", "proc/driver/nvidia/version"])
    def test_nodes_and_driver_are_signs(self, roots: Roots, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
        path = roots.dev.parent / sign
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        assert "nvidia" in self._names(roots, monkeypatch)

    def test_the_sound_chip_of_a_card_is_no_sign(self, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
        add_nvidia_card(roots)
        (roots.sysfs / "bus/pci/devices/0000:18:00.0/class").write_text("0x040300\n")
        assert self._names(roots, monkeypatch) == ("cpu",)

    def test_the_library_alone_is_a_sign(self, roots: Roots, monkeypatch: pytest.MonkeyPatch, nvml_library: Path) -> None:
        assert self._names(roots, monkeypatch, LD_LIBRARY_PATH=str(nvml_library.parent)) == ("cpu", "nvidia")

    def test_the_environment_can_force_them(self, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self._names(roots, monkeypatch, BENCH_PROBES=" nvidia, cpu,") == ("nvidia", "cpu")
