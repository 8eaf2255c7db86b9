"""Which requests a trial is judged by, and which events lie in its window. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bench.records import MISSING, EventLog, IntArray, Outcome, Window

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Requests sent (closed loop) or scheduled (open loop) in the window, followed to their end; of a whole job, all of them.

    `members` over the whole log; `ok`: members that succeeded; `failed`: members that ended badly on their own (time-outs
    included); `unfinished`: members that we cut off, as after the grace. `ok`, `failed` and `unfinished` are disjoint.
    """

    members: BoolArray
    ok: BoolArray
    failed: BoolArray
    unfinished: BoolArray

    @property
    def count(self) -> int:
        """Requests in the population."""
        return int(self.members.sum())


def in_window(stamps_ns: IntArray, window: Window) -> BoolArray:
    """Which stamps lie in `[t0, t1)`."""
    return np.asarray((stamps_ns != MISSING) & (stamps_ns >= window.t0_ns) & (stamps_ns < window.t1_ns))


def population(log: EventLog, window: Window, kind: Literal["closed", "open"]) -> Population:
    """The requests whose latencies count. A whole job's window is that of its content: what was due before its first send, or
    failed after its last content, belongs to the job all the same.
    """
    start_ns = log.sent_ns if kind == "closed" else np.where(log.scheduled_ns != MISSING, log.scheduled_ns, log.sent_ns)
    members = start_ns != MISSING if window.kind == "whole_job" else in_window(start_ns, window)
    ok = members & (log.outcome == Outcome.OK)
    unfinished = members & (log.outcome == Outcome.CANCELLED)
    return Population(members=members, ok=ok, failed=members & ~ok & ~unfinished, unfinished=unfinished)


def in_flight_mean(log: EventLog, window: Window) -> float:
    """Requests in flight, averaged over the window: their summed time in it over its length (Little's L)."""
    sent = log.sent_ns != MISSING
    start_ns = np.maximum(log.sent_ns[sent], window.t0_ns)
    closed_ns = np.where(log.closed_ns[sent] == MISSING, window.t1_ns, log.closed_ns[sent])
    overlap_ns = np.clip(np.minimum(closed_ns, window.t1_ns) - start_ns, 0, None)
    return float(overlap_ns.sum()) / (window.t1_ns - window.t0_ns)
