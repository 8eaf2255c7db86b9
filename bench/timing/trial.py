"""One trial, from events and readings to metrics and reasons: the whole timing core in one screen. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bench.records import (
    Case,
    EngineHandle,
    EngineSamples,
    EventLog,
    LoadResult,
    LocalModel,
    Measured,
    Metric,
    OutputCheck,
    Telemetry,
)
from bench.timing.client_rules import Judged
from bench.timing.energies import device_metrics
from bench.timing.engine_state import engine_metrics, token_counts_disagree, window_state
from bench.timing.failures import NO_WINDOW, without_window
from bench.timing.load_rules import load_reasons
from bench.timing.normalise import normalised
from bench.timing.output_check import output_metrics, wrong_output
from bench.timing.requests import observe, request_metrics
from bench.timing.spec import REQUIRED, SPECS, undefined
from bench.timing.validity import raise_code


def measure(
    case: Case,
    load: LoadResult,
    telemetry: Telemetry,
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    engine: EngineHandle | None = None,
    model: LocalModel | None = None,
    samples: EngineSamples | None = None,
    attached: bool = False,
    output_check: OutputCheck | None = None,
) -> Measured:
    """Every metric of a trial with its interval or its reason, and what makes the trial untrustworthy.

    `before`, `after`: the engine's own counters around the load. `engine`: what it says of itself; `samples`: its
    counters while the load ran. `model`: the weights that it serves. `output_check`: its answers beside the reference's.
    `attached`: the engine is not ours, so that devices count only when the case names them. The bootstrap is seeded by the
    case: the same trial always gives the same numbers.
    """
    window = load.window
    if window is None or window.t1_ns <= window.t0_ns:
        return _without_window(case, load.log, output_check)
    state = {} if samples is None else window_state(samples, window)
    before, after = _finite(before), state | _finite(after)
    seen = observe(case, load.log, window)
    metrics = request_metrics(seen, before, after)
    judged = Judged(
        case=case,
        log=seen.log,
        counts=seen.counts,
        window=window,
        members=seen.members,
        blocks=seen.blocks,
        metrics=metrics,
        ttft_ms=seen.ttft_ms,
        health=load.health,
        prompts_recycled=load.prompts_recycled,
        before=before,
        after=after,
    )
    told = (*engine_metrics(engine, state), *output_metrics(output_check))
    devices = device_metrics(seen, telemetry, np.random.default_rng(case.seed), attached=attached)
    beside, impossible = normalised(case, metrics, telemetry.devices, model=model, engine=engine, attached=attached)
    return Measured(
        metrics=_in_order(metrics | {m.name: m for m in told} | devices.metrics | beside),
        reasons=(
            *load_reasons(judged, engine.precision if engine else None),
            *token_counts_disagree(seen.log, seen.tokens.n_out, before, after, case.profile),
            *wrong_output(output_check, case.profile),
            *devices.reasons,
            *impossible,
        ),
        energy_scope=devices.scope,
    )


def _finite(counters: Mapping[str, float]) -> dict[str, float]:
    """What an engine told as a number: a gauge that is NaN or infinite tells nothing."""
    return {name: value for name, value in counters.items() if math.isfinite(value)}


def _without_window(case: Case, log: EventLog, output_check: OutputCheck | None) -> Measured:
    known = {metric.name: metric for metric in output_metrics(output_check)}
    return Measured(
        metrics={name: known.get(name) or undefined(name, NO_WINDOW) for name in REQUIRED},
        reasons=(
            *raise_code("no_window", case.profile, without_window(case, log)),
            *wrong_output(output_check, case.profile),
        ),
        energy_scope=None,
    )


def _in_order(metrics: dict[str, Metric]) -> dict[str, Metric]:
    return {name: metrics[name] for name in SPECS if name in metrics}
