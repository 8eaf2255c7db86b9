"""The load generator's judgement of itself, out of the log and its workers' gauges. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from bench.records import MISSING, ClientHealth, EventLog, IntArray, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGauges:
    """What one worker saw of itself, in ns: pairs of (when, how much)."""

    beat_at_ns: IntArray
    beat_lag_ns: IntArray
    send_at_ns: IntArray
    send_lag_ns: IntArray
    cpu_at_ns: IntArray
    cpu_ns: IntArray


GAUGES = tuple(f.name for f in fields(WorkerGauges))


def judge_client(
    log: EventLog, window: Window | None, gauges: Sequence[WorkerGauges], *, asked: int | None, loop: str
) -> ClientHealth:
    """Lags [ms], shares and concurrency over the window; over all of the run where there is no window."""
    t0, t1 = (window.t0_ns, window.t1_ns) if window is not None else (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
    send = np.concatenate([_inside(g.send_at_ns, g.send_lag_ns, t0, t1) for g in gauges])
    beat = np.concatenate([_inside(g.beat_at_ns, g.beat_lag_ns, t0, t1) for g in gauges])
    shares = [share for g in gauges if (share := _cpu_share(g, t0, t1)) is not None]
    return ClientHealth(
        workers=len(gauges),
        send_lag_p50_ms=_quantile_ms(send, 0.5),
        send_lag_p99_ms=_quantile_ms(send, 0.99),
        loop_lag_p99_ms=_quantile_ms(beat, 0.99),
        coalesced_read_share=coalesced_share(log, t0, t1),
        cpu_share=max(shares, default=None),
        in_flight_asked=asked,
        in_flight_reached=most_in_flight(log, t0, t1),
        loop=loop,
    )


def coalesced_share(log: EventLog, t0_ns: int, t1_ns: int) -> float | None:
    """Share of the reads in [t0, t1) with content that held more than one content event of their request. None without any."""
    inside = (log.chunk_ns >= t0_ns) & (log.chunk_ns < t1_ns)
    request, stamp = log.chunk_request[inside], log.chunk_ns[inside]
    if len(stamp) == 0:
        return None
    same = (request[1:] == request[:-1]) & (stamp[1:] == stamp[:-1])
    reads = len(stamp) - int(same.sum())
    begins_group = same & ~np.concatenate(([False], same[:-1]))
    return float(begins_group.sum()) / reads


def most_in_flight(log: EventLog, t0_ns: int, t1_ns: int) -> int:
    """Most requests that were in flight at one moment of [t0, t1)."""
    sent = log.sent_ns
    closed = np.where(log.closed_ns == MISSING, np.iinfo(np.int64).max, log.closed_ns)
    lives = (sent != MISSING) & (sent < t1_ns) & (closed > t0_ns)
    if not lives.any():
        return 0
    begin, end = np.maximum(sent[lives], t0_ns), np.minimum(closed[lives], t1_ns)
    moments = np.concatenate([end, begin])  # at one moment, ends come first: a refill takes the place of what it follows
    steps = np.concatenate([np.full(len(end), -1), np.full(len(begin), 1)])
    return int(np.cumsum(steps[np.argsort(moments, kind="stable")]).max())


def _inside(at_ns: IntArray, value: IntArray, t0: int, t1: int) -> IntArray:
    return value[(at_ns >= t0) & (at_ns < t1)]


def _quantile_ms(values_ns: IntArray, q: float) -> float | None:
    return float(np.quantile(values_ns, q)) / 1e6 if len(values_ns) else None


def _cpu_share(gauges: WorkerGauges, t0: int, t1: int) -> float | None:
    """CPU seconds per wall second between the window's edges; None where they weren't both seen."""
    at, cpu = gauges.cpu_at_ns, gauges.cpu_ns
    if len(at) < 2:
        return None
    begin, end = max(t0, int(at[0])), min(t1, int(at[-1]))
    if end <= begin:
        return None
    used = np.interp([begin, end], at, cpu)
    return float(used[1] - used[0]) / (end - begin)
