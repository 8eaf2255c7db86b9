"""What a probe child and the harness say to each other: one JSON object a line, from the child's private stdout."""

from __future__ import annotations

from dataclasses import dataclass

from bench.ports import Discovery
from bench.records import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class RawValue:
    """A quantity as the vendor hands it out, before any conversion."""

    quantity: str
    api: str
    unit: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a child's stream.

    `discovery`: everything known by now, replacing what was sent before. `watched`: how many `watch` commands it includes.
    `readings`: one tick, empty where every device failed, so that a line is also a sign of life. `period_s`: how often it
    polls from now on. `settled`: its sensors have been timed, and it polls evenly
    from now on. `raw`: unconverted values by uid, the answer to `raw`. `fatal`: the probe is unusable, and why; the child ends
    after it.
    """

    discovery: Discovery | None = None
    watched: int = 0
    readings: tuple[Reading, ...] = ()
    period_s: float | None = None
    settled: bool = False
    raw: dict[str, tuple[RawValue, ...]] | None = None
    fatal: str | None = None


WATCH = "watch"
"""Command: `watch PID...`, observe these process trees too."""

RAW = "raw"
"""Command: read every device once more and tell the values unconverted."""

CLOSE = "close"
"""Command: let go of the library and end. End of input means the same."""
