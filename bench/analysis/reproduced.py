"""One stored value beside new repeats of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from bench.analysis.compare import Ratio, ratio_of


def ratio_to_one(base: float, cand: Sequence[float]) -> Ratio:
    """Geometric mean of `cand` over the one value `base`, all > 0, with the interval of a single new value: the spread of `cand`
    is taken for that of `base` too, so that it covers what the next measurement would give.

    Source: the prediction interval of a normal sample, on logs. Raises: ValueError for fewer than two of `cand`.
    """
    if len(cand) < 2:
        raise ValueError(f"a spread takes two values, got {len(cand)}")
    logs = [math.log(value) for value in cand]
    change = fmean(logs) - math.log(base)
    return ratio_of(change, stdev(logs) * math.sqrt(1 + 1 / len(logs)), len(logs) - 1)
