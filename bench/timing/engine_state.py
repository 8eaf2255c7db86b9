"""What an engine says of itself: its counters while the load ran, how it started, whether it counts as the client does. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.records import (
    MISSING,
    EngineHandle,
    EngineSamples,
    EventLog,
    FloatArray,
    IntArray,
    Metric,
    Outcome,
    Profile,
    Reason,
    Window,
)
from bench.timing.spec import scalar, undefined
from bench.timing.validity import raise_code

LEAST_SAMPLES = 2
"""Fewer answers than this in a window say nothing about it."""
_GAUGES = {
    "kv_cache_util": ("kv_cache_util_mean", "kv_cache_util_peak"),
    "requests_running": ("requests_running_mean", None),
    "requests_waiting": ("requests_waiting_mean", "requests_waiting_peak"),
}
_STATES = ("requests_running_mean", "requests_waiting_mean", "requests_waiting_peak", "preemptions")
_NOT_TOLD = "the engine does not tell"


def window_state(samples: EngineSamples, window: Window) -> dict[str, float]:
    """Mean and peak of the engine's gauges over the window, and `preemptions` from the last answer before it to the first after
    it, by metric name; what it did not tell often enough is absent.
    """
    at = np.array(samples.at_ns, dtype=np.int64)
    inside = (at >= window.t0_ns) & (at < window.t1_ns)
    found: dict[str, float] = {}
    for name, (mean, peak) in _GAUGES.items():
        known = _known(samples, name)[inside]
        known = known[~np.isnan(known)]
        if len(known) >= LEAST_SAMPLES:
            found[mean] = float(known.mean())
            if peak is not None:
                found[peak] = float(known.max())
    total = _known(samples, "preemptions_total")
    told = ~np.isnan(total)
    before, after = total[told & (at <= window.t0_ns)], total[told & (at >= window.t1_ns)]
    if len(before) and len(after) and after[0] >= before[-1]:
        found["preemptions"] = float(after[0] - before[-1])
    return found


def _known(samples: EngineSamples, name: str) -> FloatArray:
    values = samples.counters.get(name)
    return np.full(len(samples.at_ns), np.nan) if values is None else np.array(values, dtype=np.float64)


def engine_metrics(engine: EngineHandle | None, state: Mapping[str, float]) -> tuple[Metric, ...]:
    """How the engine started [s], and what `window_state` found beside the KV cache."""
    return (
        *_start_times(engine),
        *(scalar(n, state[n], source="engine") if n in state else undefined(n, _NOT_TOLD) for n in _STATES),
    )


def _start_times(engine: EngineHandle | None) -> tuple[Metric, ...]:
    times = {
        "engine_start_s": engine.start_s if engine and engine.pids else None,
        "engine_load_s": engine.load_s if engine else None,
        "engine_first_token_s": engine.first_token_s if engine else None,
    }
    missing = "it ran already" if engine and not engine.pids else _NOT_TOLD
    return tuple(undefined(name, missing) if value is None else scalar(name, value) for name, value in times.items())


def token_counts_disagree(
    log: EventLog, n_out: IntArray, before: Mapping[str, float], after: Mapping[str, float], profile: Profile
) -> tuple[Reason, ...]:
    """The engine generated another number of tokens around the load than the client's requests got: somebody else uses it, or it
    throws work away. `n_out`: tokens of each request. One token a request is rounding (a stop token without text); a request that
    failed or was cut off may have got any number up to what it asked for.
    """
    name = "generation_tokens_total"
    if name not in before or name not in after:
        return ()
    sent = log.sent_ns != MISSING
    ok = sent & (log.outcome == Outcome.OK)
    broken = sent & ~ok
    if bool((n_out[ok] == MISSING).any()) or bool((log.output_requested[broken] == MISSING).any()):
        return ()
    counted, ours = after[name] - before[name], float(n_out[ok].sum())
    low, high = ours - int(ok.sum()), ours + int(ok.sum()) + float(log.output_requested[broken].sum())
    if counted < 0 or low <= counted <= high:
        return ()
    text = f"the engine counted {counted:.0f} generated tokens, the client {ours:.0f}: does something else use it?"
    return raise_code("token_counts_disagree", profile, text)
