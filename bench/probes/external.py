"""A meter of one's own: a command that prints watts, a command that goes on printing, or a CSV file that grows.

BENCH_EXTERNAL_CONFIG names a YAML file (see `bench.probes.external_config`). Whatever can't be read is missing, never 0.
A reading's stamps are those of the moment its line was read.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes.background import Poller, Taken, stale_after_s
from bench.probes.command import output
from bench.probes.external_config import Config, Metered, load, parse
from bench.probes.values import Unavailable, attempt
from bench.records import DeviceInfo, ProbeProblem, Reading, SensorInfo
from bench.units import NS_PER_S

NAME = "external"
UID = "external:0"
FIRST_READING_S = 5.0
_TAIL_B = 65536
# --- ways to the lines ------------------------------------------------------------------------------------------------


class _Once:
    """A command run each period; its last line counts, under the one before it where that is a header."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._poller: Poller[Metered] = Poller(NAME, self._read, config.period_s, clock)
        self.first: Callable[[float], Taken[Metered]] = self._poller.first
        self.latest: Callable[[], Taken[Metered]] = self._poller.latest
        self.close: Callable[[], None] = self._poller.close

    def _read(self) -> Metered:
        lines = [line for line in output(self._config.command or []).splitlines() if line.strip()]
        header = [cell.strip() for cell in lines[-2].split(",")] if len(lines) > 1 else None
        return parse(lines[-1], self._config, header)


class _File:
    """The last whole row of a CSV file that grows."""

    def __init__(self, config: Config, clock: Clock) -> None:
        assert config.csv is not None
        self._path = config.csv
        self._config = config
        self._seen: tuple[int, int] | None = None
        stale_s = stale_after_s(config.period_s)
        self._poller: Poller[Metered] = Poller(NAME, self._read, min(config.period_s, 0.2), clock, stale_s=stale_s)
        self.first: Callable[[float], Taken[Metered]] = self._poller.first
        self.latest: Callable[[], Taken[Metered]] = self._poller.latest
        self.close: Callable[[], None] = self._poller.close

    def _read(self) -> Metered:
        try:
            with self._path.open("rb") as file:
                header = file.readline().decode("utf-8", "replace")
                status = os.fstat(file.fileno())
                if self._seen == (status.st_size, status.st_mtime_ns):
                    raise Unavailable(f"{self._path} does not grow", lasting=False)
                self._seen = status.st_size, status.st_mtime_ns
                file.seek(max(file.tell(), status.st_size - _TAIL_B))
                tail = file.read().decode("utf-8", "replace")
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}", lasting=False) from error
        whole = tail[: tail.rfind("\n") + 1].splitlines()
        if not whole:
            raise Unavailable(f"{self._path} has no whole row yet", lasting=False)
        return parse(whole[-1], self._config, [cell.strip() for cell in header.strip().split(",")])


class _Stream:
    """A command that goes on printing. Its header, where it prints CSV, is its first line."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._changed = threading.Condition()
        self._taken: Taken[Metered] | None = None
        self._failure: str | None = None
        command = config.command or []
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError as error:
            raise Unavailable(f"{command[0]} can't be started: {error.strerror}", lasting=True) from error
        threading.Thread(target=self._run, name="external-lines", daemon=True).start()

    def first(self, timeout_s: float) -> Taken[Metered]:
        with self._changed:
            self._changed.wait_for(lambda: self._taken is not None or self._failure is not None, timeout_s)
            if self._taken is None:
                raise Unavailable(self._failure or f"no line within {timeout_s:g} s", lasting=False)
            return self._taken

    def latest(self) -> Taken[Metered]:
        with self._changed:
            stale_ns = stale_after_s(self._config.period_s) * NS_PER_S
            fresh = self._taken is not None and self._clock.monotonic_ns() - self._taken.after_ns <= stale_ns
            if self._taken is None or self._failure is not None or not fresh:
                raise Unavailable(self._failure or "the meter fell silent", lasting=False)
            return self._taken

    def close(self) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        if self._process.poll() is None:
            self._process.kill()

    def _run(self) -> None:
        assert self._process.stdout is not None
        header: list[str] | None = None
        for raw in self._process.stdout:
            now_ns = self._clock.monotonic_ns()
            line = raw.decode("utf-8", "replace")
            value, reason, _ = attempt(partial(parse, line, self._config, header))
            if header is None and value is None and "," in line:
                header = [cell.strip() for cell in line.split(",")]
                continue
            with self._changed:
                self._failure = reason
                if value is not None:
                    self._taken = Taken(value=value, before_ns=now_ns, after_ns=now_ns)
                self._changed.notify_all()
        code = self._process.wait()
        with self._changed:
            self._failure = f"the meter's command ended with exit status {code}"
            self._changed.notify_all()


Way = _Once | _File | _Stream


class ExternalProbe:
    """One device: whatever the meter stands in front of."""

    name = NAME

    def __init__(self, env: Mapping[str, str] | None = None, clock: Clock = SYSTEM) -> None:
        self._env = os.environ if env is None else env
        self._clock = clock
        self._way: Way | None = None

    def discover(self) -> Discovery:
        self.close()
        path = self._env.get("BENCH_EXTERNAL_CONFIG")
        if not path:
            return Discovery()
        try:
            config = load(Path(path))
            self._way = _way(config, self._clock)
            self._way.first(FIRST_READING_S)
        except Unavailable as error:
            self.close()
            fix = "run the command by hand, and compare its output with the configuration (docs/hardware.md)"
            return Discovery(problems=(ProbeProblem(probe=NAME, subject=path, problem=str(error), fix=fix),))
        return Discovery(devices=(_info(config),))

    def watch(self, pids: Iterable[int]) -> Discovery:
        return Discovery()

    def sample(self, uid: str) -> Reading:
        if uid != UID or self._way is None:
            raise ProbeError(f"the external probe has no device {uid!r}")
        taken = attempt(self._way.latest)[0]
        if taken is None:
            now_ns = self._clock.monotonic_ns()
            return Reading(uid=UID, before_ns=now_ns, after_ns=now_ns)
        value: Metered = taken.value
        stamps = {"before_ns": taken.before_ns, "after_ns": taken.after_ns}
        return Reading(uid=UID, **stamps, power_w=value.power_w, energy_j=value.energy_j)

    def close(self) -> None:
        if self._way is not None:
            self._way.close()
            self._way = None


def _way(config: Config, clock: Clock) -> Way:
    if config.csv is not None:
        return _File(config, clock)
    return _Stream(config, clock) if config.mode == "stream" else _Once(config, clock)


def _info(config: Config) -> DeviceInfo:
    origin = f"csv {config.csv.name}" if config.csv else f"command {Path((config.command or ['?'])[0]).name}"
    has_power = config.power is not None or config.energy is None
    power = SensorInfo(api=f"external {origin}", unit=config.unit or "W", gain_error=config.gain_error)
    energy = SensorInfo(api=f"external {origin}", unit=config.energy_unit or "J", gain_error=config.gain_error)
    return DeviceInfo(
        uid=UID,
        probe=NAME,
        vendor="external",
        name=config.name,
        index=0,
        scope=config.scope,
        board=UID,
        power=power if has_power else None,
        energy=energy if config.energy is not None else None,
        power_reason=None if has_power else "the meter counts energy only",
    )
