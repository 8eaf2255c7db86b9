"""A report with each thing that one can hold: engines and devices of several vendors, nights, a comparison, what went wrong."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from typing import Any

import numpy as np
from msgspec.structs import replace

from bench.analysis.compare import COMPARED, Point, Sample, adjust, compare_points
from bench.analysis.compare_pairs import Compared, Pair
from bench.analysis.gate import RULES, Night, judge_all
from bench.analysis.series import SeriesHistory, SeriesKey
from bench.records import (
    ClockAnchor,
    LengthSpec,
    LoadSpec,
    Metric,
    Profile,
    Reading,
    Reason,
    SensorInfo,
    Status,
    Telemetry,
    TrialRecord,
    Window,
)
from bench.reports.html import Report, Trace
from tests.factories import (
    NS,
    STARTED_WALL_NS,
    make_case,
    make_device,
    make_engine,
    make_host,
    make_metric,
    make_metrics,
    make_record,
)

MODEL = "llama-3.1-8b-instruct"
SETTINGS = {
    ("vllm", "0.32.0", "fp8", "NVIDIA H200", 1): (5.1, 0.062, 220.0, 690.0),
    ("sglang", "0.5.9", "fp8", "NVIDIA H200", 1): (4.8, 0.071, 220.0, 690.0),
    ("vllm", "0.32.0", "fp8", "AMD Instinct MI300X", 1): (6.3, 0.058, 260.0, 740.0),
    ("mindie", "2.2.0", "w8a8", "Ascend 910B4", 1): (14.0, 0.19, 140.0, 380.0),
    ("llamacpp", "b7200", "q8_0", "Apple M4 Max", 1): (16.5, 1.4, 8.0, 92.0),
}
"""Engine, version, precision, device, count: ms a token alone, ms more for each other request, watts idle and at most."""
BATCHES = (1, 4, 16, 64, 128, 256)
THERMAL = Reason(code="throttled_thermal", group="all", severity="warning", message="npu0: slowed down by heat in 4% of readings")
NOT_STEADY = Reason(
    code="not_steady",
    group="throughput",
    severity="invalid",
    message="output tokens moved by -18.6% across the window (99% interval -34.7% to -2.5%)",
)
NO_POWER = "no probe found a device that measures power"


def sample_records(repeats: int = 3, settings: Any = SETTINGS, batches: tuple[int, ...] = BATCHES) -> list[TrialRecord]:
    """Sweeps over the batch, one disturbed repeat, one throttled row, a sweep without energy, an engine that didn't start."""
    rng, found = np.random.default_rng(7), []
    for place, (setting, physics) in enumerate(settings.items()):
        for batch in batches if setting[0] != "llamacpp" else batches[:4]:
            found += [_measured(setting, physics, batch, repeat, rng, place) for repeat in range(repeats)]
    case = make_case(
        name="dead",
        model=MODEL,
        engine="tensorrt-llm",
        precision="fp8",
        load=LoadSpec(kind="closed", batch_size=64),
        input_tokens=LengthSpec(mean=1024),
        output_tokens=LengthSpec(mean=512),
    )
    error = "the engine died: signal 9 (out of memory)\nlog"
    over: dict[str, Any] = {"metrics": {}, "config_id": None, "engine": None, "devices": ()}
    return [*found, make_record(case=case, status=Status.FAILED, error=error, **over)]


def _measured(setting: Any, physics: Any, batch: int, repeat: int, rng: np.random.Generator, place: int) -> TrialRecord:
    engine, version, precision, device, count = setting
    disturbed = engine == "sglang" and batch == 64 and repeat == 1
    case = make_case(
        name=f"b{batch}",
        model=MODEL,
        engine=engine,
        precision=precision,
        load=LoadSpec(kind="closed", batch_size=batch),
        input_tokens=LengthSpec(mean=1024),
        output_tokens=LengthSpec(mean=512),
        profile=Profile.NIGHTLY,
        repeats=3,
    )
    board: dict[str, Any] = {"name": device, "driver": "570.86", "memory_total_b": 141 << 30, "power_limit_w": 700.0}
    return make_record(
        case=case,
        run_id=f"20261130T2{place}0000Z-c0ffee",
        repeat=repeat,
        metrics=_metrics(physics, batch, float(rng.normal(1.0, 0.006)), weights_gib=9.1 + place, poor=engine == "llamacpp"),
        engine=make_engine(name=engine, version=version),
        devices=tuple(make_device(uid=f"{device}-{i}", index=i, **board) for i in range(count)),
        host=make_host(host_id=f"{place:04d}c0ffee", cpu_model="AMD EPYC 9654 96-Core Processor", cpu_count=192),
        reasons=(NOT_STEADY,) if disturbed else (THERMAL,) if engine == "mindie" and batch == 256 else (),
        status=Status.INVALID if disturbed else Status.VALID,
    )


