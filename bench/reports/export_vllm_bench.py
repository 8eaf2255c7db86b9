"""Trials with the keys of `vllm bench serve --save-result`: one object a line, as `--append-result` writes them. Pure.

What a key means follows vLLM where our events allow it (TPOT is (E2E - TTFT) / (n - 1), ITL the gaps between chunks); what lies
in the window takes the place of the whole job. A key whose number is missing is left out, and `tokjoule.left_out` says why.

Source: vllm/benchmarks/serve.py of vLLM 0.32.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from bench import codec
from bench.records import EventLog, FloatArray, LoadSpec, TrialRecord
from bench.reports.export_guidellm import Trial, over
from bench.timing.latency import icl_ms
from bench.timing.requests import Observed, observe
from bench.timing.summary import P99_MIN
from bench.units import NS_PER_S

_RATES = {
    "request_throughput": "requests_per_s",
    "request_goodput": "goodput_rps",
    "output_throughput": "output_tok_per_s",
    "total_token_throughput": "total_tok_per_s",
}
_TOTALS = {"completed": "requests_per_s", "total_input_tokens": "input_tok_per_s", "total_output_tokens": "output_tok_per_s"}
_BACKENDS = {"openai-chat": "openai-chat", "openai-completions": "openai"}


def vllm_bench_lines(trials: Sequence[Trial]) -> bytes:
    """A line for each trial that has a window and events."""
    told = [_result(record, log) for record, log in trials if log is not None and record.window is not None]
    return "".join(json.dumps(one, allow_nan=False) + "\n" for one in told).encode()


def _result(record: TrialRecord, log: EventLog) -> dict[str, Any]:
    window = record.window
    assert window is not None
    seen = observe(record.case, log, window)
    numbers = _arrivals(record.case.load) | dict(_rates(record, window.seconds)) | dict(_latencies(seen, record))
    left_out = {name: reason for name, (value, reason) in numbers.items() if value is None}
    return {
        **_setting(record, seen),
        "duration": window.seconds,
        "failed": int(seen.members.failed.sum()),
        **{name: value for name, (value, _) in numbers.items() if value is not None},
        "tokjoule": {
            "trial_id": record.key.trial_id,
            "status": record.status.value,
            "reasons": codec.to_builtins(record.reasons),
            "window": window.kind,
            "left_out": left_out,
        },
    }


def _setting(record: TrialRecord, seen: Observed) -> dict[str, Any]:
    case, load = record.case, record.case.load
    backend = _BACKENDS.get(case.protocol, case.protocol)
    started = datetime.fromtimestamp(record.started.wall_ns / NS_PER_S, tz=UTC)
    return {
        "date": started.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": backend,
        "backend": backend,
        "label": case.name,
        "model_id": case.model,
        "tokenizer_id": case.tokenizer or case.model,
        "num_prompts": seen.members.count,
        "max_concurrency": _limit(load),
    }


def _arrivals(load: LoadSpec) -> dict[str, tuple[float | str | None, str | None]]:
    """Rate and burstiness, whose 1 is a Poisson process there; it has no word for evenly spaced ones and traces."""
    if load.arrivals == "trace" or load.stages:
        why = "requests came as a trace or in stages"
        return {"request_rate": (None, why), "burstiness": (None, why)}
    rate = "inf" if load.request_rate is None else load.request_rate
    if load.arrivals == "constant":
        return {"request_rate": (rate, None), "burstiness": (None, "requests came evenly spaced")}
    return {"request_rate": (rate, None), "burstiness": (load.burstiness or 1.0, None)}


def _limit(load: LoadSpec) -> int | None:
    return load.batch_size if load.kind == "closed" else load.max_concurrency


def _rates(record: TrialRecord, seconds: float) -> Iterator[tuple[str, tuple[float | None, str | None]]]:
    for key, name in _RATES.items():
        yield key, _of(record, name)
    for key, name in _TOTALS.items():
        value, reason = _of(record, name)
        yield key, (None if value is None else round(value * seconds), reason)


def _of(record: TrialRecord, name: str) -> tuple[float | None, str | None]:
    metric = record.metrics.get(name)
    return (None, "not recorded") if metric is None else (metric.value, metric.reason)


def _latencies(seen: Observed, record: TrialRecord) -> Iterator[tuple[str, tuple[float | None, str | None]]]:
    ok = seen.members.ok
    tpot = np.where(np.isfinite(seen.tpot_ms), over(seen.e2e_ms - seen.ttft_ms, seen.tokens.n_out.astype(np.float64) - 1), np.nan)
    found = {"ttft": ("ttft_ms", seen.ttft_ms[ok]), "tpot": ("tpot_ms", tpot[ok])}
    found |= {"itl": ("icl_ms", icl_ms(seen.log, ok).ms), "e2el": ("e2e_ms", seen.e2e_ms[ok])}
    for theirs, (ours, values) in found.items():
        metric = record.metrics.get(ours)
        reason = (metric.reason if metric else None) or "no request gave it"
        for key, value in _spread(values[np.isfinite(values)]).items():
            few = "fewer than 100 samples" if key == "p99" and np.isfinite(values).any() else reason
            yield f"{key}_{theirs}_ms", (value, None if value is not None else few)


def _spread(values: FloatArray) -> dict[str, float | None]:
    """The statistics that vLLM writes; p99 is None below 100 values, which say nothing about it."""
    if len(values) == 0:
        return dict.fromkeys(("mean", "median", "std", "p90", "p99"))
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "std": float(values.std()),
        "p90": float(np.percentile(values, 90)),
        "p99": float(np.percentile(values, 99)) if len(values) >= P99_MIN else None,
    }
