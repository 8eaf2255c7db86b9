"""The process a probe lives in: `python -m bench.probes.child NAME --period S`.

It writes `wire.Line`s to what was its stdout, discovery first, then one line a tick, and takes `watch PID...`, `raw` and
`close` on stdin. A vendor library may print, hang or crash here without harm to the run. It ends when stdin closes or its
parent dies.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import resource
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench import codec, plugins
from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery, Probe
from bench.probes import wire
from bench.probes.rate import Schedule, poll_period_s
from bench.probes.sensor_timing import BURST_S, POLL_SPACING_S, SensorTiming, fastest_update_s
from bench.records import DeviceInfo, ProbeProblem, Reading
from bench.units import NS_PER_S

WHOLE_EVERY_S = 0.5
"""Memory, temperature, limits and the like are read this often at most: power and energy at each tick."""
_POLL_REST = 4
"""Timing the sensors rests this many times as long as it polls: a slow driver must not be kept busy in the idle window."""
_PARENT_CHECK_S = 1.0
_CLOSE_GRACE_S = 0.5

Send = Callable[[wire.Line], None]
Next = Callable[[float], str | None]
"""Waits up to so many seconds for a command; None when none came."""


@dataclass(slots=True)
class Known:
    """What the child knows of its devices: sent whole whenever it changes."""

    devices: dict[str, DeviceInfo] = field(default_factory=dict)
    problems: list[ProbeProblem] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    watched: int = 0

    def add(self, found: Discovery) -> None:
        self.devices.update({d.uid: d for d in found.devices})
        self.problems.extend(p for p in found.problems if p not in self.problems)

    def sampled(self) -> tuple[str, ...]:
        """Devices that have something to read: a RAPL domain nobody may read is listed, not polled."""
        rapl = ("cpu_package", "dram")
        return tuple(d.uid for d in self.devices.values() if not (d.scope in rapl and d.power is None and d.energy is None))

    def line(self) -> wire.Line:
        found = Discovery(devices=tuple(self.devices.values()), problems=tuple(self.problems))
        return wire.Line(discovery=found, watched=self.watched)


class Child:
    """Discovers, then samples until told to stop. Time, jitter, input and output come in."""

    def __init__(
        self,
        probe: Probe,
        period_s: float,
        *,
        send: Send,
        next_command: Next,
        clock: Clock,
        rng: random.Random,
        cpu_s: Callable[[], float],
    ) -> None:
        self._probe = probe
        self._period_s = period_s
        self._cpu_s = cpu_s
        self._send = send
        self._next_command = next_command
        self._clock = clock
        self._rng = rng
        self._known = Known()
        self._schedule = Schedule(clock.monotonic_ns(), period_s, rng)
        self._timing: SensorTiming | None = None
        self._burst_end_ns = 0
        self._poll_spacing_s = POLL_SPACING_S
        self._quick: Callable[[str], Reading] = getattr(probe, "quick", probe.sample)
        self._whole_due_ns = 0

    def run(self) -> None:
        """Until `close`."""
        self._known.add(self._probe.discover())
        self._send(self._known.line())
        start_ns = self._clock.monotonic_ns()
        self._timing = SensorTiming(self._known.devices.values())
        self._burst_end_ns = start_ns + round(BURST_S * NS_PER_S)
        self._schedule = Schedule(start_ns, self._period_s, self._rng)
        self._tick()
        while self._wait_until(self._schedule.next_ns(self._clock.monotonic_ns())):
            self._tick()

    def _tick(self) -> None:
        now_ns = self._clock.monotonic_ns()
        whole = now_ns >= self._whole_due_ns
        if whole:
            self._whole_due_ns = now_ns + round(WHOLE_EVERY_S * NS_PER_S)
        readings = [reading for uid in self._known.sampled() if (reading := self._sample(uid, whole=whole)) is not None]
        self._send(wire.Line(readings=tuple(readings)))

    def _sample(self, uid: str, *, whole: bool) -> Reading | None:
        """`whole` readings, or where the probe can tell them apart only power and energy."""
        try:
            return self._probe.sample(uid) if whole else self._quick(uid)
        except ProbeError as error:
            self._report(uid, str(error), error.hint)
        except Exception as error:  # noqa: BLE001 - the border: whatever a vendor's binding raises costs one device, not the run
            self._report(uid, f"{type(error).__name__}: {error}", None)
        return None

    def _report(self, uid: str, problem: str, fix: str | None) -> None:
        """Once a device, so that one that fails at each tick can't flood the stream."""
        if uid in self._known.failed:
            return
        self._known.failed.add(uid)
        text = fix or "see the vendor's own tool for this device; its readings are missing from here on"
        self._known.problems.append(ProbeProblem(probe=self._probe.name, subject=uid, problem=problem, fix=text))
        self._send(self._known.line())

    def _wait_until(self, due_ns: int) -> bool:
        """False on `close`. Time to spare at the start goes into timing the sensors."""
        while (left_ns := due_ns - self._clock.monotonic_ns()) > 0:
            polling = self._timing is not None
            command = self._next_command(min(left_ns / NS_PER_S, self._poll_spacing_s) if polling else left_ns / NS_PER_S)
            if command is not None:
                if not self._obey(command):
                    return False
            elif polling:
                self._poll_sensors()
        return self._obey_pending()

    def _obey_pending(self) -> bool:
        """Commands are obeyed even where sampling takes longer than the period and no time is left to wait."""
        while (command := self._next_command(0)) is not None:
            if not self._obey(command):
                return False
        return True

    def _obey(self, command: str) -> bool:
        word, *rest = command.split() or [""]
        if word == wire.CLOSE:
            return False
        if word == wire.WATCH:
            self._known.watched += 1
            self._known.add(self._probe.watch([int(pid) for pid in rest]))
            self._send(self._known.line())
        if word == wire.RAW:
            self._send(wire.Line(raw={uid: self._raw(uid) for uid in self._known.sampled()}))
        return True

    def _raw(self, uid: str) -> tuple[wire.RawValue, ...]:
        """Nothing where the probe has no way to tell, or the device fails."""
        tell: Callable[[str], tuple[wire.RawValue, ...]] | None = getattr(self._probe, "raw", None)
        if tell is None:
            return ()
        try:
            return tell(uid)
        except Exception as error:  # noqa: BLE001 - the border, as in `_sample`
            self._report(uid, f"{type(error).__name__}: {error}", None)
            return ()

    def _poll_sensors(self) -> None:
        assert self._timing is not None
        uids = self._timing.uids()
        start_ns = self._clock.monotonic_ns()
        if uids and start_ns < self._burst_end_ns:
            for uid in uids:
                before_s = self._cpu_s()
                reading = self._sample(uid, whole=False)
                if reading is None:
                    self._timing.drop(uid)
                else:
                    self._timing.see(reading, self._cpu_s() - before_s)
            took_s = (self._clock.monotonic_ns() - start_ns) / NS_PER_S
            self._poll_spacing_s = max(POLL_SPACING_S, _POLL_REST * took_s)
            return
        timing, self._timing = self._timing, None
        self._known.devices = {uid: timing.applied(device) for uid, device in self._known.devices.items()}
        self._send(self._known.line())
        self._pick_rate(timing)
        self._send(wire.Line(settled=True))

    def _pick_rate(self, timing: SensorTiming) -> None:
        """Slower than asked where the calls cost too much, or no sensor renews that often."""
        devices = [self._known.devices[uid] for uid in self._known.sampled()]
        period_s = poll_period_s(self._period_s, timing.tick_cpu_s(devices), fastest_update_s(devices))
        if period_s != self._period_s:
            self._period_s = period_s
            self._schedule = Schedule(self._clock.monotonic_ns(), period_s, self._rng)
            self._send(wire.Line(period_s=period_s))


