"""Trials in the shape of a GuideLLM report, as GPUStack reads it (`bench gpustack runner`, `bench export`). Pure.

Definitions are GuideLLM's, out of our events: `inter_token_latency_ms` is our TPOT, `time_per_output_token_ms` takes the TTFT
in, both weighted by tokens; request latencies end with the last content; rates are those of the window's equal blocks. The
shape has no place for "not measured": such a distribution is one of zeros with `count` 0 (its readers take 0 as not measured),
and the reason stands under `tokjoule.missing`.

Source: gpustack 2.3.0 from PyPI, gpustack/worker/schemas/benchmark_runner.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import codec
from bench.records import MISSING, ClockAnchor, EventLog, FloatArray, LoadSpec, Metric, Outcome, TrialRecord, Window
from bench.timing.latency import icl_ms
from bench.timing.population import in_flight_mean
from bench.timing.requests import Observed, observe
from bench.timing.summary import P99_MIN
from bench.units import NS_PER_S

Trial = tuple[TrialRecord, EventLog | None]
"""A trial with its events; None where it has none."""

_PERCENTILES = {"p001": 0.1, "p01": 1, "p05": 5, "p10": 10, "p25": 25, "p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
_MOST_SAMPLES = 20
"""Failed requests that are told one by one."""
_OURS = ("j_per_output_tok", "j_per_request", "memory_used_peak_b", "memory_reserved_util", "mfu", "mbu")
_STRATEGIES = {"constant": "constant", "poisson": "poisson", "burst": "throughput"}


def guidellm_report(trials: Sequence[Trial]) -> dict[str, Any]:
    """One report: each trial that has a window is a benchmark; `tokjoule.left_out` tells the others, and why."""
    seen = [(record, log) for record, log in trials if log is not None and record.window is not None]
    return {
        "metadata": {"version": 1, "source": "tokjoule"},
        "benchmarks": [_benchmark(record, log, index) for index, (record, log) in enumerate(seen)],
        "tokjoule": {
            "left_out": [
                {"trial_id": record.key.trial_id, "status": record.status.value, "reason": record.error or "it has no window"}
                for record, log in trials
                if log is None or record.window is None
            ]
        },
    }


def _benchmark(record: TrialRecord, log: EventLog, index: int) -> dict[str, Any]:
    window = record.window
    assert window is not None
    seen = observe(record.case, log, window)
    metrics, missing = _metrics(seen, record)
    t0_s, t1_s = _unix_s(window.t0_ns, record.started), _unix_s(window.t1_ns, record.started)
    return {
        "type_": "generative_benchmark",
        "config": {"run_index": index, "strategy": _strategy(record.case.load)},
        "scheduler_metrics": _scheduler(record, log, window),
        "metrics": metrics,
        "start_time": t0_s,
        "end_time": t1_s,
        "duration": window.seconds,
        "requests_truncated": {"successful": [], "errored": _samples(seen, record), "incomplete": [], "total": None},
        "tokjoule": _told(record, missing),
    }


# --- numbers ------------------------------------------------------------------------------------------------------------


def _metrics(seen: Observed, record: TrialRecord) -> tuple[dict[str, Any], dict[str, str]]:
    members = seen.members
    found = _per_request(seen) | _rates(seen) | {"request_concurrency": (_in_flight(seen), None)}
    totals = {
        "successful": int(members.ok.sum()),
        "errored": int(members.failed.sum()),
        "incomplete": int(members.unfinished.sum()),
        "total": members.count,
    }
    told: dict[str, Any] = {"request_totals": totals}
    told |= {name: {"successful": summary(values, weights)} for name, (values, weights) in found.items()}
    told["request_concurrency"]["successful"]["mean"] = in_flight_mean(seen.log, seen.window)
    gaps = icl_ms(seen.log, members.ok).ms
    if len(gaps):
        told["inter_token_latency_per_chunk_ms"] = {"successful": summary(gaps)}
    empty = [name for name, (values, _) in found.items() if not np.isfinite(values).any()]
    return told, {name: _reason(name, record) for name in empty}


def _per_request(seen: Observed) -> dict[str, tuple[FloatArray, FloatArray | None]]:
    """Values of the requests that succeeded, NaN where undefined, each with what weighs it (None: all alike)."""
    ok, tokens = seen.members.ok, seen.tokens
    n_out, prompt = _counts(tokens.n_out)[ok], _counts(seen.log.input_tokens)[ok]
    chunks = tokens.chunks[ok].astype(np.float64)
    e2e, after_first = seen.e2e_ms[ok], n_out - 1
    return {
        "request_latency": (e2e / 1e3, None),
        "request_streaming_iterations_count": (chunks, None),
        "prompt_token_count": (prompt, None),
        "output_token_count": (n_out, None),
        "total_token_count": (prompt + n_out, None),
        "time_to_first_token_ms": (seen.ttft_ms[ok], None),
        "time_per_output_token_ms": (over(e2e, n_out), n_out),
        "inter_token_latency_ms": (seen.tpot_ms[ok], after_first),
        "output_tokens_per_iteration": (over(n_out, chunks), chunks),
        "iter_tokens_per_iteration": (over(after_first, chunks - 1), chunks - 1),
    }


def _rates(seen: Observed) -> dict[str, tuple[FloatArray, FloatArray | None]]:
    blocks, block_s = seen.blocks, seen.window.seconds / len(seen.blocks.completed)
    nothing = np.full(1, np.nan)
    prompt = nothing if blocks.input_tokens is None else blocks.input_tokens
    output = nothing if blocks.output_tokens is None else blocks.output_tokens
    return {
        "requests_per_second": (blocks.completed / block_s, None),
        "prompt_tokens_per_second": (prompt / block_s, None),
        "output_tokens_per_second": (output / block_s, None),
        "tokens_per_second": ((prompt + output) / block_s, None),
    }


def _in_flight(seen: Observed) -> FloatArray:
    """Requests in flight at 1,000 evenly spaced moments of the window."""
    log, window = seen.log, seen.window
    sent = np.sort(log.sent_ns[log.sent_ns != MISSING])
    closed = np.sort(log.closed_ns[(log.sent_ns != MISSING) & (log.closed_ns != MISSING)])
    at_ns = np.linspace(window.t0_ns, window.t1_ns - 1, 1000)
    return (np.searchsorted(sent, at_ns, side="right") - np.searchsorted(closed, at_ns, side="right")).astype(np.float64)


def _counts(values: Any) -> FloatArray:
    return np.where(values == MISSING, np.nan, values.astype(np.float64))


def over(above: FloatArray, below: FloatArray) -> FloatArray:
    """`above / below`, NaN where `below` is not positive."""
    good = below > 0
    return np.where(good, above / np.where(good, below, 1.0), np.nan)


def summary(values: FloatArray, weights: FloatArray | None = None) -> dict[str, Any]:
    """A GuideLLM distribution of the finite ones of `values`. `p99` is None below 100 of them: they say nothing about it."""
    keep = np.isfinite(values) & (np.isfinite(weights) & (weights > 0) if weights is not None else True)
    kept = values[keep]
    if len(kept) == 0:
        zero = {"mean": 0.0, "median": 0.0, "std_dev": 0.0, "min": 0.0, "max": 0.0, "count": 0}
        return zero | {"percentiles": dict.fromkeys(_PERCENTILES)}
    order = np.argsort(kept, kind="stable")
    ordered, heavy = kept[order], (np.ones(len(kept)) if weights is None else weights[keep][order])
    mean = float(np.average(ordered, weights=heavy))
    quantiles = {name: _quantile(ordered, heavy, percent / 100) for name, percent in _PERCENTILES.items()}
    return {
        "mean": mean,
        "median": quantiles["p50"],
        "std_dev": float(np.sqrt(np.average((ordered - mean) ** 2, weights=heavy))),
        "min": float(ordered[0]),
        "max": float(ordered[-1]),
        "count": len(ordered),
        "percentiles": quantiles | ({"p99": None} if len(ordered) < P99_MIN else {}),
    }


def _quantile(ordered: FloatArray, weights: FloatArray, p: float) -> float:
    """The smallest value with at least the share `p` of the weight at or below it."""
    reached = np.cumsum(weights)
    return float(ordered[min(int(np.searchsorted(reached, p * reached[-1] * (1 - 1e-12))), len(ordered) - 1)])


# --- words --------------------------------------------------------------------------------------------------------------


def _strategy(load: LoadSpec) -> dict[str, Any]:
    """The load in GuideLLM's words where it has them, else in ours: `gamma`, `trace` and `stages` are none of its strategies."""
    if load.stages:
        return {"type_": "stages", "stages": codec.to_builtins(load.stages), "max_concurrency": load.max_concurrency}
    if load.kind == "closed":
        return {"type_": "concurrent", "streams": load.batch_size}
    arrivals = load.arrivals or "poisson"
    told = {"type_": _STRATEGIES.get(arrivals, arrivals), "rate": load.request_rate, "max_concurrency": load.max_concurrency}
    return told | ({"burstiness": load.burstiness} if arrivals == "gamma" else {})


