"""Small builders of records for the tests of the timing core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bench.records import (
    MISSING,
    Case,
    ChunkKind,
    ClientHealth,
    DeviceInfo,
    EventLog,
    LengthSpec,
    LoadResult,
    LoadSpec,
    Outcome,
    Profile,
    Quality,
    Reading,
    Scope,
    SensorInfo,
    Telemetry,
    Window,
)

S = 1_000_000_000
MS = 1_000_000
CLOSED = LoadSpec(kind="closed", batch_size=4)
OPEN = LoadSpec(kind="open", request_rate=10.0, arrivals="poisson")


def make_case(*, load: LoadSpec = CLOSED, profile: Profile = Profile.SMOKE, **changes: Any) -> Case:
    """A case whose numbers nobody reads unless a test sets them."""
    fixed: dict[str, Any] = {
        "name": "c",
        "suite": "s",
        "model": "m",
        "model_source": None,
        "precision": None,
        "engine": "mock",
        "input_tokens": LengthSpec(mean=8),
        "output_tokens": LengthSpec(mean=8),
        "duration_s": 10.0,
        "warmup_s": 1.0,
        "grace_s": 5.0,
        "request_timeout_s": 60.0,
        "idle_s": 1.0,
        "repeats": 1,
    }
    return Case(load=load, profile=profile, **(fixed | changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request in ms from the origin; chunks as (ms, bytes) or (ms, bytes, kind, tokens)."""

    sent_ms: float | None = 0.0
    scheduled_ms: float | None = None
    chunks: Sequence[tuple[Any, ...]] = ()
    closed_ms: float | None = None
    outcome: Outcome = Outcome.OK
    usage: int | None = None
    prompt: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    finish: str | None = "length"
    output_requested: int | None = None
    input_requested: int | None = None
    error: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def steady(sent_ms: float, *, ttft_ms: float = 50.0, gap_ms: float = 20.0, n: int = 8, **changes: Any) -> Request:
    """A request that streams `n` tokens, one a chunk, like clockwork."""
    chunks = [(sent_ms + ttft_ms + gap_ms * i, 4) for i in range(n)]
    fixed: dict[str, Any] = {"usage": n, "prompt": 8, "closed_ms": chunks[-1][0] + 1 if chunks else sent_ms + ttft_ms}
    return Request(sent_ms=sent_ms, chunks=chunks, **(fixed | changes))


def _stamp(ms: float | None, origin_ns: int) -> int:
    return MISSING if ms is None else origin_ns + round(ms * MS)


def _count(value: int | None) -> int:
    return MISSING if value is None else value


