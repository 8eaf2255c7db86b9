"""When requests are sent in open loop: absolute offsets from the start, drawn beforehand from a seed. Pure."""

from __future__ import annotations

import math

import numpy as np

from bench.errors import UsageError
from bench.records import FloatArray, LoadSpec

_BLOCK = 4096


def arrival_offsets_s(load: LoadSpec, horizon_s: float, seed: int) -> FloatArray:
    """Seconds after the start at which each request is due, ascending.

    Count-bound jobs (`num_prompts`) get exactly that many; others get every arrival before `horizon_s`. Gaps have mean
    1/rate: constant, exponential (poisson), or gamma with shape `burstiness` (1 is poisson, below 1 is burstier, above 1
    more even). `burst` puts all at 0.

    Raises: UsageError where the load names no rate, or a burst without a count.
    """
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
    blocks: list[FloatArray] = []
    last_s = 0.0
    while last_s < horizon_s:
        block = last_s + np.cumsum(_gaps_s(load, rate, _BLOCK, rng))
        blocks.append(block)
        last_s = float(block[-1])
    offsets = np.concatenate(blocks) if blocks else np.zeros(0)
    return offsets[offsets < horizon_s]


def partition(count: int, workers: int, worker: int) -> range:
    """Which of `count` items worker number `worker` takes: every `workers`-th, so that each sees the same mix in time."""
    return range(worker, count, workers)


def share(total: int, workers: int, worker: int) -> int:
    """How many of `total` slots a worker gets; shares differ by at most one and add up to `total`."""
    return total // workers + (worker < total % workers)


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
    if not shape > 0:
        raise UsageError(f"burstiness must be above 0, not {shape}")
    return rng.gamma(shape, 1.0 / (rate * shape), count)