def _metrics(physics: Any, batch: int, noise: float, *, weights_gib: float, poor: bool) -> dict[str, Metric]:
    """`poor`: no power, and too few requests for a p99."""
    alone_ms, more_ms, idle_w, most_w = physics
    tpot, ttft = (alone_ms + more_ms * batch) * noise, (2.4 + 0.22 * batch) * alone_ms * noise
    e2e, tok_s = ttft + 511 * tpot, 1000.0 * batch / (tpot + 0.05 * alone_ms)
    joules = (idle_w + (most_w - idle_w) * min(1.0, 0.35 + 0.65 * batch / 96.0)) / tok_s
    tail: dict[str, Any] = {"p99": None, "n": 40} if poor else {"p99_low": 1.4 * ttft, "p99_high": 1.9 * ttft}
    energy: dict[str, Any] = {"reason": NO_POWER} if poor else {"low": 0.96 * joules, "high": 1.04 * joules}
    return make_metrics(
        output_tok_per_s=tok_s,
        requests_per_s=tok_s / 512.0,
        ttft_ms=make_metric("ttft_ms", ttft, **tail),
        tpot_ms=make_metric("tpot_ms", tpot, p90=1.04 * tpot, p99=1.18 * tpot),
        e2e_ms=make_metric("e2e_ms", e2e, p90=1.05 * e2e, p99=1.2 * e2e),
        memory_before_b=0.6 * 2**30,
        memory_loaded_b=weights_gib * 2**30,
        memory_used_peak_b=(weights_gib + 0.14 * batch) * 2**30,
        j_per_output_tok=make_metric("j_per_output_tok", None if poor else joules, **energy),
        power_mean_w=joules * tok_s,
    )


def sample_trace(record: TrialRecord, boards: int = 1) -> Trace:
    """A board at 10 Hz: idle, the engine's start, the model loaded, warm-up, a window of a minute, drain; a gap in the window."""
    zero = 60 * NS
    metrics = {**record.metrics, "power_mean_w": make_metric("power_mean_w", 655.0)}
    record = replace(
        record,
        metrics=metrics,
        started=ClockAnchor(monotonic_ns=0, wall_ns=STARTED_WALL_NS),
        ended=ClockAnchor(monotonic_ns=zero + 70 * NS, wall_ns=STARTED_WALL_NS + 130 * NS),
        idle=Window(t0_ns=2 * NS, t1_ns=12 * NS),
        resident=Window(t0_ns=36 * NS, t1_ns=46 * NS),
        window=Window(t0_ns=zero, t1_ns=zero + 60 * NS),
    )
    rng = np.random.default_rng(3)
    sensor = SensorInfo(api="fake", unit="W")
    devices = tuple(replace(record.devices[0], uid=f"GPU-{at}", index=at, power=sensor) for at in range(boards))
    readings = tuple(
        Reading(uid=device.uid, before_ns=round(at * NS), after_ns=round(at * NS), power_w=float(_watts(at) + rng.normal(0, 6)))
        for device in devices
        for at in np.arange(2.0, 129.0, 0.1)
        if not 92.0 < at < 93.5
    )
    return Trace(record=record, telemetry=Telemetry(devices=devices, readings=readings, period_s=0.1))


def _watts(at_s: float) -> float:
    levels = ((12.0, 72.0), (36.0, 118.0), (46.0, 126.0), (60.0, 540.0), (120.0, 655.0), (124.0, 400.0))
    level = next((watts for end, watts in levels if at_s < end), 126.0)
    return level + (18.0 * float(np.sin(at_s * 0.9)) if 60.0 <= at_s < 120.0 else 0.0)


