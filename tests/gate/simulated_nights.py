"""Nights of a series as a noisy machine would give them. The gate sees only what comes out of here, one night at a time.

Night effect: AR(1), standard deviation 1.5%, correlation 0.4 from night to night; one night in 50 is 8% slow; three repeats with
0.6% noise each; pairs share their night. A case and the reference of its host share the night but for 0.5%.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.records import FloatArray

NIGHT_CV, NIGHT_AR, BAD_SHARE, BAD_NIGHT, REPEATS, TRIAL_CV, PAIRS = 0.015, 0.4, 0.02, -0.08, 3, 0.006, 5
OWN_CV = 0.005
"""What a night does to one case of a host and not to another."""


@dataclass(frozen=True, kw_only=True)
class SimulatedNight:
    """What is measured on a night: throughput of the nightly repeats, and of pairs should anyone ask for them. In logs: `host`,
    what the night and the host do to whatever runs, and `build`, how fast the build of the night is.
    """

    values: tuple[float, ...]
    host: float
    build: float
    pair_noise: tuple[tuple[float, float], ...]

    def pairs(self, base: SimulatedNight) -> tuple[tuple[float, float], ...]:
        """The build of an earlier night and that of this one, measured in turns on this one."""
        return tuple((_speed(self.host + base.build + a), _speed(self.host + self.build + b)) for a, b in self.pair_noise)


def nights(
    rng: np.random.Generator, count: int, *, build: FloatArray | None = None, host: FloatArray | None = None
) -> list[SimulatedNight]:
    """`count` nights around 1,000 tok/s. `build` and `host`: logs of how fast each night's are, beside how they began."""
    return _measured(rng, _night_effects(rng, count, NIGHT_CV), build, host)


def beside_a_reference(
    rng: np.random.Generator, count: int, *, build: FloatArray | None = None, host: FloatArray | None = None, felt: float = 1.0
) -> tuple[list[SimulatedNight], list[SimulatedNight]]:
    """The same of a case, and of the reference of its host, which feels the share `felt` of what the host does."""
    shared = _night_effects(rng, count, float(np.sqrt(NIGHT_CV**2 - OWN_CV**2)))
    ours, theirs = (shared + rng.normal(0.0, OWN_CV, count) for _ in range(2))
    return _measured(rng, ours, build, host), _measured(rng, theirs, None, None if host is None else felt * host)


def step(count: int, at: int, drop: float) -> FloatArray:
    """A loss of the share `drop` from the night `at` on, in logs."""
    return np.where(np.arange(count) >= at, np.log1p(-drop), 0.0)


def slide(count: int, at: int, drop: float, over: int) -> FloatArray:
    """A loss of the share `drop` in even steps over so many nights, the first of them `at`, in logs."""
    return float(np.log1p(-drop)) * np.clip((np.arange(count) - at + 1) / over, 0.0, 1.0)


def _night_effects(rng: np.random.Generator, count: int, cv: float) -> FloatArray:
    shocks = rng.normal(0.0, cv * np.sqrt(1.0 - NIGHT_AR**2), count)
    effect = np.empty(count)
    effect[0] = rng.normal(0.0, cv)
    for i in range(1, count):
        effect[i] = NIGHT_AR * effect[i - 1] + shocks[i]
    return effect + np.where(rng.random(count) < BAD_SHARE, np.log1p(BAD_NIGHT), 0.0)


def _measured(
    rng: np.random.Generator, effects: FloatArray, build: FloatArray | None, host: FloatArray | None
) -> list[SimulatedNight]:
    builds = np.zeros(len(effects)) if build is None else build
    hosts = effects if host is None else effects + host
    repeats = rng.normal(0.0, TRIAL_CV, (len(effects), REPEATS)) + (hosts + builds)[:, None]
    noise = rng.normal(0.0, TRIAL_CV, (len(effects), PAIRS, 2))
    return [
        SimulatedNight(
            values=tuple(map(_speed, repeats[i])),
            host=float(hosts[i]),
            build=float(builds[i]),
            pair_noise=tuple((float(a), float(b)) for a, b in noise[i]),
        )
        for i in range(len(effects))
    ]


def _speed(log: float) -> float:
    return 1000.0 * float(np.exp(log))


def medians(seen: Sequence[SimulatedNight]) -> list[float]:
    """The mid repeat of each night."""
    return [float(np.median(night.values)) for night in seen]
