"""Records for tests: valid ones by default, with whatever the test is about replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from bench import __version__, identity
from bench.records import (
    MISSING,
    Case,
    ChunkKind,
    ClockAnchor,
    DeviceInfo,
    EngineHandle,
    EventLog,
    HostInfo,
    LengthSpec,
    LoadSpec,
    Metric,
    Outcome,
    Profile,
    Reading,
    Status,
    Telemetry,
    TrialKey,
    TrialRecord,
    Window,
)
from bench.store import ShardStore
from bench.timing.spec import SPECS

STARTED_WALL_NS = 1_796_050_800_000_000_000
"""2026-11-30T15:00:00Z."""
NS = 1_000_000_000


def make_case(**over: Any) -> Case:
    """A closed-loop case of eight requests in flight on a mock engine."""
    values: dict[str, Any] = {
        "name": "point",
        "suite": "demo",
        "model": "tiny",
        "model_source": None,
        "precision": "q4_1",
        "engine": "mock",
        "load": LoadSpec(kind="closed", batch_size=8),
        "input_tokens": LengthSpec(mean=64),
        "output_tokens": LengthSpec(mean=32),
        "duration_s": 10.0,
        "warmup_s": 1.0,
        "grace_s": 5.0,
        "request_timeout_s": 60.0,
        "idle_s": 1.0,
        "repeats": 1,
        "profile": Profile.SMOKE,
    }
    return Case(**(values | over))


def make_metric(name: str, value: float | None = None, **over: Any) -> Metric:
    """A metric of the table with its unit; a distribution gets `value` as its p50, and 1.2 and 1.5 times it above."""
    spec = SPECS[name]
    if value is None:
        numbers: dict[str, Any] = {"reason": "not measured"}
    elif spec.kind == "scalar":
        numbers = {"value": value, "n": 1}
    else:
        numbers = {"mean": value, "p50": value, "p90": value * 1.2, "p99": value * 1.5, "n": 400}
    return Metric(**({"name": name, "unit": spec.unit} | numbers | over))


def make_metrics(**values: float | Metric | None) -> dict[str, Metric]:
    """Metrics by name; a number becomes one, None an undefined one. Without arguments: those that a table shows."""
    defaults: dict[str, float | Metric | None] = {
        "ttft_ms": 50.0,
        "tpot_ms": 20.0,
        "output_tok_per_s": 400.0,
        "requests_per_s": 12.5,
        "memory_used_peak_b": 1.5 * 2**30,
        "j_per_output_tok": 0.25,
    }
    made: dict[str, Metric] = {}
    for name, value in (defaults | values).items():
        made[name] = value if isinstance(value, Metric) else make_metric(name, value)
    return made


def make_host(**over: Any) -> HostInfo:
    """A small Linux host."""
    values: dict[str, Any] = {
        "host_id": "host0001",
        "system": "Linux",
        "release": "6.1",
        "machine": "x86_64",
        "cpu_model": "Example CPU",
        "cpu_count": 8,
        "memory_b": 32 * 2**30,
        "python": "3.11.7",
    }
    return HostInfo(**(values | over))


def make_device(**over: Any) -> DeviceInfo:
    """One accelerator board."""
    values: dict[str, Any] = {
        "uid": "GPU-0001",
        "probe": "nvidia",
        "vendor": "nvidia",
        "name": "Example Accelerator",
        "index": 0,
        "scope": "accelerator",
    }
    return DeviceInfo(**(values | over))


def make_engine(**over: Any) -> EngineHandle:
    """A running mock engine."""
    values: dict[str, Any] = {
        "name": "mock",
        "version": "1.0",
        "build": None,
        "command": ("mock",),
        "env": {},
        "pids": (4242,),
        "settings": {"slots": 8},
        "precision": None,
        "start_s": 0.5,
        "log_path": None,
    }
    return EngineHandle(**(values | over))


def make_key(case: Case, run_id: str = "run-1", repeat: int = 0) -> TrialKey:
    """The ids that the session would give."""
    case_id = identity.case_id(case)
    return TrialKey(
        run_id=run_id,
        trial_id=identity.trial_id(run_id, case_id, repeat, "measure"),
        case_id=case_id,
        workload_id=identity.workload_id(case),
        repeat=repeat,
    )


def make_record(*, case: Case | None = None, run_id: str = "run-1", repeat: int = 0, **over: Any) -> TrialRecord:
    """A valid trial of ten seconds. Ids follow from case, run and repeat; repeats start twenty seconds apart."""
    case = case or make_case()
    start_ns = repeat * 20 * NS
    engine = make_engine(name=case.engine)
    series = identity.series_id(case, identity.workload_id(case), None, engine, ())
    values: dict[str, Any] = {
        "bench_version": __version__,
        "key": make_key(case, run_id, repeat),
        "status": Status.VALID,
        "case": case,
        "series_id": series,
        "config_id": identity.config_id(series, engine, ()),
        "engine": engine,
        "host": make_host(),
        "devices": (make_device(),),
        "window": Window(t0_ns=start_ns + 2 * NS, t1_ns=start_ns + 12 * NS),
        "started": ClockAnchor(monotonic_ns=start_ns + NS, wall_ns=STARTED_WALL_NS + start_ns),
        "ended": ClockAnchor(monotonic_ns=start_ns + 14 * NS, wall_ns=STARTED_WALL_NS + start_ns + 13 * NS),
        "energy_scope": "accelerator",
        "metrics": make_metrics(),
    }
    return TrialRecord(**(values | over))


def make_event_log(requests: int = 4, chunks_each: int = 3) -> EventLog:
    """Requests sent one after the other; the last one failed before any answer."""
    n, failed = requests, requests - 1
    sent = np.arange(n, dtype=np.int64) * 100_000_000 + 2 * NS
    missing = np.full(n, MISSING, dtype=np.int64)
    ok = np.arange(n) != failed
    outcome = np.where(ok, int(Outcome.OK), int(Outcome.CONNECT))
    owner = np.repeat(np.arange(n, dtype=np.int64)[ok], chunks_each)
    order = np.tile(np.arange(chunks_each, dtype=np.int64), int(ok.sum()))
    return EventLog(
        scheduled_ns=missing,
        sent_ns=sent,
        opened_ns=np.where(ok, sent + 1_000_000, MISSING),
        closed_ns=sent + 80_000_000,
        outcome=outcome.astype(np.int64),
        http_status=np.where(ok, 200, MISSING),
        input_requested=np.full(n, 64, dtype=np.int64),
        output_requested=np.full(n, chunks_each, dtype=np.int64),
        input_tokens=np.where(ok, 64, MISSING),
        output_tokens=np.where(ok, chunks_each, MISSING),
        cached_tokens=np.where(ok, 0, MISSING),
        reasoning_tokens=missing,
        worker=np.zeros(n, dtype=np.int64),
        finish_reason=tuple("length" if good else None for good in ok),
        error=tuple(None if good else "connection refused" for good in ok),
        chunk_request=owner,
        chunk_ns=sent[owner] + 20_000_000 * (order + 1),
        chunk_kind=np.full(len(owner), int(ChunkKind.CONTENT), dtype=np.int64),
        chunk_tokens=np.full(len(owner), MISSING, dtype=np.int64),
        chunk_bytes=order + 1,
    )


def make_telemetry(readings: int = 3) -> Telemetry:
    """Readings of one board ten times a second; the first lacks its power."""
    device = make_device()
    samples = tuple(
        Reading(
            uid=device.uid,
            before_ns=2 * NS + i * 100_000_000,
            after_ns=2 * NS + i * 100_000_000 + 1000,
            power_w=None if i == 0 else 100.0 + i,
            memory_used_b=2**30,
            throttle=None if i == 0 else (),
        )
        for i in range(readings)
    )
    return Telemetry(devices=(device,), readings=samples)


def save_trial(
    results: Path, record: TrialRecord | None = None, log: EventLog | None = None, telemetry: Telemetry | None = None
) -> Path:
    """A shard of `record` in `results`; returns its folder."""
    record = record or make_record()
    return ShardStore(results).begin(record.key, record.case).save(record, log, telemetry)


def same_log(one: EventLog, other: EventLog) -> bool:
    """Whether two event logs hold the same."""
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in structs.fields(EventLog)]
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)
