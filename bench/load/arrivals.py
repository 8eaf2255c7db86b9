"""When requests are sent in open loop, and how many are in flight in closed loop: moments drawn beforehand from a seed. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from bench.errors import UsageError
from bench.records import FloatArray, LoadSpec, Stage

_BLOCK = 4096
MOST_ARRIVALS = 20_000_000
"""Moments that are drawn beforehand, at 8 bytes each in every worker."""
_FEWER = "lower request_rate, or shorten the duration"
LEAST_BURSTINESS = 0.01
"""Below, nearly all gaps are too short to be told from none."""


def arrival_offsets_s(load: LoadSpec, horizon_s: float, seed: int, *, warmup_s: float = 0.0) -> FloatArray:
    """Seconds after the start at which each request is due, ascending.

    Count-bound jobs (`num_prompts`) get exactly that many; others get every arrival before `horizon_s`. Gaps have mean
    1/rate: constant, exponential (poisson), or gamma with shape `burstiness` (1 is poisson, below 1 is burstier, above 1
    more even). `burst` puts all at 0. Stages begin after `warmup_s` at the first one's rate; the last one's end goes on.

    Raises: UsageError where the load names no rate, a burst without a count, or more than `MOST_ARRIVALS`.
    """
    check_arrivals(load, horizon_s, warmup_s=warmup_s)
    if load.stages:
        return _staged_s(load, horizon_s, seed, warmup_s)
    if load.arrivals == "burst" or (load.request_rate is None and load.num_prompts is not None):
        return np.zeros(_burst_size(load))
    rate = load.request_rate
    if rate is None or not rate > 0 or math.isinf(rate):
        raise UsageError(f"open loop needs a request rate above 0, not {rate}", hint="set request_rate, or arrivals: burst")
    if load.arrivals == "constant":
        return _constant_s(load, rate, horizon_s)
    rng = np.random.default_rng(seed)
    if load.num_prompts is not None:
        return np.cumsum(_gaps_s(load, rate, load.num_prompts, rng))
    offsets = _until(horizon_s, lambda: _gaps_s(load, rate, _BLOCK, rng))
    return offsets[offsets < horizon_s]


def check_arrivals(load: LoadSpec, horizon_s: float, *, warmup_s: float = 0.0) -> None:
    """Refuse an open loop of more requests than can be drawn beforehand. Raises: UsageError."""
    expected: float = load.num_prompts or 0
    if load.num_prompts is None and load.stages:
        expected = float(_integral(_around(load.stages, warmup_s, horizon_s))[1][-1])
    elif load.num_prompts is None and load.request_rate is not None and math.isfinite(load.request_rate):
        expected = load.request_rate * horizon_s
    if expected > MOST_ARRIVALS:
        raise UsageError(
            f"{expected:,.0f} requests would come in {horizon_s:,.0f} s, and {MOST_ARRIVALS:,} are the most", hint=_FEWER
        )


def trace_offsets_s(stamps_s: FloatArray, speed: float) -> FloatArray:
    """Moments of a trace as seconds after its first request, `speed` times as fast. In the order of the trace."""
    return (stamps_s - stamps_s[0]) / speed if len(stamps_s) else stamps_s


def partition(count: int, workers: int, worker: int) -> range:
    """Which of `count` items worker number `worker` takes: every `workers`-th, so that each sees the same mix in time."""
    return range(worker, count, workers)


def share(total: int, workers: int, worker: int) -> int:
    """How many of `total` slots a worker gets; shares differ by at most one and add up to `total`."""
    return total // workers + (worker < total % workers)


def levels(stages: Sequence[Stage]) -> list[tuple[float, int]]:
    """Closed loop: when, in seconds after `t0`, how many requests are to be in flight. A ramp goes in steps of one, each where
    its line passes the half.
    """
    steps: list[tuple[float, int]] = []
    begin_s = 0.0
    for stage in stages:
        start, end, rise = round(stage.start), round(stage.end), 1 if stage.end > stage.start else -1
        steps.append((begin_s, start))
        for number in range(abs(end - start)):
            at_s = begin_s + stage.duration_s * (number + 0.5) / abs(end - start)
            steps.append((at_s, start + rise * (number + 1)))
        begin_s += stage.duration_s
    return steps


def peak_rate(load: LoadSpec) -> float | None:
    """The highest rate that is asked for [1/s]; None where no rate is given."""
    ends = [max(stage.start, stage.end) for stage in load.stages] if load.kind == "open" else []
    return max(ends, default=load.request_rate)


def _burst_size(load: LoadSpec) -> int:
    count = load.num_prompts if load.num_prompts is not None else load.batch_size
    if count is None:
        raise UsageError("a burst needs to know how many requests it has", hint="set num_prompts")
    return count


def _constant_s(load: LoadSpec, rate: float, horizon_s: float) -> FloatArray:
    """Multiples of 1/rate, not a sum of gaps: rounding must not add up."""
    count = load.num_prompts if load.num_prompts is not None else math.ceil(horizon_s * rate)
    offsets = np.arange(1, count + 1) / rate
    return offsets if load.num_prompts is not None else offsets[offsets < horizon_s]


def _gaps_s(load: LoadSpec, rate: float, count: int, rng: np.random.Generator) -> FloatArray:
    shape = 1.0 if load.arrivals != "gamma" or load.burstiness is None else load.burstiness
    if not shape >= LEAST_BURSTINESS:
        raise UsageError(f"burstiness must be at least {LEAST_BURSTINESS:g}, not {shape:g}", hint="1 is Poisson, 0.1 very bursty")
    return rng.gamma(shape, 1.0 / (rate * shape), count)


def _until(limit: float, draw: Callable[[], FloatArray]) -> FloatArray:
    """Sums of drawn gaps, block by block, up to the first block that passes `limit`."""
    blocks: list[FloatArray] = []
    last = 0.0
    while last < limit:
        if len(blocks) * _BLOCK > 2 * MOST_ARRIVALS:
            raise UsageError(f"the arrivals come to more than {MOST_ARRIVALS:,} requests", hint=_FEWER)
        block = last + np.cumsum(draw())
        blocks.append(block)
        last = float(block[-1])
    return np.concatenate(blocks) if blocks else np.zeros(0)


# --- stages: arrivals of rate 1 in expected arrivals, put back into time ---------------------------------------------------


def _staged_s(load: LoadSpec, horizon_s: float, seed: int, warmup_s: float) -> FloatArray:
    """Arrivals at a rate that changes with time. Unit-rate arrivals lie on the axis of arrivals expected so far; the inverse
    of that integral puts each at its moment. Constant arrivals so have exactly as many as the rate's integral.
    """
    stages = _around(load.stages, warmup_s, horizon_s)
    begins_s, expected = _integral(stages)
    total = float(expected[-1])
    if load.arrivals == "constant":
        due = np.arange(1, math.floor(total + 1e-9) + 1, dtype=np.float64)
    else:
        rng = np.random.default_rng(seed)
        due = _until(total, lambda: _gaps_s(load, 1.0, _BLOCK, rng))
        due = due[due < total]
    which = np.clip(np.searchsorted(expected, due, side="left") - 1, 0, len(stages) - 1)
    start = np.array([stage.start for stage in stages])[which]
    slope = np.array([(stage.end - stage.start) / stage.duration_s for stage in stages])[which]
    more = due - expected[which]
    # the root of start*t + slope*t^2/2 = more, in the form that also holds for slope 0
    offsets = begins_s[which] + 2.0 * more / (start + np.sqrt(np.maximum(start * start + 2.0 * slope * more, 0.0)))
    return np.maximum.accumulate(offsets[offsets < horizon_s])


def _around(stages: Sequence[Stage], warmup_s: float, horizon_s: float) -> list[Stage]:
    """The stages with the first rate held before them and the last one after, as far as the horizon."""
    first, last = stages[0].start, stages[-1].end
    rest_s = horizon_s - warmup_s - sum(stage.duration_s for stage in stages)
    before = Stage(start=first, end=first, duration_s=warmup_s)
    after = Stage(start=last, end=last, duration_s=rest_s)
    return [stage for stage in (before, *stages, after) if stage.duration_s > 0]


def _integral(stages: Sequence[Stage]) -> tuple[FloatArray, FloatArray]:
    """When each stage begins [s], and the arrivals expected by then; one entry more for the end."""
    durations_s = np.array([stage.duration_s for stage in stages])
    counts = np.array([(stage.start + stage.end) / 2 for stage in stages]) * durations_s
    return np.concatenate(([0.0], np.cumsum(durations_s))), np.concatenate(([0.0], np.cumsum(counts)))
