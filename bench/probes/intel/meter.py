"""Power of a card that only counts its energy: the rise of the counter over the last quarter of a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.probes.cards import Quantity
from bench.probes.values import Unavailable, believable_w
from bench.units import J_PER_UJ

WINDOW_S = 0.25
"""Older drivers count whole joules: over a shorter time the difference would be mostly rounding."""
_US_PER_S = 1e6

Point = tuple[int, int]
"""Microjoules, and microseconds of the clock that the counter is stamped with."""


@dataclass(slots=True)
class EnergyMeter:
    """A counter and its recent past."""

    read: Callable[[], Point]
    _past: deque[Point] = field(default_factory=deque)

    def energy_uj(self) -> int:
        """The counter [uJ]. Raises: Unavailable where it is 0: it does not count."""
        energy_uj, at_us = self.read()
        if energy_uj == 0:
            raise Unavailable("the energy counter is 0", lasting=False)
        if self._past and (energy_uj < self._past[-1][0] or at_us < self._past[-1][1]):
            self._past.clear()  # the driver was reloaded or the card was reset
        self._past.append((energy_uj, at_us))
        while len(self._past) > 1 and at_us - self._past[1][1] >= WINDOW_S * _US_PER_S:
            self._past.popleft()
        return energy_uj

    def energy_j(self) -> float:
        """The counter [J]."""
        return self.energy_uj() * J_PER_UJ

    def power_w(self) -> float:
        """Watts since the newest reading that is a window old. Raises: Unavailable where there is none yet."""
        now_uj = self.energy_uj()
        (then_uj, then_us), (_, now_us) = self._past[0], self._past[-1]
        if now_us - then_us < WINDOW_S * _US_PER_S:
            raise Unavailable(f"the counter has not been watched for {WINDOW_S:g} s yet", lasting=False)
        return (now_uj - then_uj) / (now_us - then_us)


def quantities(meter: EnergyMeter, api: str, limit_w: float | None) -> dict[str, Quantity]:
    """Power and energy of a meter that reads `api`."""
    return {
        "power_w": Quantity(
            get=lambda: believable_w(meter.power_w(), limit_w),
            api=f"difference of {api}",
            unit="uJ/us",
            averaging_window_s=WINDOW_S,
        ),
        "energy_j": Quantity(get=meter.energy_j, raw=meter.energy_uj, api=api, unit="uJ"),
    }
