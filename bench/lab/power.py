"""Energy of any command: start it, record every device until it ends, work out what each drew."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from bench.clock import SYSTEM, Clock, anchor
from bench.errors import UsageError
from bench.records import ClockAnchor, ProbeProblem, StreamEnd, Window
from bench.session.telemetry import Recorder
from bench.timing.recorded import RecordedDevice, RecordedScope
from bench.timing.stretches import Recorded, joined, recorded
from bench.units import NS_PER_S

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of every shell, `env` and `timeout` for a command that can't be started."""
_SIGNALLED = 128
_LOOK_S = 0.1
STRETCH_S = 600.0
"""A long command is worked out in stretches of this length, whose readings are then let go of."""
_LAST_S = 60.0
"""Shortest last stretch: a short one may be below a sensor's resolution."""
_BEFORE_NS = 10 * NS_PER_S
"""Readings kept from before a stretch: slow counters change seldom."""
_SECRET = re.compile(r"(api[-_]?key|token|secret|password|passwd|authorization)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a window drew. `command` is None for an idle one; what looks like a secret in it is masked."""

    schema_version: int = 1
    command: tuple[str, ...] | None
    exit_code: int | None
    started: ClockAnchor
    window: Window
    seconds: float
    scopes: tuple[RecordedScope, ...]
    devices: tuple[RecordedDevice, ...]
    stream_ends: tuple[StreamEnd, ...]
    problems: tuple[ProbeProblem, ...]


def check_command(argv: Sequence[str]) -> None:
    """Refuse before anything is opened what can't be started. Raises: UsageError with the shell's exit code for it."""
    if shutil.which(argv[0]) is None:
        there = os.path.exists(argv[0])  # noqa: PTH110 - as the shell looks for it
        raise _not_started(
            argv[0], NOT_EXECUTABLE if there else NOT_FOUND, "it is not executable" if there else "there is no such command"
        )


def record_command(argv: Sequence[str], recorder: Recorder, clock: Clock = SYSTEM) -> Recording:
    """Run `argv` with our own input and output, and record until it ends.

    Signals are for the command: we outlive it and report. Raises: UsageError when it can't be started.
    """
    recorder.settle()
    started = anchor(clock)
    with _signals_passed_on() as pass_to:
        run = _Run(argv, clock)
        pass_to(run.process)
        stretches = Stretches(recorder, run.t0_ns)
        while not run.ended.wait(_LOOK_S):
            stretches.collect(clock.monotonic_ns())
    found = stretches.end(run.t1_ns)
    code = run.process.returncode
    return _recording(recorder, found, started, tuple(masked(argv)), code if code >= 0 else _SIGNALLED - code)


def record_idle(seconds: float, recorder: Recorder, clock: Clock = SYSTEM) -> Recording:
    """Leave the machine alone for `seconds` and record."""
    recorder.settle()
    started = anchor(clock)
    window = recorder.rest(seconds)
    return _recording(recorder, recorded(recorder.telemetry(), window), started, None, None)


def masked(argv: Sequence[str]) -> Iterator[str]:
    """The command with the values of flags and variables that are named like secrets taken out."""
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide:
            yield "***"
        elif equals and _SECRET.search(name):
            yield f"{name}=***"
        else:
            yield word
        hide = not hide and not equals and word.startswith("-") and bool(_SECRET.search(word))


class Stretches:
    """What has been drawn since `t0_ns`, with the readings of the last minutes only: a day of eight boards is 7 million."""

    def __init__(self, recorder: Recorder, t0_ns: int) -> None:
        self._recorder = recorder
        self._from_ns = t0_ns
        self._done: list[Recorded] = []

    def collect(self, now_ns: int) -> None:
        """Take in what has arrived, and work out a stretch that lies well behind."""
        self._recorder.collect()
        to_ns = self._from_ns + round(STRETCH_S * NS_PER_S)
        if now_ns < to_ns + round(_LAST_S * NS_PER_S):
            return
        self._done.append(recorded(self._recorder.telemetry(), Window(t0_ns=self._from_ns, t1_ns=to_ns)))
        self._recorder.forget(to_ns - _BEFORE_NS)
        self._from_ns = to_ns

    def end(self, t1_ns: int) -> Recorded:
        """All of it up to `t1_ns`, once that has been read past."""
        window = self._recorder.read_past(Window(t0_ns=self._from_ns, t1_ns=t1_ns))
        return joined([*self._done, recorded(self._recorder.telemetry(), window)])


class _Run:
    """A running command; a thread stamps its end at once, whatever the main thread is doing."""

    def __init__(self, argv: Sequence[str], clock: Clock) -> None:
        self._clock = clock
        self.ended = threading.Event()
        self.t0_ns = self.t1_ns = clock.monotonic_ns()
        sys.stdout.flush()
        try:
            self.process = subprocess.Popen(list(argv))
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            raise _not_started(argv[0], code, error.strerror or str(error)) from error
        threading.Thread(target=self._wait, name="command", daemon=True).start()

    def _wait(self) -> None:
        self.process.wait()
        self.t1_ns = self._clock.monotonic_ns()
        self.ended.set()


def _not_started(name: str, code: int, why: str) -> UsageError:
    error = UsageError(f"{name!r} can't be started: {why}", hint="write the command as in a shell, after `--`")
    error.exit_code = code
    return error


@contextmanager
def _signals_passed_on() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """SIGTERM goes on to the command; so does SIGINT, unless a terminal has sent it to the command already. One that comes before
    there is a command is kept for it: the command must not outlive us.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if not started:
            early.append(number)
        elif number != signal.SIGINT or not _typed():
            started[0].send_signal(number)

    def pass_to(process: subprocess.Popen[bytes]) -> None:
        started.append(process)
        for number in early:
            process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pass_to
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _typed() -> bool:
    """Whether we are in the foreground of a terminal, whose Ctrl-C reaches our whole group."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _recording(
    recorder: Recorder, found: Recorded, started: ClockAnchor, command: tuple[str, ...] | None, exit_code: int | None
) -> Recording:
    telemetry = recorder.telemetry()
    return Recording(
        command=command,
        exit_code=exit_code,
        started=started,
        window=found.window,
        seconds=found.window.seconds,
        scopes=found.scopes,
        devices=found.devices,
        stream_ends=telemetry.ends,
        problems=telemetry.problems,
    )
