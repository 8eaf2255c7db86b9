"""Nights of a series as a noisy machine would give them. The gate sees only what comes out of here, one night at a time.

Night effect: AR(1), standard deviation 1.5%, correlation 0.4 from night to night; one night in 50 is 8% slow; three repeats with
0.6% noise each; pairs share their night.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

NIGHT_CV, NIGHT_AR, BAD_SHARE, BAD_NIGHT, REPEATS, TRIAL_CV, PAIRS = 0.015, 0.4, 0.02, -0.08, 3, 0.006, 5


@dataclass(frozen=True)
class SimulatedNight:
    """What is measured on a night: throughput of the nightly repeats, and of the pairs should anyone ask for them."""

    values: tuple[float, ...]
    pairs: tuple[tuple[float, float], ...]


def nights(
    rng: np.random.Generator, count: int, *, drop_at: int | None = None, drop: float = 0.0, host: bool = False
) -> Iterator[SimulatedNight]:
    """`count` nights around 1,000 tok/s. From `drop_at` on the build is slower by the share `drop`; with `host` the host
    is, so that the base build of a pair is as well.
    """
    shocks = rng.normal(0.0, NIGHT_CV * np.sqrt(1.0 - NIGHT_AR**2), count)
    effect = np.empty(count)
    effect[0] = rng.normal(0.0, NIGHT_CV)
    for i in range(1, count):
        effect[i] = NIGHT_AR * effect[i - 1] + shocks[i]
    effect += np.where(rng.random(count) < BAD_SHARE, np.log1p(BAD_NIGHT), 0.0)
    for i in range(count):
        dropped = np.log1p(-drop) if drop_at is not None and i >= drop_at else 0.0
        values = 1000.0 * np.exp(effect[i] + dropped + rng.normal(0.0, TRIAL_CV, REPEATS))
        base = 1000.0 * np.exp(effect[i] + (dropped if host else 0.0) + rng.normal(0.0, TRIAL_CV, PAIRS))
        cand = 1000.0 * np.exp(effect[i] + dropped + rng.normal(0.0, TRIAL_CV, PAIRS))
        yield SimulatedNight(tuple(values.tolist()), tuple(zip(base.tolist(), cand.tolist(), strict=True)))
