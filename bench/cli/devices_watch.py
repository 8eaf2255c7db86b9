"""`bench devices --watch`: what every device draws, once a second, until Ctrl-C."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator

import click

from bench import codec
from bench.cli.columns import NONE, plain_lines, problem_in_words, rich_table, watts
from bench.clock import SYSTEM, Clock, iso_utc
from bench.ports import ProbeHost
from bench.printable import printable_json
from bench.probes.snapshot import DeviceNow, device_now
from bench.records import ProbeProblem, Reading
from bench.session.telemetry import Recorder
from bench.units import NS_PER_S, format_bytes

REFRESH_S = 1.0
_LOOK_BACK_S = 2.5
"""Readings that a view is made of; older ones are let go."""
_HEADERS = ("time", "power", "memory", "busy", "temperature", "limits", "name", "uid")


class _Watched:
    """The latest of every device, and problems that nobody has been told yet."""

    def __init__(self, host: ProbeHost, clock: Clock) -> None:
        self.recorder = Recorder(host, period_s=REFRESH_S / 5)
        self._clock = clock
        self._recent: defaultdict[str, list[Reading]] = defaultdict(list)
        self._told: set[ProbeProblem] = set()

    def look(self) -> list[tuple[DeviceNow, tuple[str, ...] | None]]:
        """Each device now, and its active limits."""
        oldest_ns = self._clock.monotonic_ns() - round(_LOOK_BACK_S * NS_PER_S)
        for reading in self.recorder.take():
            self._recent[reading.uid].append(reading)
        found = []
        for device in self.recorder.discovery().devices:
            kept = [r for r in self._recent[device.uid] if r.before_ns >= oldest_ns]
            self._recent[device.uid] = kept
            limits = next((r.throttle for r in reversed(kept) if r.throttle is not None), None)
            found.append((device_now(device, kept), limits))
        return found

    def news(self) -> Iterator[ProbeProblem]:
        """Problems since the last call."""
        for problem in self.recorder.discovery().problems:
            if problem not in self._told:
                self._told.add(problem)
                yield problem


def watch_devices(host: ProbeHost, *, seconds: float | None, as_json: bool, clock: Clock = SYSTEM) -> None:
    """Show every device each second until Ctrl-C, which is how it is meant to end, or for `seconds`."""
    watched = _Watched(host, clock)
    try:
        with watched.recorder:
            watched.recorder.discovery()
            end_ns = None if seconds is None else clock.monotonic_ns() + round(seconds * NS_PER_S)
            if sys.stdout.isatty() and not as_json:
                _live(watched, end_ns, clock)
            else:
                _lines(watched, end_ns, clock, as_json=as_json)
    except KeyboardInterrupt:
        return


def _ticks(watched: _Watched, end_ns: int | None, clock: Clock) -> Iterator[list[tuple[DeviceNow, tuple[str, ...] | None]]]:
    while end_ns is None or clock.monotonic_ns() < end_ns:
        clock.sleep(REFRESH_S)
        yield watched.look()


def _live(watched: _Watched, end_ns: int | None, clock: Clock) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        for seen in _ticks(watched, end_ns, clock):
            for problem in watched.news():
                console.print(problem_in_words(problem), markup=False, highlight=False)
            live.update(rich_table(_HEADERS, _rows(seen, clock)), refresh=True)


def _lines(watched: _Watched, end_ns: int | None, clock: Clock, *, as_json: bool) -> None:
    """A header once, then a line a device and second; or one JSON object a second. Problems go to stderr."""
    headed = as_json
    for seen in _ticks(watched, end_ns, clock):
        for problem in watched.news():
            click.echo(problem_in_words(problem), err=True)
        if as_json:
            text = codec.encode({"at": iso_utc(clock.wall_ns()), "devices": [_plain(*each) for each in seen]}).decode()
            click.echo(printable_json(text))
        elif seen:
            lines = plain_lines(_HEADERS, _rows(seen, clock))
            click.echo("\n".join(lines[1:] if headed else lines))
            headed = True
        sys.stdout.flush()


def _plain(now: DeviceNow, throttle: tuple[str, ...] | None) -> dict[str, object]:
    return {
        "uid": now.device.uid,
        "name": now.device.name,
        "scope": now.device.scope,
        "power_w": now.power_w,
        "memory_used_b": now.memory_used_b,
        "utilisation": now.utilisation,
        "temperature_c": now.temperature_c,
        "throttle": throttle,
    }


def _rows(seen: list[tuple[DeviceNow, tuple[str, ...] | None]], clock: Clock) -> list[tuple[str, ...]]:
    at = iso_utc(clock.wall_ns())[11:19]
    return [
        (
            at,
            watts(now.power_w),
            NONE if now.memory_used_b is None else format_bytes(now.memory_used_b),
            NONE if now.utilisation is None else f"{now.utilisation:.0%}",
            NONE if now.temperature_c is None else f"{now.temperature_c:.0f} C",
            NONE if throttle is None else ", ".join(throttle) or "none",
            now.device.name,
            now.device.uid,
        )
        for now, throttle in seen
    ]
