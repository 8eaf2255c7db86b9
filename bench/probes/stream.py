"""One probe's child process, seen from the harness: it may hang, crash, print or flood, and the harness goes on."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from bench import codec
from bench.clock import SYSTEM, Clock
from bench.ports import Discovery
from bench.probes import wire
from bench.records import ProbeProblem, Reading
from bench.units import NS_PER_S

DISCOVERY_DEADLINE_S = 10.0
MISSED_PERIODS = 3
SHORTEST_SILENCE_S = 2.0
KEPT_READINGS = 200_000
"""Undrained readings kept, the newest ones: about 60 MB, an hour of five boards at 10 Hz."""
_KEPT_STDERR_B = 8192
_STDERR_READ_B = 65536
_STDERR_PAUSE_S = 0.01
_LONGEST_LINE_B = 16 << 20
_WATCH_DEADLINE_S = 3.0
_CLOSE_STEP_S = 1.0

Kill = Callable[[int, int], None]


class ChildProbeStream:
    """A running child. A reader thread collects its lines and notices its silence; `drain` never waits."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: dict[str, str],
        period_s: float,
        *,
        deadline_s: float = DISCOVERY_DEADLINE_S,
        clock: Clock = SYSTEM,
        kill: Kill = os.killpg,
    ) -> None:
        self.name = name
        self._clock = clock
        self._kill = kill
        self._deadline_s = deadline_s
        self._period_s = period_s
        self._changed = threading.Condition()
        self._readings: deque[Reading] = deque(maxlen=KEPT_READINGS)
        self._found: Discovery | None = None
        self._asked = self._watched = 0
        self._settled = False
        self._raw_asked = self._raw_told = 0
        self._raw: dict[str, tuple[wire.RawValue, ...]] = {}
        self._reason: str | None = None
        self._closing = False
        self._stderr = b""
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the harness, which closes its probes in order
        )
        self._stderr_thread = self._thread(self._read_stderr, "stderr")
        self._reader = self._thread(self._read, "lines")

    def _thread(self, target: Callable[[], None], what: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"probe-{self.name}-{what}", daemon=True)
        thread.start()
        return thread

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def period_s(self) -> float:
        """Seconds between its polls: as asked, or as it has found out for itself."""
        return self._period_s

    def raw(self) -> dict[str, tuple[wire.RawValue, ...]]:
        """Every device's values once more, unconverted; nothing of a probe that can't tell or does not answer."""
        with self._changed:
            self._raw_asked += 1
            asked = self._raw_asked
        self._command(wire.RAW)
        with self._changed:
            self._changed.wait_for(lambda: self._raw_told >= asked or self._reason is not None, _WATCH_DEADLINE_S)
            return self._raw if self._raw_told >= asked else {}

    # --- the port -----------------------------------------------------------------------------------------------------

    def discovery(self) -> Discovery:
        """What is known by now; the first call waits for the child's answer, up to the deadline. Later calls include
        watched process trees, what was learnt about the sensors, and problems that came up since.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._found is not None or self._reason is not None, self._deadline_s + 1)
            found = self._found or Discovery()
            if self._reason is None or self._closing:
                return found
            lost = ProbeProblem(
                probe=self.name,
                subject="probe process",
                problem=self._reason,
                fix=f"its devices are not measured; try `bench devices`, and the vendor's own tool for {self.name}",
            )
            return Discovery(devices=found.devices, problems=(*found.problems, lost))

    def watch(self, pids: Iterable[int]) -> None:
        """Observe these process trees too; returns when the child has them in its discovery, or has ended."""
        with self._changed:
            self._asked += 1
            asked = self._asked
        self._command(" ".join([wire.WATCH, *(str(int(pid)) for pid in pids)]))
        with self._changed:
            self._changed.wait_for(lambda: self._watched >= asked or self._reason is not None, _WATCH_DEADLINE_S)

    def drain(self) -> list[Reading]:
        """Readings since the last call. Only the newest `KEPT_READINGS` of them, where nobody drained for very long."""
        with self._changed:
            readings = list(self._readings)
            self._readings.clear()
        return readings

    def settled(self) -> bool:
        """Whether the dense polls of its start are over."""
        return self._settled

    def ended(self) -> str | None:
        """Why it stopped by itself, in words; None while it lives, and where it was only closed."""
        with self._changed:
            return self._reason

    def close(self) -> None:
        """End the child: ask, then SIGTERM, then SIGKILL, then leave it. Never takes more than a few seconds."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            hung = self._reason is not None
        self._command(wire.CLOSE)
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        for step in (None, signal.SIGTERM, signal.SIGKILL):
            if self._gone(step, 0.0 if hung and step is not signal.SIGKILL else _CLOSE_STEP_S):
                break
        else:
            return  # stuck in the kernel: it ends when its call does; its threads are daemons
        for thread, pipe in ((self._reader, self._process.stdout), (self._stderr_thread, self._process.stderr)):
            thread.join(_CLOSE_STEP_S)
            if pipe is not None and not thread.is_alive():
                pipe.close()

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _gone(self, step: signal.Signals | None, wait_s: float) -> bool:
        if step is not None:
            self._signal(step)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)
        return self._process.returncode is not None

    def _signal(self, number: int) -> None:
        """To the child's whole group: it leads one, so its number stays ours until we have waited for it."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._kill(self._process.pid, number)

    def _command(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a child that is gone says so through `ended`
            assert self._process.stdin is not None
            self._process.stdin.write(text.encode() + b"\n")

    def _read(self) -> None:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poller = select.poll()  # not select: a harness may hold more than 1024 descriptors
        poller.register(fd, select.POLLIN)
        pending = bytearray()
        heard_ns = self._clock.monotonic_ns()
        try:
            while True:
                silence_s = max(MISSED_PERIODS * self._period_s, SHORTEST_SILENCE_S)
                patience_s = silence_s if self._found is not None else self._deadline_s
                left_s = patience_s - (self._clock.monotonic_ns() - heard_ns) / NS_PER_S
                if not poller.poll(max(left_s, 0.0) * 1000):
                    self._end_hung(patience_s)
                    return
                data = os.read(fd, 65536)
                if not data:
                    break
                heard_ns = self._clock.monotonic_ns()
                pending += data
                self._take_lines(pending)
        except ValueError as error:  # a child that writes anything but our lines can't be trusted further
            self._end(f"the {self.name} probe wrote a line that is not ours: {error}")
            self._signal(signal.SIGKILL)
            return
        self._end_exited()

    def _take_lines(self, pending: bytearray) -> None:
        *lines, rest = pending.split(b"\n")
        pending[:] = rest
        if len(rest) > _LONGEST_LINE_B:
            raise ValueError(f"over {_LONGEST_LINE_B} bytes")
        for data in lines:
            line = codec.decode(bytes(data), wire.Line)
            with self._changed:
                self._readings.extend(line.readings)
                if line.discovery is not None:
                    self._found, self._watched = line.discovery, line.watched
                self._period_s = line.period_s or self._period_s
                self._settled = self._settled or line.settled
                if line.raw is not None:
                    self._raw, self._raw_told = line.raw, self._raw_told + 1
                if line.fatal is not None:
                    self._reason = self._reason or f"the {self.name} probe can't go on: {line.fatal}"
                self._changed.notify_all()

    def _end(self, reason: str) -> None:
        with self._changed:
            if not self._closing:
                self._reason = self._reason or reason
            self._changed.notify_all()

    def _end_hung(self, patience_s: float) -> None:
        doing = "sent no reading" if self._found is not None else "did not answer"
        self._end(f"the {self.name} probe {doing} for {patience_s:.1f} s: a vendor call hangs{self._last_words()}")
        self._signal(signal.SIGKILL)

    def _end_exited(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_STEP_S)
        code = self._process.returncode
        self._stderr_thread.join(_CLOSE_STEP_S)
        if code is None:
            how = "closed its output"
            self._signal(signal.SIGKILL)
        elif code < 0:
            how = f"was ended by {_signal_name(-code)}"
        else:
            how = f"ended with exit status {code}"
        self._end(f"the {self.name} probe {how}{self._last_words()}")

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        return f"; its last words: {lines[-1][:300]}" if lines else ""

    def _read_stderr(self) -> None:
        """Keep the tail. Slowly, so that a flood costs the flooder its time and not the harness its core."""
        assert self._process.stderr is not None
        pause = threading.Event()
        while data := os.read(self._process.stderr.fileno(), _STDERR_READ_B):
            self._stderr = (self._stderr + data)[-_KEPT_STDERR_B:]
            pause.wait(_STDERR_PAUSE_S)


class EndedStream:
    """A probe that could not even be started."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self._reason = reason

    def discovery(self) -> Discovery:
        fix = "its devices are not measured; try `bench devices`"
        return Discovery(problems=(ProbeProblem(probe=self.name, subject="probe process", problem=self._reason, fix=fix),))

    def watch(self, pids: Iterable[int]) -> None:
        pass

    def drain(self) -> list[Reading]:
        return []

    def settled(self) -> bool:
        return False

    def ended(self) -> str | None:
        return self._reason

    def close(self) -> None:
        pass


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