class _Stdin:
    """Commands from stdin, read in a thread of its own: it notices the end of input while the sampler is stuck in a call."""

    def __init__(self, parent_pid: int) -> None:
        self._commands: queue.Queue[str] = queue.Queue()
        self._parent_pid = parent_pid
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def next_command(self, timeout_s: float) -> str | None:
        try:
            return self._commands.get(timeout=timeout_s) if timeout_s > 0 else self._commands.get_nowait()
        except queue.Empty:
            return None

    def _read(self) -> None:
        pending = b""
        while os.getppid() == self._parent_pid:
            ready, _, _ = select.select([0], [], [], _PARENT_CHECK_S)
            if not ready:
                continue
            data = os.read(0, 65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._commands.put(line.decode("ascii", "replace"))
        self._commands.put(wire.CLOSE)
        threading.Event().wait(_CLOSE_GRACE_S)
        os._exit(0)  # the sampler is stuck in a vendor call that will not return


def _private_stdout() -> int:
    """The real stdout under a new number; prints of a vendor library, also from C, go to stderr from now on."""
    private = os.dup(1)
    os.dup2(2, 1)
    return private


def _die_with_parent(parent_pid: int) -> None:
    """Ask Linux to kill this process with its parent, for the case that a call holds the interpreter for good.

    The kernel means the *thread* that started us, so the harness asks for this only from its main thread.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(0)


def _cpu_s() -> float:
    """CPU seconds of this process and of the programs that it has run."""
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def _sender(fd: int) -> Send:
    def send(line: wire.Line) -> None:
        data = memoryview(codec.encode(line) + b"\n")
        while data:
            data = data[os.write(fd, data) :]

    return send


def main(argv: Sequence[str] | None = None) -> None:
    """Run one probe until stdin closes."""
    parser = argparse.ArgumentParser(prog="bench.probes.child")
    parser.add_argument("name")
    parser.add_argument("--period", type=float, required=True, metavar="S")
    parser.add_argument("--parent", type=int, default=os.getppid(), metavar="PID")
    parser.add_argument("--die-with-parent", action="store_true")
    args = parser.parse_args(argv)
    send = _sender(_private_stdout())
    if args.die_with_parent:
        _die_with_parent(args.parent)
    stdin = _Stdin(args.parent)
    code = 0
    try:
        probe = plugins.load("bench.probes", args.name)()
        rng = random.Random()  # noqa: S311 - jitter, not a secret
        child = Child(probe, args.period, send=send, next_command=stdin.next_command, clock=SYSTEM, rng=rng, cpu_s=_cpu_s)
        child.run()
        probe.close()
    except BrokenPipeError:
        pass  # the harness is gone
    except Exception as error:  # noqa: BLE001 - the border: the reason travels as text, never as a number
        send(wire.Line(fatal=f"{type(error).__name__}: {error}"))
        code = 1
    sys.stderr.flush()
    os._exit(code)  # no interpreter teardown: a vendor library's exit handlers may hang


if __name__ == "__main__":
    main()
