"""A simulated device whose power follows the tokens that the mock engine sends, by a stated law (see `bench.probes.sim_law`).

It gives a whole run an analytic J/token. It has power and energy only, marked `simulated`: nothing of it shares a column with
what is measured.

Set up by the environment: BENCH_SIM_EMISSION (the engine's emission file), BENCH_SIM_IDLE_W, BENCH_SIM_J_PER_TOKEN,
BENCH_SIM_UPDATE_MS, BENCH_SIM_COUNTER and BENCH_SIM_POWER (on, off), BENCH_SIM_NOISE, BENCH_SIM_SEED.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.clock import SYSTEM, Clock
from bench.errors import ProbeError
from bench.ports import Discovery
from bench.probes import settings, sim_law
from bench.records import DeviceInfo, ProbeProblem, Reading, SensorInfo
from bench.units import NS_PER_S

NAME = "sim"
UID = "sim:0"
MAGIC = b"tjemit1\n"
_HEAD_B = len(MAGIC) + 8
_RECORD = struct.Struct("<qq")
_LAG_NS = 50_000_000
"""How long ago a reading is: by then the engine has usually written what it sent."""
_GONE_S = 1.0
"""An engine that has not written for so long is gone: the device idles."""


class EmissionFile:
    """The engine's emission file, read as it grows. It may not be there yet, and begin anew with a new engine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._head = b""
        self._offset = 0
        self.whole_ns = 0
        """Everything that was sent up to here has been read [ns]; 0 before the first record."""

    def read_into(self, emitted: sim_law.Emitted) -> None:
        """Take in what is new."""
        try:
            with self._path.open("rb") as file:
                head = file.read(_HEAD_B)
                if len(head) < _HEAD_B or not head.startswith(MAGIC):
                    return
                if head != self._head:  # another engine began its own
                    self._head, self._offset = head, _HEAD_B
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        whole = len(data) // _RECORD.size * _RECORD.size
        self._offset += whole
        for stamp_ns, tokens in _RECORD.iter_unpack(data[:whole]):
            emitted.add(stamp_ns, tokens)
            if tokens == 0:
                self.whole_ns = max(self.whole_ns, stamp_ns)


class SimProbe:
    """One simulated accelerator."""

    name = NAME

    def __init__(self, env: Mapping[str, str] | None = None, clock: Clock = SYSTEM) -> None:
        self._env = os.environ if env is None else env
        self._clock = clock
        self._start_ns = clock.monotonic_ns()
        self._last_ns = self._start_ns
        self._emitted = sim_law.Emitted()
        self._file: EmissionFile | None = None
        self._law = sim_law.Law()
        self._has_counter = self._has_power = True
        self._noise = random.Random()  # noqa: S311 - noise, not a secret

    def discover(self) -> Discovery:
        path = self._env.get("BENCH_SIM_EMISSION")
        if not path:
            fix = "export BENCH_SIM_EMISSION=FILE, and run the mock engine with --engine-arg sim=true"
            return Discovery(problems=(ProbeProblem(probe=NAME, subject=UID, problem="no emission file is named", fix=fix),))
        self._file = self._file or EmissionFile(Path(path))
        self._law = law_of(self._env)
        self._has_counter = settings.switch(self._env, "BENCH_SIM_COUNTER", otherwise=True)
        self._has_power = settings.switch(self._env, "BENCH_SIM_POWER", otherwise=True)
        self._noise.seed(settings.number(self._env, "BENCH_SIM_SEED", 0.0))
        return Discovery(devices=(self._info(),))

    def watch(self, pids: Iterable[int]) -> Discovery:
        return Discovery()

    def sample(self, uid: str) -> Reading:
        """The device a little ago, at a moment that the engine has accounted for: that moment is the reading's stamp.

        The engine writes right after it has sent, so its own moments see more tokens than any other: a poll's moment is taken.
        """
        if uid != UID or self._file is None:
            raise ProbeError(f"the sim probe has no device {uid!r}")
        now_ns = self._clock.monotonic_ns()
        self._file.read_into(self._emitted)
        serving = now_ns - self._file.whole_ns < _GONE_S * NS_PER_S
        at_ns = min(self._file.whole_ns, now_ns - _LAG_NS) if serving else now_ns
        at_ns = self._last_ns = max(self._last_ns, at_ns)
        power_w = sim_law.power_w(self._law, self._emitted, at_ns) * (1 + self._law.noise * self._noise.gauss(0, 1))
        counter_j = sim_law.counter_j(self._law, self._emitted, self._start_ns, at_ns)
        return Reading(
            uid=UID,
            before_ns=at_ns,
            after_ns=at_ns,
            power_w=max(power_w, 0.0) if self._has_power else None,
            energy_j=counter_j if self._has_counter else None,
        )

    def close(self) -> None:
        self._file = None

    def _info(self) -> DeviceInfo:
        law = self._law
        words = f"P = {law.idle_w:g} W + {law.j_per_token:g} J/token"
        power = SensorInfo(api=f"simulated: {words}", unit="W", averaging_window_s=law.averaging_s, gain_error=0.0)
        counter = SensorInfo(api=f"simulated: {words}", unit="J", gain_error=0.0)
        return DeviceInfo(
            uid=UID,
            probe=NAME,
            vendor="none",
            name=f"simulated device, {words}",
            index=0,
            scope="accelerator",
            quality="simulated",
            board=UID,
            power=power if self._has_power else None,
            energy=counter if self._has_counter else None,
            power_reason=None if self._has_power else "BENCH_SIM_POWER is off",
        )


def law_of(env: Mapping[str, str]) -> sim_law.Law:
    """The law that the environment states. Raises: UsageError."""
    default = sim_law.Law()
    return sim_law.Law(
        idle_w=settings.number(env, "BENCH_SIM_IDLE_W", default.idle_w, high=5000.0),
        j_per_token=settings.number(env, "BENCH_SIM_J_PER_TOKEN", default.j_per_token),
        update_s=settings.number(env, "BENCH_SIM_UPDATE_MS", default.update_s * 1e3, high=10_000.0) / 1e3,
        averaging_s=default.averaging_s,
        noise=settings.number(env, "BENCH_SIM_NOISE", default.noise, high=1.0),
    )
