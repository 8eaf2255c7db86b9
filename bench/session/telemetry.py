"""The recorder: opens a stream a probe, keeps their readings for as long as a window needs them, and cuts windows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from bench import codec
from bench.clock import SYSTEM, Clock
from bench.ports import Discovery, ProbeHost, ProbeStream
from bench.records import DeviceInfo, Reading, StreamEnd, Telemetry, Window

PERIOD_S = 0.1
SETTLE_S = 4.0
"""Longest wait for the sensors to be timed before a window begins."""
_MARGIN_NS = 2_000_000_000
"""Readings kept on either side of a window, so that its edges can be interpolated."""
FREE_S = 30.0
"""Longest wait for an engine's memory to be free again [s]: drivers clean up after the process has gone."""
_HELD_B = 256 << 20
"""Memory that may stay in use without a word [bytes]: other programs come and go too."""
_LOOK_S = 0.05
_TAIL_POLLS = 3
_TAIL_S = 2.0
"""Longest wait after a window for readings beyond its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """The two idle windows, and the readings in and around them."""

    idle: Window | None = None
    resident: Window | None = None
    readings: tuple[Reading, ...] = ()

    def memory_b(self, uid: str, window: Window | None) -> int | None:
        """Largest memory use of a device in one of the two [bytes]; None where it was not read."""
        if window is None:
            return None
        inside = (r for r in self.readings if r.uid == uid and window.t0_ns <= r.before_ns < window.t1_ns)
        return max((r.memory_used_b for r in inside if r.memory_used_b is not None), default=None)


class Recorder:
    """Readings of every probe of `host` while it is open, as a context manager.

    Nothing that a probe does can raise here: a stream that hangs, crashes or never answers ends with a reason. Memory grows
    with what is kept: `forget` and `take` let go of it.
    """

    def __init__(self, host: ProbeHost, *, period_s: float = PERIOD_S, clock: Clock = SYSTEM) -> None:
        self._host = host
        self._period_s = period_s
        self._clock = clock
        self._open = ExitStack()
        self._streams: dict[str, ProbeStream] = {}
        self._ends: dict[str, StreamEnd] = {}
        self._readings: list[Reading] = []
        self._knows_engine = True
        self._spill: Path | None = None

    def __enter__(self) -> Self:
        """Start one child a probe."""
        with ExitStack() as opened:
            for name in self._host.names():
                stream = self._streams[name] = self._host.open(name, self._period_s)
                opened.callback(stream.close)
            self._open = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    # --- streams ------------------------------------------------------------------------------------------------------

    def streams(self) -> tuple[ProbeStream, ...]:
        """The open streams."""
        return tuple(self._streams.values())

    def discovery(self) -> Discovery:
        """All devices and problems of all probes; the first call waits for them to answer."""
        found = [stream.discovery() for stream in self._streams.values()]
        return Discovery(
            devices=tuple(device for part in found for device in part.devices),
            problems=tuple(problem for part in found for problem in part.problems),
        )

    def watch(self, pids: Iterable[int]) -> None:
        """Also observe these process trees, the engine's. None are known: whose the processes on a device are can't be told."""
        roots = tuple(pids)
        self._knows_engine = bool(roots)
        self._readings = self._told(self._readings)
        for stream in self._streams.values():
            if roots:
                stream.watch(roots)

    def spill_to(self, path: Path | None) -> None:
        """From now on also append readings to this file (JSON lines), so that a killed trial keeps them; None stops it."""
        self._spill = path

    # --- time ---------------------------------------------------------------------------------------------------------

    def settle(self, deadline_s: float = SETTLE_S) -> None:
        """Wait until every sensor has been timed, so that no dense polls lie in a window. Gives up quietly at the deadline."""
        self.discovery()
        self._until(lambda: all(s.settled() or s.ended() is not None for s in self._streams.values()), deadline_s)

    def rest(self, seconds: float) -> Window:
        """Let `seconds` pass with the machine left alone, collecting; returns that window, read to its end."""
        t0_ns = self._clock.monotonic_ns()
        self._until(lambda: False, seconds)
        return self.read_past(Window(t0_ns=t0_ns, t1_ns=self._clock.monotonic_ns()))

    def read_past(self, window: Window) -> Window:
        """`window`, once every device that was read in its last seconds has been read a few times after it, or won't be: its
        end lies between readings.
        """
        self._until(lambda: self._is_read_past(window.t1_ns), _TAIL_S)
        return window

    def _is_read_past(self, t1_ns: int) -> bool:
        living = {d.uid for s in self._streams.values() if s.ended() is None for d in s.discovery().devices}
        before = {r.uid for r in self._readings if t1_ns - _MARGIN_NS <= r.before_ns < t1_ns}
        after = Counter(r.uid for r in self._readings if r.before_ns >= t1_ns)
        return all(after[uid] >= _TAIL_POLLS for uid in before & living)

    def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        end_ns = self._clock.monotonic_ns() + round(seconds * 1e9)
        while True:
            self.collect()
            left_s = (end_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0 or reached():
                return
            self._clock.sleep(min(left_s, _LOOK_S))

    # --- readings -----------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Take in what has arrived, and note streams that have ended."""
        fresh: list[Reading] = []
        for name, stream in self._streams.items():
            fresh += self._told(stream.drain())
            reason = stream.ended()
            if reason is not None and name not in self._ends:
                self._ends[name] = StreamEnd(probe=name, at_ns=self._clock.monotonic_ns(), reason=reason)
        self._readings += fresh
        if self._spill is not None and fresh:
            self._spill_out(self._spill, fresh)

    def _told(self, readings: list[Reading]) -> list[Reading]:
        """An endpoint that was attached to may itself be what computes on a device."""
        return readings if self._knows_engine else [replace(reading, foreign_processes=None) for reading in readings]

    def _spill_out(self, path: Path, fresh: Iterable[Reading]) -> None:
        try:
            with path.open("ab") as file:
                file.write(b"".join(codec.encode(reading) + b"\n" for reading in fresh))
        except OSError:  # a full disk: the readings are in memory still, only a killed trial would miss them
            self._spill = None

    def forget(self, before_ns: int) -> None:
        """Let go of readings that no window from `before_ns` on needs: a long night must not fill the memory."""
        self.collect()
        self._readings = [reading for reading in self._readings if reading.before_ns >= before_ns - _MARGIN_NS]

    def take(self) -> tuple[Reading, ...]:
        """What has arrived since the last call, and is not kept: for those who watch for hours."""
        self.collect()
        taken = tuple(self._readings)
        self._readings.clear()
        return taken

    def power_w(self, uids: Collection[str]) -> float | None:
        """Newest power of these devices, summed [W], for the terminal; None unless each has one."""
        newest: dict[str, float] = {}
        for reading in reversed(self._readings[-64 * max(1, len(uids)) :]):
            if reading.uid in uids and reading.power_w is not None:
                newest.setdefault(reading.uid, reading.power_w)
        return sum(newest.values()) if uids and len(newest) == len(uids) else None

    def memory_b(self) -> dict[str, int]:
        """Newest memory in use of each device that tells it [bytes]."""
        self.collect()
        return {r.uid: r.memory_used_b for r in self._readings if r.memory_used_b is not None}

    def foreign(self) -> dict[str, float]:
        """Newest count of processes that are not the engine's on each device that tells it."""
        self.collect()
        return {r.uid: r.foreign_processes for r in self._readings if r.foreign_processes is not None}

    def await_free(self, before: Mapping[str, int]) -> dict[str, int]:
        """Wait until devices hold no more memory than `before`; what is held beyond it after a while, by uid [bytes]."""

        def held() -> dict[str, int]:
            now = self.memory_b()
            return {uid: now[uid] - was for uid, was in before.items() if now.get(uid, was) - was > _HELD_B}

        since_ns = self._clock.monotonic_ns()
        self._until(lambda: not held() and self._is_read_past(since_ns), FREE_S)
        return held()

    def baselines(self, idle: Window | None, resident: Window | None) -> Baselines:
        """The idle windows with their readings, which outlive `forget`."""
        self.collect()
        readings = tuple(r for window in (idle, resident) if window is not None for r in self._around(window))
        return Baselines(idle=idle, resident=resident, readings=readings)

    def _around(self, window: Window) -> Iterable[Reading]:
        low, high = window.t0_ns - _MARGIN_NS, window.t1_ns + _MARGIN_NS
        return (reading for reading in self._readings if low <= reading.before_ns <= high)

    def telemetry(self) -> Telemetry:
        """All that is kept."""
        self.collect()
        found = self.discovery()
        return Telemetry(
            devices=found.devices,
            readings=tuple(self._readings),
            ends=tuple(self._ends.values()),
            problems=found.problems,
            period_s=self._period_s,
        )

    def cut(self, devices: tuple[DeviceInfo, ...], since_ns: int, baselines: Baselines) -> Telemetry:
        """What a trial keeps: the readings of `devices` since `since_ns`, and the baselines."""
        whole, uids = self.telemetry(), {device.uid for device in devices}
        return replace(
            whole,
            devices=devices,
            readings=tuple(r for r in whole.readings if r.uid in uids and r.before_ns >= since_ns - _MARGIN_NS),
            idle=baselines.idle,
            resident=baselines.resident,
            idle_readings=tuple(r for r in baselines.readings if r.uid in uids),
        )
