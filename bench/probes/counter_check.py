"""Whether an energy counter can be believed: its rise over half a second beside the integral of power."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from bench.clock import Clock
from bench.probes.values import attempt
from bench.units import NS_PER_S

CHECK_S = 0.5
_STEP_S = 0.02
SANE = (0.8, 1.2)
"""A ratio outside is worth a warning: a sensor that averages for long, or a load that changes."""
BELIEVABLE = (0.1, 10.0)
"""A ratio outside is a wrong unit or a dead counter. Some parts are off by 10 or 100 (ROCm/amdsmi issues 22 and 38)."""
_FEWEST = 3

Get = Callable[[], float]
Sensors = tuple[Get, Get | None]
"""The counter [J], and power [W] where there is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`ratio` of the counter's rise to the integral; `refused` and `warning` say why, None where there is nothing to say."""

    ratio: float | None
    refused: str | None = None
    warning: str | None = None


def check(sensors: Mapping[str, Sensors], clock: Clock, seconds: float = CHECK_S) -> dict[str, Verdict]:
    """A verdict for each device; all are watched at the same time. Raises: ProbeError for a lost device."""
    seen: dict[str, list[tuple[float, float, float]]] = {uid: [] for uid in sensors}
    end_ns = clock.monotonic_ns() + round(seconds * NS_PER_S)
    rounds = 0
    while clock.monotonic_ns() <= end_ns or rounds < _FEWEST:  # a busy machine may let the time pass in fewer
        rounds += 1
        for uid, (counter, power) in sensors.items():
            energy_j, power_w = attempt(counter)[0], attempt(power)[0] if power else None
            if energy_j is not None and power_w is not None:
                seen[uid].append((clock.monotonic_ns() / NS_PER_S, energy_j, power_w))
        clock.sleep(_STEP_S)
    return {uid: _verdict(points) for uid, points in seen.items()}


def _verdict(points: list[tuple[float, float, float]]) -> Verdict:
    if len(points) < _FEWEST:
        return Verdict(ratio=None, refused="no power to check the energy counter against")
    integral_j = sum((b[0] - a[0]) * (a[2] + b[2]) / 2 for a, b in pairwise(points))
    rise_j = points[-1][1] - points[0][1]
    if rise_j < 0:
        return Verdict(ratio=None, refused=f"the energy counter ran backwards by {-rise_j:.3g} J")
    ratio = rise_j / integral_j
    words = f"the energy counter rose by {rise_j:.3g} J while power says {integral_j:.3g} J (ratio {ratio:.3g})"
    if not BELIEVABLE[0] <= ratio <= BELIEVABLE[1]:
        return Verdict(ratio=ratio, refused=words)
    return Verdict(ratio=ratio, warning=None if SANE[0] <= ratio <= SANE[1] else words)
