"""Quantiles, intervals and Student's t. Pure numpy: randomness comes in as a generator.

Sources: Hahn and Meeker, Statistical Intervals (order statistics); Hesterberg 2015, What Teachers Should Know About the
Bootstrap (expanded percentile interval); Kish 1965 (design effect); Lentz's continued fraction for the incomplete beta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from bench.records import FloatArray, IntArray

MIN_BLOCKS = 10
"""Fewer blocks than this tell too little about the spread between blocks."""

MAX_BLOCKS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The two ends of an interval; None where the sample is too small to have that end."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval and the number of observations behind it."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Change of the fitted line from the first block's start to the last one's end, over the mean [share]."""

    change: float
    low: float
    high: float


def block_count(seconds: float) -> int:
    """How many equal blocks to cut a window into: one per 3 s, at least 10 and at most 30."""
    return int(min(MAX_BLOCKS, max(MIN_BLOCKS, seconds // 3)))


# --- quantiles --------------------------------------------------------------------------------------------------------


def quantile_linear(ordered: FloatArray, p: float) -> float:
    """The `p`-quantile of ascending finite values, interpolated between neighbours (numpy's `linear`).

    Raises: ValueError when there are no values.
    """
    n = len(ordered)
    if n == 0:
        raise ValueError("no values: a quantile needs at least one")
    place = p * (n - 1)
    below = min(int(place), n - 1)
    above = min(below + 1, n - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def quantile_inverted_cdf(ordered: FloatArray, p: float) -> float:
    """The smallest value that at least a share `p` of ascending values doesn't exceed. Safe for +inf: never interpolates.

    Raises: ValueError when there are no values.
    """
    n = len(ordered)
    if n == 0:
        raise ValueError("no values: a quantile needs at least one")
    rank = math.ceil(p * n - 1e-9)  # 0.07 * 100 is a hair above 7 in floats
    return float(ordered[min(max(rank, 1), n) - 1])


@lru_cache(maxsize=4096)
def order_ranks(n: int, p: float, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """1-based ranks of the order statistics that bracket the `p`-quantile, each side missing it with at most half of
    1 - `confidence` (exact binomial). None where no rank is far enough out: p99 has no upper end below 368 values.
    """
    tail = (1.0 - confidence) / 2.0
    first, cdf = _binomial_cdf(n, p)
    too_low = int(np.searchsorted(cdf, tail, side="right"))  # counts k with P(B <= k) <= tail
    low = first + too_low if too_low > 0 else None
    reach = int(np.searchsorted(cdf, 1.0 - tail - 1e-15, side="left"))
    high = first + reach + 1
    return low, (high if high <= n else None)


def _binomial_cdf(n: int, p: float) -> tuple[int, FloatArray]:
    """First k, and P(B <= k) from there on: exact in doubles, over all k that carry more than 1e-20 of the mass."""
    reach = 10.0 * math.sqrt(n * p * (1.0 - p)) + 30.0
    first, last = max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach))
    k = np.arange(first, last, dtype=np.float64)
    log_ratio = np.log((n - k) / (k + 1.0)) + math.log(p / (1.0 - p))
    log_mass = np.concatenate(([0.0], np.cumsum(log_ratio)))
    mass = np.exp(log_mass - log_mass.max())
    return first, np.cumsum(mass) / mass.sum()


def quantile_interval(ordered: FloatArray, p: float, *, effective_n: float | None = None, confidence: float = 0.95) -> Bounds:
    """Order-statistic interval of the `p`-quantile of ascending values. `effective_n`: how many independent values they
    are worth (`effective_size`); by default all of them.
    """
    n = len(ordered)
    worth = n if effective_n is None else max(1, min(n, math.floor(effective_n)))
    if n == 0:
        return Bounds(low=None, high=None)
    low, high = order_ranks(worth, p, confidence)
    return Bounds(
        low=None if low is None else float(ordered[max(low * n // worth, 1) - 1]),
        high=None if high is None else float(ordered[min(-(-high * n // worth), n) - 1]),
    )


def effective_size(below: NDArray[np.bool_], cluster: IntArray) -> float:
    """Independent values that clustered ones are worth when the share `below` a quantile is estimated: n / design effect.

    Gaps of one request are alike; taking each for a fresh observation would make intervals too narrow.
    """
    n = len(below)
    share = float(below.mean()) if n else 0.0
    plain = share * (1.0 - share)
    sizes = np.bincount(cluster)
    sums = np.bincount(cluster, weights=below)[sizes > 0]
    sizes = sizes[sizes > 0]
    if plain == 0.0 or len(sizes) < 2:
        return float(n)
    spread = float(((sums - sizes * share) ** 2).sum()) * len(sizes) / (len(sizes) - 1)
    return n / max(1.0, spread / (n * plain))


# --- Student's t ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def student_t(confidence: float, df: float) -> float:
    """Two-sided quantile of Student's t: |T| <= this with probability `confidence`, for any real df >= 1.

    Raises: ValueError for df below 1 or a confidence outside (0, 1).
    """
    if not df >= 1.0 or not 0.0 < confidence < 1.0:
        raise ValueError(f"Student's t needs df >= 1 and a confidence in (0, 1), got df={df}, confidence={confidence}")
    alpha = 1.0 - confidence
    if df > 1e4:
        return _student_t_large(1.0 - alpha / 2.0, df)
    # Halley's steps from the expansion cut short, which lies below or hardly above: the tails are convex, no step goes far, and
    # each step's error is about the cube of the one before
    scale = math.exp(math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0)) / math.sqrt(df * math.pi)
    t = _student_t_large(1.0 - alpha / 2.0, df)
    for _ in range(200):
        density = scale * (1.0 + t * t / df) ** (-(df + 1.0) / 2.0)
        newton = (student_tails(t, df) - alpha) / (2.0 * density)
        step = newton / max(1.0 - newton * t * (df + 1.0) / (2.0 * (df + t * t)), 0.5)
        t += step
        if abs(step) <= 1e-5 * t:
            break
    return t


def _student_t_large(p: float, df: float) -> float:
    """Cornish-Fisher expansion around the normal quantile; its error is below 1e-12 from df = 10,000 on."""
    z = NormalDist().inv_cdf(p)
    first = (z**3 + z) / 4.0
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96.0
    return z + first / df + second / df**2


def student_tails(t: float, df: float) -> float:
    """P(|T| > |t|) for Student's t with `df` degrees of freedom: the two-sided p-value."""
    square = t * t
    return _incomplete_beta(df / 2.0, 0.5, df / (df + square), square / (df + square))


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """Regularised I_x(a, b) with y = 1 - x, given apart so that neither loses digits."""
    if x <= 0.0 or y <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, y) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction of the incomplete beta."""
    tiny = 1e-300  # in place of 0, which nothing can be divided by; no function of its own: this is where comparisons spend time
    d = 1.0 - (a + b) * x / (a + 1.0)
    c, d = 1.0, 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 2000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 + step * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + step / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def welch_df(variance_a: float, n_a: int, variance_b: float, n_b: int) -> float:
    """Welch-Satterthwaite degrees of freedom for the difference of two means (sample variances, n >= 2 each)."""
    share_a, share_b = variance_a / n_a, variance_b / n_b
    if share_a + share_b == 0.0:
        return float(n_a + n_b - 2)
    return float((share_a + share_b) ** 2 / (share_a**2 / (n_a - 1) + share_b**2 / (n_b - 1)))


# --- means, ratios, trends --------------------------------------------------------------------------------------------


def mean_interval(values: FloatArray, confidence: float = 0.95) -> Estimate:
    """Arithmetic mean with a t-interval (none for n = 1). Raises: ValueError when there are no values."""
    n = len(values)
    if n == 0:
        raise ValueError("no values: a mean needs at least one")
    mean = float(values.mean())
    if n == 1:
        return Estimate(value=mean, low=None, high=None, n=1)
    half = student_t(confidence, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(value=mean, low=mean - half, high=mean + half, n=n)


def geometric_mean(values: FloatArray, confidence: float = 0.95) -> Estimate:
    """Geometric mean with a t-interval on the logs (none for n = 1). Raises: ValueError for none, or a value <= 0."""
    if len(values) and not bool((values > 0).all()):
        raise ValueError(f"a geometric mean needs values above 0, got {float(values.min())}")
    logs = mean_interval(np.log(values), confidence)
    return Estimate(
        value=math.exp(logs.value),
        low=None if logs.low is None else math.exp(logs.low),
        high=None if logs.high is None else math.exp(logs.high),
        n=logs.n,
    )


def bootstrap_ratio(
    numerator: FloatArray,
    denominator: FloatArray,
    rng: np.random.Generator,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    reach: float | None = None,
) -> Estimate | None:
    """sum(numerator) / sum(denominator) over contiguous blocks of a window, with a block-bootstrap interval.

    Percentile interval, stretched about the estimate to `reach` standard errors of resampled blocks: plain percentiles are
    too narrow with few blocks, or where blocks resemble their neighbours. By default the reach of independent blocks,
    t * sqrt(n/(n-1)). None when the denominator adds up to nothing.

    Raises: ValueError for fewer than 10 blocks.
    """
    n = len(numerator)
    if n < MIN_BLOCKS or n != len(denominator):
        raise ValueError(f"a block bootstrap needs at least {MIN_BLOCKS} blocks of both sums, got {n} and {len(denominator)}")
    if not float(denominator.sum()) > 0.0:
        return None
    value = float(numerator.sum() / denominator.sum())
    counts = rng.multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(np.float64)
    below = counts @ denominator
    ratios = np.sort((counts @ numerator)[below > 0] / below[below > 0])
    tail = (1.0 - confidence) / 2.0
    reach = student_t(confidence, n - 1) * math.sqrt(n / (n - 1)) if reach is None else reach
    stretch = reach / NormalDist().inv_cdf(1.0 - tail)
    low = value + stretch * (quantile_linear(ratios, tail) - value)
    high = value + stretch * (quantile_linear(ratios, 1.0 - tail) - value)
    return Estimate(value=value, low=min(low, value), high=max(high, value), n=n)


def linear_trend(blocks: FloatArray, confidence: float = 0.99) -> Trend | None:
    """Least-squares trend over equal blocks as a relative change across the window, with a t-interval on the slope.

    None for fewer than 10 blocks or a mean of 0, where a relative change has no meaning.
    """
    n = len(blocks)
    mean = float(blocks.mean()) if n else 0.0
    if n < MIN_BLOCKS or mean == 0.0:
        return None
    x = np.arange(n, dtype=np.float64) - (n - 1) / 2.0
    spread = float((x * x).sum())
    slope = float((x * (blocks - mean)).sum()) / spread
    left = blocks - mean - slope * x
    error = math.sqrt(float((left * left).sum()) / (n - 2) / spread)
    half = student_t(confidence, n - 2) * error
    scale = n / abs(mean)
    return Trend(change=slope * scale, low=(slope - half) * scale, high=(slope + half) * scale)
