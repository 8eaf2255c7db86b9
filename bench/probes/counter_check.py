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
"""A ratio outside is worth a warning, where timing can't explain it: a sensor that averages for long, or a load that changes."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Both sensors read between two moments [s]: on a busy machine these may lie far apart."""

    before_s: float
    after_s: float
    energy_j: float
    power_w: float


def check(sensors: Mapping[str, Sensors], clock: Clock, seconds: float = CHECK_S) -> dict[str, Verdict]:
    """A verdict for each device; all are watched at the same time. Raises: ProbeError for a lost device."""
    seen: dict[str, list[_Seen]] = {uid: [] for uid in sensors}
    end_ns = clock.monotonic_ns() + round(seconds * NS_PER_S)
    rounds = 0
    while clock.monotonic_ns() <= end_ns or rounds < _FEWEST:  # a busy machine may let the time pass in fewer
        rounds += 1
        for uid, (counter, power) in sensors.items():
            before_s = clock.monotonic_ns() / NS_PER_S
            energy_j, power_w = attempt(counter)[0], attempt(power)[0] if power else None
            after_s = clock.monotonic_ns() / NS_PER_S
            if energy_j is not None and power_w is not None:
                seen[uid].append(_Seen(before_s=before_s, after_s=after_s, energy_j=energy_j, power_w=power_w))
        clock.sleep(_STEP_S)
    return {uid: _verdict(points) for uid, points in seen.items()}


def _verdict(seen: list[_Seen]) -> Verdict:
    integral_j = sum((b.after_s - a.after_s) * (a.power_w + b.power_w) / 2 for a, b in pairwise(seen))
    if len(seen) < _FEWEST or integral_j <= 0:
        return Verdict(ratio=None, refused="no power to check the energy counter against")
    rise_j = seen[-1].energy_j - seen[0].energy_j
    if rise_j < 0:
        return Verdict(ratio=None, refused=f"the energy counter ran backwards by {-rise_j:.3g} J")
    ratio = rise_j / integral_j
    words = f"the energy counter rose by {rise_j:.3g} J while power says {integral_j:.3g} J (ratio {ratio:.3g})"
    if not BELIEVABLE[0] <= ratio <= BELIEVABLE[1]:
        return Verdict(ratio=ratio, refused=words)
    length_s, slack_s = seen[-1].after_s - seen[0].after_s, _slack_s(seen)
    too_low = ratio * length_s < SANE[0] * (length_s - slack_s)
    too_high = ratio * length_s > SANE[1] * (length_s + slack_s)
    return Verdict(ratio=ratio, warning=words if too_low or too_high else None)


def _slack_s(seen: list[_Seen]) -> float:
    """How much longer or shorter the time may be in which the counter rose than that between the first and the last stamp [s].

    Each stamp may be off by the length of its reading, and the counter's value as old as the longest time that it stood still.
    """
    calls_s = seen[0].after_s - seen[0].before_s + seen[-1].after_s - seen[-1].before_s
    moved = [b.energy_j != a.energy_j for a, b in pairwise(seen)]
    if all(moved):
        return calls_s
    at_s = [seen[0].after_s, *(b.after_s for b, changed in zip(seen[1:], moved, strict=True) if changed), seen[-1].after_s]
    return calls_s + max(b - a for a, b in pairwise(at_s))
