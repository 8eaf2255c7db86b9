"""Token counts drawn from a `LengthSpec`. Pure: the generator comes in."""

from __future__ import annotations

import math

import numpy as np

from bench.errors import UsageError
from bench.records import IntArray, LengthSpec

LONGEST_TOKENS = 10_000_000
"""A wide lognormal has no end; no request is longer than the longest that can be asked for."""


def draw_lengths(spec: LengthSpec, count: int, rng: np.random.Generator) -> IntArray:
    """`count` lengths [tokens], each at least 1.

    `mean` and `spread` are those of the drawn distribution: for lognormal, sigma^2 = ln(1 + spread^2) and
    mu = ln(mean) - sigma^2 / 2.

    Raises: UsageError for lengths that only the rows of a data set can tell.
    """
    if spec.dist == "dataset":
        raise UsageError("lengths are to come from a data set, but there is none", hint="set dataset, or a length")
    mean, spread = spec.mean, spec.spread
    if spec.dist == "fixed" or spread == 0:
        return np.full(count, mean, dtype=np.int64)
    if spec.dist == "uniform":
        low, high = math.ceil(mean * (1 - spread)), math.floor(mean * (1 + spread))
        return np.maximum(rng.integers(low, high, count, endpoint=True, dtype=np.int64), 1)
    if spec.dist == "normal":
        drawn = rng.normal(mean, spread * mean, count)
    else:
        variance = math.log1p(spread * spread)
        drawn = rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), count)
    return np.clip(np.rint(drawn), 1, LONGEST_TOKENS).astype(np.int64)
