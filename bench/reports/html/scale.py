"""Numbers to places on an axis. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_LOG_FROM = 8.0
"""Numbers that are this many times apart get a logarithmic axis."""
_LOG_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
_FEWEST_TICKS = 4
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis from `low` to `high` with its `ticks`."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Where `value` lies, 0 at `low` and 1 at `high`; what lies outside is at the nearer end."""
        if self.log:
            low, high, at = math.log(self.low), math.log(self.high), math.log(max(value, self.low))
        else:
            low, high, at = self.low, self.high, value
        return min(max((at - low) / (high - low), 0.0), 1.0)


def scale_for(values: Iterable[float], *, from_zero: bool = True, log: bool | None = None) -> Scale:
    """An axis that holds `values`: logarithmic where they are far apart (or as `log` says), else from zero, or with `from_zero`
    False around them.
    """
    found = [value for value in values if math.isfinite(value)] or [1.0]
    low, high = min(found), max(found)
    if low > 0.0 and (high / low > _LOG_FROM if log is None else log):
        return _log_scale(low / 1.15, high * 1.15)
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    start = min(0.0, low) if from_zero else low - margin
    return _linear_scale(max(start, 0.0) if low >= 0.0 else start, high + margin)


def span(low: float, high: float, *, ticks: int = 6) -> Scale:
    """An axis from exactly `low` to `high`."""
    step = _step((high - low) / ticks)
    first = math.ceil(low / step - 1e-9)
    marks = (first + i for i in range(ticks * 4))
    return Scale(low=low, high=high, log=False, ticks=tuple(at * step for at in marks if at * step <= high * (1 + 1e-12)))


def tick_text(value: float) -> str:
    """`0`, `0.25`, `50`, `1,200`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def _linear_scale(low: float, high: float) -> Scale:
    step = _step((high - low) / 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Scale(low=first * step, high=last * step, log=False, ticks=tuple(i * step for i in range(first, last + 1)))


def _log_scale(low: float, high: float) -> Scale:
    """Ticks at round numbers, as few kinds of them as give enough; evenly spaced ones where the axis is shorter than that."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    kinds = ([step * 10.0**decade for decade in decades for step in steps] for steps in _LOG_STEPS)
    tried = (tuple(tick for tick in ticks if low <= tick <= high) for ticks in kinds)
    ticks = next((found for found in tried if len(found) >= _FEWEST_TICKS), None) or span(low, high, ticks=4).ticks
    return Scale(low=low, high=high, log=True, ticks=ticks)


def _step(about: float) -> float:
    """The round number next above `about`."""
    decade = 10.0 ** math.floor(math.log10(about))
    return next(step * decade for step in _STEPS if step * decade >= about * (1 - 1e-9))