def _scheduler(record: TrialRecord, log: EventLog, window: Window) -> dict[str, float]:
    sent, closed = log.sent_ns[log.sent_ns != MISSING], log.closed_ns[log.closed_ns != MISSING]
    stamps = {
        "start_time": record.started.monotonic_ns,
        "request_start_time": int(sent.min()) if len(sent) else window.t0_ns,
        "measure_start_time": window.t0_ns,
        "measure_end_time": window.t1_ns,
        "request_end_time": int(closed.max()) if len(closed) else window.t1_ns,
        "end_time": record.ended.monotonic_ns,
    }
    return {name: _unix_s(stamp_ns, record.started) for name, stamp_ns in stamps.items()}


def _unix_s(monotonic_ns: int, anchor: ClockAnchor) -> float:
    return (anchor.wall_ns + monotonic_ns - anchor.monotonic_ns) / NS_PER_S


def _samples(seen: Observed, record: TrialRecord) -> list[dict[str, Any]]:
    log = seen.log
    failed = np.flatnonzero(seen.members.failed)[:_MOST_SAMPLES]
    return [
        {
            "request_id": f"{record.key.trial_id}-{index}",
            "request_type": "chat_completions" if record.case.protocol == "openai-chat" else "text_completions",
            "info": {
                "status": "errored",
                "error": log.error[index] or Outcome(int(log.outcome[index])).name.lower(),
                "timings": {"request_start": _unix_s(int(log.sent_ns[index]), record.started)},
            },
            "input_metrics": {},
            "output_metrics": {},
        }
        for index in failed
    ]