@cache
def sample_histories(nights: int = 26) -> tuple[SeriesHistory, ...]:
    """A series that gets slower, is confirmed by pairs, and is accepted; a steady one."""
    rng, found = np.random.default_rng(11), {}
    for metric in ("output_tok_per_s", "j_per_output_tok"):
        rule, level = RULES[metric], 2950.0 if metric == "output_tok_per_s" else 0.231
        made = []
        for at in range(nights):
            slow = metric == "output_tok_per_s" and at >= 17
            base = level * (0.93 if slow else 1.0) * float(rng.normal(1.0, 0.004))
            pairs = tuple((level * float(rng.normal(1, 0.003)), base * float(rng.normal(1, 0.003))) for _ in range(5))
            values = tuple(base * float(rng.normal(1.0, 0.004)) for _ in range(3))
            accepted = "a smaller cache on purpose" if slow and at == 21 else None
            made.append(Night(night=_night(at), values=values, pairs=pairs if at == 17 else (), accepted=accepted))
        found[metric] = (made, rule)
    judged = judge_all({name: made for name, (made, _) in found.items()}, {name: rule for name, (_, rule) in found.items()})
    return tuple(
        SeriesHistory(
            key=SeriesKey(series_id="3f9a2c1b00112233", host_id="host0001", profile="nightly", metric=name),
            label=f"{MODEL} fp8, vllm, batch 64, 1024/512, NVIDIA H200",
            nights=tuple(made),
            builds=tuple("vllm 0.31.0" if at < 17 else "vllm 0.32.0" for at in range(len(made))),
            judged=tuple(judged[name]),
        )
        for name, (made, _) in found.items()
    )


@cache
def sample_compared() -> tuple[Compared, ...]:
    """A point that got slower and cheaper, one without a counterpart."""
    rng = np.random.default_rng(5)

    def point(version: str, factor: float, **over: Any) -> Point:
        levels = {"output_tok_per_s": 2950.0, "requests_per_s": 5.76, "ttft_ms": 84.0, "tpot_ms": 9.1, "j_per_output_tok": 0.231}
        samples = {name: _sample(level * (factor if name != "ttft_ms" else 1.0), rng) for name, level in levels.items()}
        values: dict[str, Any] = {
            "workload_id": "w", "series_id": "s", "config_id": version, "host_id": "host0001", "case_id": "c", "run_id": version,
            "started": "2026-11-30", "name": "b64", "model": MODEL, "precision": "fp8", "weights": "abc", "engine": "vllm",
            "version": version, "build": None, "devices": ("NVIDIA H200",), "boards": ("GPU-0",), "scope": "accelerator",
            "window_kind": "steady", "setting": {"batch_size": "64", "input_tokens": "1024", "output_tokens": "512"},
            "samples": {name: samples.get(name, Sample()) for name in COMPARED},
        }  # fmt: skip
        return Point(**(values | over))

    base, cand = point("0.31.0", 1.0), point("0.32.0", 0.955)
    metrics = tuple(adjust(compare_points(base, cand)))
    pair = Pair(base=base, cand=cand, flags=("engine version: 0.31.0 and 0.32.0",))
    alone = Pair(base=point("0.31.0", 1.0, setting={"batch_size": "8"}), cand=None, reason="no candidate is left for it")
    return Compared(pair=pair, metrics=metrics), Compared(pair=alone, metrics=())


def _sample(level: float, rng: np.random.Generator) -> Sample:
    return Sample(values=tuple(level * float(rng.normal(1.0, 0.006)) for _ in range(5)))


@cache
def _records() -> tuple[TrialRecord, ...]:
    return tuple(sample_records())


def sample_report(**over: Any) -> Report:
    """All of it."""
    records = _records()
    traced = next(r for r in records if r.case.load.batch_size == 64 and r.key.repeat == 0)
    values: dict[str, Any] = {
        "chosen": "compare",
        "named": ("version:0.31.0", "version:0.32.0"),
        "made_ns": STARTED_WALL_NS + 86_400 * NS,
        "records": records,
        "trace": sample_trace(traced),
        "histories": sample_histories(),
        "compared": sample_compared(),
    }
    return Report(**(values | over))


def _night(at: int) -> str:
    return (date(2026, 11, 1) + timedelta(days=at)).isoformat()