def make_log(requests: Sequence[Request], origin_ns: int = 0) -> EventLog:
    """An event log in columns."""
    chunks = [
        (i, *(*chunk, ChunkKind.CONTENT, MISSING)[: max(4, len(chunk))]) for i, r in enumerate(requests) for chunk in r.chunks
    ]
    rows = [(c[0], c[1], c[2], c[3], c[4]) for c in chunks]

    def column(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array(values, dtype=np.int64)

    n = len(requests)
    return EventLog(
        scheduled_ns=column([_stamp(r.scheduled_ms, origin_ns) for r in requests]),
        sent_ns=column([_stamp(r.sent_ms, origin_ns) for r in requests]),
        opened_ns=column([MISSING] * n),
        closed_ns=column([_stamp(r.closed_ms, origin_ns) for r in requests]),
        outcome=column([r.outcome for r in requests]),
        http_status=column([200] * n),
        input_requested=column([_count(r.input_requested) for r in requests]),
        output_requested=column([_count(r.output_requested) for r in requests]),
        input_tokens=column([_count(r.prompt) for r in requests]),
        output_tokens=column([_count(r.usage) for r in requests]),
        cached_tokens=column([_count(r.cached) for r in requests]),
        reasoning_tokens=column([_count(r.reasoning) for r in requests]),
        worker=column([0] * n),
        finish_reason=tuple(r.finish for r in requests),
        error=tuple(r.error for r in requests),
        chunk_request=column([row[0] for row in rows]),
        chunk_ns=column([_stamp(row[1], origin_ns) for row in rows]),
        chunk_kind=column([row[3] for row in rows]),
        chunk_tokens=column([row[4] for row in rows]),
        chunk_bytes=column([row[2] for row in rows]),
    )


def window_ms(t0: float, t1: float, origin_ns: int = 0, kind: Literal["steady", "whole_job"] = "steady") -> Window:
    """A window in ms from the origin."""
    return Window(t0_ns=origin_ns + round(t0 * MS), t1_ns=origin_ns + round(t1 * MS), kind=kind)


HEALTHY = ClientHealth(
    workers=1,
    send_lag_p50_ms=0.05,
    send_lag_p99_ms=0.2,
    loop_lag_p99_ms=0.1,
    coalesced_read_share=0.0,
    cpu_share=0.2,
    in_flight_asked=4,
    in_flight_reached=4,
    loop="uvloop",
)


def make_load(log: EventLog, window: Window | None, health: ClientHealth = HEALTHY) -> LoadResult:
    """What a load generator hands back."""
    return LoadResult(log=log, window=window, health=health, dataset_hash="d")


def closed_loop(
    *, slots: int = 4, seconds: float = 10.0, until_s: float | None = None, gap_ms: float = 20.0, n: int = 8, lead_s: float = 1.0
) -> list[Request]:
    """Requests of a closed loop that starts `lead_s` before 0 and refills at once."""
    life_ms = 50.0 + gap_ms * (n - 1) + 1.0
    stop_ms = (seconds if until_s is None else until_s) * 1e3
    found = []
    for slot in range(slots):
        at_ms = -lead_s * 1e3 + slot * life_ms / slots
        while at_ms < stop_ms:
            found.append(steady(at_ms, gap_ms=gap_ms, n=n))
            at_ms += life_ms
    return sorted(found, key=lambda r: r.sent_ms or 0.0)


# --- devices ----------------------------------------------------------------------------------------------------------

POWER = SensorInfo(api="power", unit="W", gain_error=0.05)
ENERGY = SensorInfo(api="energy", unit="J", gain_error=0.05)


def make_device(
    uid: str = "gpu-0",
    *,
    scope: Scope = "accelerator",
    quality: Quality = "measured",
    power: SensorInfo | None = POWER,
    energy: SensorInfo | None = None,
    **changes: Any,
) -> DeviceInfo:
    """A board."""
    fixed: dict[str, Any] = {"probe": "fake", "vendor": "v", "name": "board", "index": 0}
    return DeviceInfo(uid=uid, scope=scope, quality=quality, power=power, energy=energy, **(fixed | changes))


def poll(
    t0_s: float,
    t1_s: float,
    period_s: float,
    *,
    uid: str = "gpu-0",
    power_w: Callable[[float], float | None] | None = None,
    energy_j: Callable[[float], float | None] | None = None,
    origin_ns: int = 0,
    **changes: Any,
) -> tuple[Reading, ...]:
    """Readings every `period_s` from `t0_s` to `t1_s`, both ends included."""
    times = [t0_s + i * period_s for i in range(round((t1_s - t0_s) / period_s) + 1)]
    return tuple(
        Reading(
            uid=uid,
            before_ns=origin_ns + round(t * S),
            after_ns=origin_ns + round(t * S),
            power_w=power_w(t) if power_w else None,
            energy_j=energy_j(t) if energy_j else None,
            **changes,
        )
        for t in times
    )


def telemetry(devices: Sequence[DeviceInfo], readings: Sequence[Reading], period_s: float = 0.1, **changes: Any) -> Telemetry:
    """Readings of devices."""
    return Telemetry(devices=tuple(devices), readings=tuple(readings), period_s=period_s, **changes)
