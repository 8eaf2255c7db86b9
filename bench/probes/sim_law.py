"""The law of the simulated device: joules from tokens. Pure.

    E(t) = idle_w * (t - t0) + j_per_token * N(t)        N(t): tokens sent up to t
    P(t) = (E(t) - E(t - w)) / w                         w: averaging window of its power sensor
    counter(t) = E(u * floor(t / u))                     u: update period of its counter

So over a window that begins and ends in steady state, J per token is idle_w / (tokens per second) + j_per_token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from bench.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """What a simulated device draws. `noise`: standard deviation of a power reading, relative."""

    idle_w: float = 50.0
    j_per_token: float = 0.05
    update_s: float = 0.02
    averaging_s: float = 0.1
    noise: float = 0.0


class Emitted:
    """N(t), tokens sent up to t, over the last `kept_s` seconds."""

    def __init__(self, kept_s: float = 5.0) -> None:
        self._kept_ns = round(kept_s * NS_PER_S)
        self._stamps_ns: deque[int] = deque([0])
        self._totals: deque[int] = deque([0])

    @property
    def total(self) -> int:
        """Tokens sent so far."""
        return self._totals[-1]

    def add(self, stamp_ns: int, tokens: int) -> None:
        """`tokens` more, sent at `stamp_ns`; stamps don't fall by more than their writers' threads may cross."""
        if tokens == 0:
            return
        self._stamps_ns.append(max(stamp_ns, self._stamps_ns[-1]))
        self._totals.append(self.total + tokens)
        while len(self._stamps_ns) > 2 and self._stamps_ns[1] < stamp_ns - self._kept_ns:
            self._stamps_ns.popleft()
            self._totals.popleft()

    def until(self, at_ns: int) -> int:
        """N(t)."""
        return self._totals[max(0, bisect_right(self._stamps_ns, at_ns) - 1)]


def energy_j(law: Law, emitted: Emitted, start_ns: int, at_ns: int) -> float:
    """E(t) [J]."""
    return law.idle_w * max(0, at_ns - start_ns) / NS_PER_S + law.j_per_token * emitted.until(at_ns)


def counter_j(law: Law, emitted: Emitted, start_ns: int, at_ns: int) -> float:
    """What the counter shows at t: E at its last update [J]."""
    step_ns = round(law.update_s * NS_PER_S)
    return energy_j(law, emitted, start_ns, at_ns // step_ns * step_ns if step_ns else at_ns)


def power_w(law: Law, emitted: Emitted, at_ns: int) -> float:
    """P(t), without noise [W]."""
    tokens = emitted.until(at_ns) - emitted.until(at_ns - round(law.averaging_s * NS_PER_S))
    return law.idle_w + law.j_per_token * tokens / law.averaging_s
