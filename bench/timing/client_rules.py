"""Whether the load generator distorted what it measured: every threshold on `ClientHealth`, and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bench.records import Case, ClientHealth, EventLog, FloatArray, Metric, Reason, Window
from bench.timing.counts import Vetted
from bench.timing.population import Population
from bench.timing.throughput import PerBlock
from bench.timing.validity import raise_code, threshold

TOLERANCE_MS = 1.0
"""A client may move a latency by this much, or by the table's share of it, whichever is more."""
MAX_CPU_SHARE = 0.9
"""A worker busier than this can't stamp in time."""
MAX_COALESCED_SHARE = 0.05
COALESCING_LAG_SHARE = 0.5
"""Events that share a read point at the client only when its loop is late by this share of a gap; else the server sent
them together."""
MIN_REACHED_SHARE = 0.95
"""The load counts as reached when this share of the requests asked for were in flight at once."""
OPEN_LAG_MS = 10.0
"""In open loop a send later than this is late, whatever the latencies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """All that the load rules look at."""

    case: Case
    log: EventLog
    window: Window
    members: Population
    counts: Vetted
    blocks: PerBlock
    metrics: Mapping[str, Metric]
    ttft_ms: FloatArray
    health: ClientHealth
    prompts_recycled: bool
    before: Mapping[str, float]
    after: Mapping[str, float]


def client_saturated(judged: Judged) -> tuple[Reason, ...]:
    """The client distorted what it measured: stamps came late, sends came late, or the load was never reached."""
    profile = judged.case.profile
    late = [text for text in (_late_loop(judged), _busy(judged.health)) if text]
    unsent = [text for text in (_late_sends(judged), _not_reached(judged)) if text]
    return (
        *(raise_code("client_saturated", profile, "; ".join((*late, *unsent)), groups=("latency",)) if late or unsent else ()),
        *(raise_code("client_saturated", profile, "; ".join(unsent), groups=("throughput",)) if unsent else ()),
    )


def _tolerance_ms(judged: Judged, latency_ms: float) -> float:
    return max(TOLERANCE_MS, threshold("client_saturated", judged.case.profile) * latency_ms)


def _spread_ms(metric: Metric) -> float | None:
    """How far the tail lies above the middle [ms]."""
    tail = metric.p99 if metric.p99 is not None else metric.p90
    return None if metric.p50 is None or tail is None else max(tail - metric.p50, 0.0)


def _moved_ms(lag_ms: float, spread_ms: float) -> float:
    """What a loop that is late by `lag_ms` (p99) adds to a tail that lies `spread_ms` above the middle [ms].

    Lateness and the true spread add in quadrature, so what it moved the tail by is what taking it out again gives. An engine
    on the client's own cores has a wide spread that a small lag hardly moves; against a metronome the lag is all there is.
    """
    return spread_ms - math.sqrt(max(spread_ms**2 - lag_ms**2, 0.0))


def _late_loop(judged: Judged) -> str | None:
    """All that a late loop did, behind how late it was."""
    lag = judged.health.loop_lag_p99_ms
    done = [text for text in (_late_first(judged), _late_gaps(judged), _coalesced(judged)) if text]
    return f"the client's loop was late by {lag:.1f} ms (p99): {', '.join(done)}" if lag is not None and done else None


def _late_first(judged: Judged) -> str | None:
    """First chunks stamped late. A lag wider than the spread may sit under every TTFT alike, so it counts in full."""
    lag, ttft = judged.health.loop_lag_p99_ms, judged.metrics["ttft_ms"]
    if lag is None or ttft.p50 is None or (spread := _spread_ms(ttft)) is None:
        return None
    moved = lag if lag >= spread else _moved_ms(lag, spread)
    if moved <= _tolerance_ms(judged, ttft.p50):
        return None
    return f"that may be {moved:.1f} ms of a TTFT of {ttft.p50:.1f} ms"


def _late_gaps(judged: Judged) -> str | None:
    """Gaps stretched by a late loop; what is late alike on both ends cancels. TPOT averages over a reply, so it moves by
    less than this and needs no rule of its own.
    """
    lag, gap = judged.health.loop_lag_p99_ms, judged.metrics["icl_ms"]
    if lag is None or gap.p50 is None or (spread := _spread_ms(gap)) is None:
        return None
    moved = _moved_ms(lag, spread)
    if moved <= _tolerance_ms(judged, gap.p99 or gap.p50):
        return None
    return f"that may be {moved:.1f} ms of the tail of ICL ({gap.p50:.1f} ms)"


def _coalesced(judged: Judged) -> str | None:
    share, lag, gap = judged.health.coalesced_read_share, judged.health.loop_lag_p99_ms, judged.metrics["icl_ms"].p50
    if share is None or lag is None or gap is None or share <= MAX_COALESCED_SHARE:
        return None
    if lag <= COALESCING_LAG_SHARE * gap or lag <= TOLERANCE_MS:
        return None
    return f"{share:.0%} of reads held several events"


def _busy(health: ClientHealth) -> str | None:
    if health.cpu_share is None or health.cpu_share <= MAX_CPU_SHARE:
        return None
    return f"a worker used {health.cpu_share:.0%} of a core: use more workers"


def _late_sends(judged: Judged) -> str | None:
    """Closed loop: the refill delay empties slots for its share of a request's life. Open loop: late sends thin out the
    offered load, unless a cap on concurrency was asked to do just that.
    """
    load, health = judged.case.load, judged.health
    if load.kind == "closed":
        lag, life = health.send_lag_p50_ms, judged.metrics["e2e_ms"].p50
        if lag is None or life is None or lag <= _tolerance_ms(judged, life):
            return None
        return f"slots stood empty for {lag:.1f} ms (p50) between requests of {life:.1f} ms"
    lag, ttft = health.send_lag_p99_ms, judged.metrics["ttft_ms"].p50
    if lag is None or load.max_concurrency is not None or lag <= max(OPEN_LAG_MS, _tolerance_ms(judged, ttft or 0.0)):
        return None
    return f"requests were sent {lag:.1f} ms (p99) after they were due"


def _not_reached(judged: Judged) -> str | None:
    asked = judged.health.in_flight_asked
    if asked is None or judged.case.load.kind != "closed":
        return None
    asked = min(asked, judged.case.load.num_prompts or asked)
    if judged.health.in_flight_reached >= math.ceil(MIN_REACHED_SHARE * asked):
        return None
    return f"{asked} requests in flight asked for, {judged.health.in_flight_reached} reached"
