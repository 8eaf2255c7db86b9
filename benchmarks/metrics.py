"""How long the timing core takes: one million chunks, and ten minutes of eight boards, through every metric and rule.

Run: python benchmarks/metrics.py [--chunks 1000000]
"""

from __future__ import annotations

import argparse
import time

import click
import numpy as np

from bench.records import (
    MISSING,
    Case,
    ClientHealth,
    DeviceInfo,
    EventLog,
    LengthSpec,
    LoadResult,
    LoadSpec,
    Profile,
    Reading,
    SensorInfo,
    Telemetry,
    Window,
)
from bench.timing import measure

SECONDS, STREAMS, TOKENS = 600, 256, 200
GOAL_S = 1.0


def event_log(chunks: int) -> EventLog:
    """A closed loop of 256 streams that fills ten minutes."""
    rng = np.random.default_rng(0)
    n = chunks // TOKENS
    sent_ns = np.sort(rng.integers(-10 * 10**9, SECONDS * 10**9, n))
    sent_ns += 20 * 10**9  # stamps are never negative
    gaps = rng.lognormal(17, 0.2, size=(n, TOKENS)).astype(np.int64)
    stamps = sent_ns[:, None] + np.cumsum(gaps, axis=1)

    def column(value: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.full(n, value, dtype=np.int64)

    return EventLog(
        scheduled_ns=column(MISSING),
        sent_ns=sent_ns,
        opened_ns=sent_ns + 10**6,
        closed_ns=stamps[:, -1] + 10**5,
        outcome=column(0),
        http_status=column(200),
        input_requested=column(128),
        output_requested=column(TOKENS),
        input_tokens=column(128),
        output_tokens=column(TOKENS),
        cached_tokens=column(0),
        reasoning_tokens=column(MISSING),
        worker=column(0),
        finish_reason=("length",) * n,
        error=(None,) * n,
        chunk_request=np.repeat(np.arange(n), TOKENS),
        chunk_ns=stamps.reshape(-1),
        chunk_kind=np.zeros(n * TOKENS, dtype=np.int64),
        chunk_tokens=np.full(n * TOKENS, MISSING, dtype=np.int64),
        chunk_bytes=rng.integers(1, 12, n * TOKENS),
    )


def telemetry(boards: int) -> Telemetry:
    """Ten polls a second of each board's power and counter."""
    sensor = SensorInfo(api="x", unit="W", averaging_window_s=1.0, gain_error=0.05)
    uids = [f"gpu-{i}" for i in range(boards)]
    devices = tuple(
        DeviceInfo(uid=u, probe="p", vendor="v", name="b", index=i, scope="accelerator", power=sensor, energy=sensor)
        for i, u in enumerate(uids)
    )
    readings = tuple(
        Reading(uid=u, before_ns=t, after_ns=t + 10**6, power_w=600.0, energy_j=600.0 * t / 1e9, temperature_c=60.0, throttle=())
        for t in range(15 * 10**9, (SECONDS + 25) * 10**9, 10**8)
        for u in uids
    )
    return Telemetry(devices=devices, readings=readings, period_s=0.1)


def a_trial(chunks: int) -> tuple[Case, LoadResult]:
    """A case and what its load brought."""
    case = Case(
        name="b",
        suite="b",
        model="m",
        model_source=None,
        precision=None,
        engine="mock",
        load=LoadSpec(kind="closed", batch_size=STREAMS),
        input_tokens=LengthSpec(mean=128),
        output_tokens=LengthSpec(mean=TOKENS),
        duration_s=SECONDS,
        warmup_s=10,
        grace_s=30,
        request_timeout_s=600,
        idle_s=0,
        repeats=1,
        profile=Profile.OFFICIAL,
    )
    health = ClientHealth(
        workers=1,
        send_lag_p50_ms=0.1,
        send_lag_p99_ms=0.5,
        loop_lag_p99_ms=0.3,
        coalesced_read_share=0.0,
        cpu_share=0.3,
        in_flight_asked=STREAMS,
        in_flight_reached=STREAMS,
        loop="uvloop",
    )
    window = Window(t0_ns=20 * 10**9, t1_ns=(20 + SECONDS) * 10**9)
    return case, LoadResult(log=event_log(chunks), window=window, health=health, dataset_hash="d")


def main() -> None:
    """Print the best of three runs with and without boards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    chunks = parser.parse_args().chunks
    case, load = a_trial(chunks)
    for boards in (0, 8):
        seen = telemetry(boards)
        times = []
        for _ in range(3):
            before = time.perf_counter()
            measured = measure(case, load, seen, {}, {})
            times.append(time.perf_counter() - before)
        rate, reasons = measured.metrics["output_tok_per_s"].value, sorted({r.code for r in measured.reasons})
        click.echo(f"{chunks} chunks, {boards} boards: {min(times):.3f} s (goal {GOAL_S} s), {rate:.0f} tok/s, reasons {reasons}")


if __name__ == "__main__":
    main()
