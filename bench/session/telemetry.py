"""The telemetry supervisor: opens a stream a probe, keeps their readings, and cuts out what a trial needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench import codec
from bench.clock import Clock
from bench.ports import Discovery, ProbeHost, ProbeStream
from bench.records import DeviceInfo, ProbeProblem, Reading, StreamEnd, Telemetry, Window

ACCELERATOR_SCOPES = ("accelerator", "module")
_MARGIN_NS = 2_000_000_000
"""Readings kept on either side of a window, so that its edges can be interpolated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """The two idle windows, and the readings in and around them."""

    idle: Window | None = None
    resident: Window | None = None
    readings: tuple[Reading, ...] = ()


class TelemetrySupervisor:
    """Every reading of one engine group, from before the engine starts until after it has stopped.

    Nothing that a probe does can raise here: a stream that hangs, crashes or never answers ends with a reason.
    """

    def __init__(self, host: ProbeHost, clock: Clock, period_s: float) -> None:
        self._host = host
        self._clock = clock
        self._period_s = period_s
        self._streams: dict[str, ProbeStream] = {}
        self._ends: dict[str, StreamEnd] = {}
        self._readings: list[Reading] = []
        self._spill: Path | None = None

    def open(self) -> None:
        """Start one child a probe."""
        for name in self._host.names():
            self._streams[name] = self._host.open(name, self._period_s)

    def close(self) -> None:
        """End every child."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def watch(self, pids: Iterable[int]) -> None:
        """Also observe these process trees."""
        roots = tuple(pids)
        for stream in self._streams.values():
            if roots:
                stream.watch(roots)

    def discovery(self) -> Discovery:
        """All devices and problems of all probes."""
        found = [stream.discovery() for stream in self._streams.values()]
        devices: tuple[DeviceInfo, ...] = tuple(device for part in found for device in part.devices)
        problems: tuple[ProbeProblem, ...] = tuple(problem for part in found for problem in part.problems)
        return Discovery(devices=devices, problems=problems)

    def spill_to(self, path: Path | None) -> None:
        """From now on also append readings to this file (JSON lines), so that a killed trial keeps them; None stops it."""
        self._spill = path

    def collect(self) -> None:
        """Take in what has arrived, and note streams that have ended."""
        fresh: list[Reading] = []
        for name, stream in self._streams.items():
            fresh += stream.drain()
            reason = stream.ended()
            if reason is not None and name not in self._ends:
                self._ends[name] = StreamEnd(probe=name, at_ns=self._clock.monotonic_ns(), reason=reason)
        self._readings += fresh
        if self._spill is not None and fresh:
            self._spill_out(self._spill, fresh)

    def _spill_out(self, path: Path, fresh: Iterable[Reading]) -> None:
        try:
            with path.open("ab") as file:
                file.write(b"".join(codec.encode(reading) + b"\n" for reading in fresh))
        except OSError:  # a full disk: the readings are in memory still, only a killed trial would miss them
            self._spill = None

    def rest(self, seconds: float) -> Window:
        """Let `seconds` pass with the machine left alone, collecting; returns that window."""
        t0_ns = self._clock.monotonic_ns()
        t1_ns = t0_ns + round(seconds * 1e9)
        while (left_s := (t1_ns - self._clock.monotonic_ns()) / 1e9) > 0:
            self._clock.sleep(min(left_s, 0.25))
            self.collect()
        return Window(t0_ns=t0_ns, t1_ns=t1_ns)

    def power_w(self, uids: Collection[str]) -> float | None:
        """Newest power of these devices, summed [W], for the terminal; None unless each has one."""
        newest: dict[str, float] = {}
        for reading in reversed(self._readings[-64 * max(1, len(uids)) :]):
            if reading.uid in uids and reading.power_w is not None:
                newest.setdefault(reading.uid, reading.power_w)
        return sum(newest.values()) if uids and len(newest) == len(uids) else None

    def memory_b(self, uid: str, window: Window | None) -> int | None:
        """Largest memory use of a device in a window [bytes]; None where it was not read."""
        if window is None:
            return None
        inside = (r for r in self._readings if r.uid == uid and window.t0_ns <= r.before_ns < window.t1_ns)
        return max((r.memory_used_b for r in inside if r.memory_used_b is not None), default=None)

    def around(self, window: Window | None) -> tuple[Reading, ...]:
        """Readings in a window and a little on either side."""
        if window is None:
            return ()
        low, high = window.t0_ns - _MARGIN_NS, window.t1_ns + _MARGIN_NS
        return tuple(reading for reading in self._readings if low <= reading.before_ns <= high)

    def cut(self, devices: tuple[DeviceInfo, ...], since_ns: int, baselines: Baselines) -> Telemetry:
        """What a trial keeps: the readings of `devices` since `since_ns`, and the baselines."""
        uids = {device.uid for device in devices}
        problems = self.discovery().problems
        return Telemetry(
            devices=devices,
            readings=tuple(r for r in self._readings if r.uid in uids and r.before_ns >= since_ns - _MARGIN_NS),
            ends=tuple(self._ends.values()),
            problems=problems,
            period_s=self._period_s,
            idle=baselines.idle,
            resident=baselines.resident,
            idle_readings=tuple(r for r in baselines.readings if r.uid in uids),
        )