def _told(record: TrialRecord, missing: dict[str, str]) -> dict[str, Any]:
    """What GuideLLM has no place for: whether the trial is valid, energy, memory, and why a number is not there."""
    metrics = {name: record.metrics[name] for name in _OURS if name in record.metrics}
    return {
        "trial_id": record.key.trial_id,
        "run_id": record.key.run_id,
        "status": record.status.value,
        "reasons": codec.to_builtins(record.reasons),
        "metrics": {name: _number(metric) for name, metric in metrics.items()},
        "energy_scope": record.energy_scope,
        "missing": missing,
    }


def _number(metric: Metric) -> dict[str, Any]:
    return {"value": metric.value, "low": metric.low, "high": metric.high, "unit": metric.unit, "reason": metric.reason}


_SAME = {
    "request_latency": "e2e_ms",
    "prompt_token_count": "input_tokens",
    "output_token_count": "output_tokens",
    "total_token_count": "output_tokens",
    "time_to_first_token_ms": "ttft_ms",
    "time_per_output_token_ms": "output_tokens",
    "inter_token_latency_ms": "tpot_ms",
    "prompt_tokens_per_second": "input_tok_per_s",
    "output_tokens_per_second": "output_tok_per_s",
    "tokens_per_second": "total_tok_per_s",
    "output_tokens_per_iteration": "tokens_per_chunk",
}
"""Whose reason it is where a distribution is missing."""


def _reason(name: str, record: TrialRecord) -> str:
    metric = record.metrics.get(_SAME.get(name, ""))
    return (metric.reason if metric else None) or "no request gave it"
