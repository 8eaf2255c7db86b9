"""How far an interval must reach where power, or a rate, stays high or low for longer than a block. Pure.

Blocks that resemble their neighbours say less of the mean than as many independent ones. How alike they are is told by the
slowest movements within the window, its first cosines: each says what the mean may be off by, once lifted by how much more
the mean sees of slow noise than that cosine does. The lift is averaged over models of noise, each weighed by how well it
explains all cosines: some that is fresh in every block, and some that is forgotten over a time of up to `LONGEST_S`.

Sources: Lazarus, Lewis, Stock and Watson 2018, HAR Inference: Recommendations for Practice (few cosines, Student's t of their
number); Mueller 2014, HAC Corrections for Strongly Autocorrelated Time Series (cosines weighed by a model of the persistence).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bench.records import FloatArray
from bench.stats import student_t

LONGEST_S = 10.0
"""Noise is taken to forget itself within this time, any time up to it being as likely. What lasts longer is a trend."""
_TIMES = 12
_FRESH = (0.0, 0.1, 0.3, 0.6, 0.9, 1.0)
"""Shares of the noise that are fresh in each block."""
_SHORTEST_S = 1e-3
"""Shorter blocks are taken as this long: rounding leaves nothing of how they differ, and no window is cut so short."""
FEWEST_COSINES = 2
FLAT = 0.75
"""A cosine counts that sees at least this much of what the mean sees."""


def reach(blocks: FloatArray, block_s: float, confidence: float = 0.95) -> float:
    """Half-width of the interval of the mean of consecutive blocks of `block_s`, in standard errors that independent blocks
    would have: `blocks.std() / sqrt(n)`.
    """
    n = len(blocks)
    spread = float(blocks.var())
    if spread <= 0.0:
        return student_t(confidence, n - 1)
    seen = (_cosines(n) @ blocks)[1:] ** 2
    spectra = _spectra(n, block_s)
    fit = -0.5 * np.log(spectra[:, 1:]).sum(axis=1) - 0.5 * (n - 1) * np.log((seen / spectra[:, 1:]).sum(axis=1))
    weights = np.exp(fit - fit.max())
    lift = (weights @ (spectra[:, :1] / spectra[:, 1:])) / weights.sum()
    used = max(FEWEST_COSINES, int(np.argmax(np.append(lift * FLAT > 1.0, True))))
    return student_t(confidence, used) * float(np.sqrt((lift * seen)[:used].mean() / spread))


def half_width(blocks: FloatArray, block_s: float) -> float:
    """Half-width of the 95% interval of the mean of consecutive blocks of `block_s`, in their own unit."""
    return reach(blocks, block_s) * float(blocks.std() / np.sqrt(len(blocks)))


@lru_cache(maxsize=32)
def _cosines(n: int) -> FloatArray:
    """Orthonormal cosines over `n` blocks, by row; the first is the mean."""
    rows: FloatArray = np.sqrt(2.0 / n) * np.cos(np.pi * np.arange(n)[:, None] * (np.arange(n) + 0.5) / n)
    rows[0] /= np.sqrt(2.0)
    return rows


@lru_cache(maxsize=32)
def _spectra(n: int, block_s: float) -> FloatArray:
    """Variance that each cosine (column) sees under each model of noise (row): exponential memory, averaged over blocks."""
    rate = max(block_s, _SHORTEST_S) / np.linspace(LONGEST_S / _TIMES, LONGEST_S, _TIMES)[:, None, None]
    apart = np.abs(np.arange(n)[:, None] - np.arange(n))
    same, ends = 2.0 * (rate + np.expm1(-rate)), np.exp(-rate * np.maximum(apart - 1, 0))
    alike = np.where(apart == 0, same, ends * np.expm1(-rate) ** 2) / rate**2
    slow = np.einsum("ij,mjk,ik->mi", _cosines(n), alike, _cosines(n))
    slow /= slow[:, 1:].mean(axis=1, keepdims=True)
    return np.concatenate([fresh + (1.0 - fresh) * slow for fresh in _FRESH])
