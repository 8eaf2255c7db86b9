"""Every reading of every probe for as long as it is open: what the commands use that measure devices without an engine."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from bench.clock import SYSTEM, Clock
from bench.ports import ProbeHost, ProbeStream
from bench.records import DeviceInfo, ProbeProblem, Reading, StreamEnd, Telemetry, Window

PERIOD_S = 0.1
SETTLE_S = 4.0
"""Longest wait for the sensors to be timed before a window begins."""
_LOOK_S = 0.05
_TAIL_POLLS = 3
_TAIL_S = 2.0
"""Longest wait after a window for a reading beyond its end."""


class Recorder:
    """Opens every probe of `host`, and keeps what they say."""

    def __init__(self, host: ProbeHost, *, period_s: float = PERIOD_S, clock: Clock = SYSTEM) -> None:
        self._host = host
        self._period_s = period_s
        self._clock = clock
        self._streams: dict[str, ProbeStream] = {}
        self._readings: list[Reading] = []
        self._ends: dict[str, StreamEnd] = {}

    def __enter__(self) -> Self:
        for name in self._host.names():
            self._streams[name] = self._host.open(name, self._period_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for stream in self._streams.values():
            stream.close()

    def streams(self) -> tuple[ProbeStream, ...]:
        """The open streams."""
        return tuple(self._streams.values())

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Everything found; the first call waits for the probes to answer."""
        return tuple(device for stream in self._streams.values() for device in stream.discovery().devices)

    def problems(self) -> tuple[ProbeProblem, ...]:
        """What can't be read, with the fix."""
        return tuple(problem for stream in self._streams.values() for problem in stream.discovery().problems)

    def settle(self, deadline_s: float = SETTLE_S) -> None:
        """Wait until every sensor has been timed and read, so that a window may begin. Gives up quietly at the deadline."""
        self.devices()
        self._until(self._settled, deadline_s)

    def collect(self) -> None:
        """Take in what has arrived, and note streams that have ended."""
        for name, stream in self._streams.items():
            self._readings += stream.drain()
            reason = stream.ended()
            if reason is not None and name not in self._ends:
                self._ends[name] = StreamEnd(probe=name, at_ns=self._clock.monotonic_ns(), reason=reason)

    def take(self) -> tuple[Reading, ...]:
        """What has arrived since the last call, and is not kept: for those who watch for hours."""
        self.collect()
        taken = tuple(self._readings)
        self._readings.clear()
        return taken

    def rest(self, seconds: float) -> Window:
        """Let `seconds` pass, collecting; returns that window, with a reading beyond its end where the probes still give one."""
        t0_ns = self._clock.monotonic_ns()
        self._until(lambda: False, seconds)
        return self.closed(t0_ns, self._clock.monotonic_ns())

    def closed(self, t0_ns: int, t1_ns: int) -> Window:
        """The window, once every living device has been read a few times after it: its end lies between two readings."""
        self._until(lambda: self._read_beyond(t1_ns), _TAIL_S)
        return Window(t0_ns=t0_ns, t1_ns=t1_ns)

    def telemetry(self) -> Telemetry:
        """All that was seen."""
        self.collect()
        return Telemetry(
            devices=self.devices(),
            readings=tuple(self._readings),
            ends=tuple(self._ends.values()),
            problems=self.problems(),
            period_s=self._period_s,
        )

    def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        end_ns = self._clock.monotonic_ns() + round(seconds * 1e9)
        while True:
            self.collect()
            left_s = (end_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0 or reached():
                return
            self._clock.sleep(min(left_s, _LOOK_S))

    def _living(self) -> set[str]:
        return {
            device.uid
            for stream in self._streams.values()
            if stream.ended() is None
            for device in stream.discovery().devices
            if device.power or device.energy
        }

    def _settled(self) -> bool:
        living = self._living()
        timed = {
            device.uid
            for device in self.devices()
            if any(s is not None and s.call_cost_s is not None for s in (device.power, device.energy))
        }
        return living <= timed & {reading.uid for reading in self._readings}

    def _read_beyond(self, t1_ns: int) -> bool:
        after: dict[str, int] = {}
        for reading in reversed(self._readings):
            if reading.before_ns >= t1_ns:
                after[reading.uid] = after.get(reading.uid, 0) + 1
        return all(after.get(uid, 0) >= _TAIL_POLLS for uid in self._living())
