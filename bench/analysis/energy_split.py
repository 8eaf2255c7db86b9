"""What a prompt token, an output token and a second cost: E = a*N_in + b*N_out + c*T over a sweep of lengths. Pure.

Prefill and decode overlap in a batching engine, so that taking one measured energy from another would charge the same
joules twice. A regression over trials of different lengths and lengths of window tells them apart, or says that it can't.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.records import FloatArray
from bench.stats import Estimate, student_t

FEWEST_SPARE = 2
"""Trials beyond the number of coefficients: with fewer the residuals say nothing of the spread."""
WORST_CONDITION = 100.0
"""Condition number of the scaled columns above which they are too alike to be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One trial: energy [J] of its window, prompt and output tokens in it, and its length [s]."""

    energy_j: float
    input_tokens: float
    output_tokens: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySplit:
    """Coefficients with 95% t-intervals. `idle_w` is what is drawn whatever the load; `residual` is the relative standard
    deviation of what the model leaves over.

    A coefficient whose interval holds 0 is not told apart from nothing. The sensor's gain is not in the intervals: it scales
    all three alike.
    """

    j_per_input_tok: Estimate
    j_per_output_tok: Estimate
    idle_w: Estimate
    residual: float
    condition: float
    n: int


def split_energy(points: Sequence[SweepPoint], confidence: float = 0.95) -> EnergySplit | str:
    """Least squares with weights 1/E (a sensor's error is relative), or in words why this sweep can't tell them apart.

    Raises: ValueError for an energy or a length that is not above 0.
    """
    rows = np.array([(p.input_tokens, p.output_tokens, p.seconds) for p in points], dtype=np.float64).reshape(-1, 3)
    energy = np.array([p.energy_j for p in points], dtype=np.float64)
    if not (bool((energy > 0).all()) and bool((rows[:, 2] > 0).all())):
        raise ValueError("every trial of a sweep needs an energy and a length above 0")
    n, k = rows.shape
    if n < k + FEWEST_SPARE:
        return f"{n} trials: at least {k + FEWEST_SPARE} of different lengths are needed"
    weighted = rows / energy[:, None]
    scale = np.sqrt((weighted**2).sum(axis=0))
    if not bool((scale > 0).all()):
        return "a sweep without prompt tokens, or without output tokens, can't be split"
    condition = float(np.linalg.cond(weighted / scale))
    if condition > WORST_CONDITION:
        return f"prompt tokens, output tokens and time rise together (condition {condition:.0f}): vary one without the others"
    return _fit(weighted, scale, condition, confidence)


def _fit(weighted: FloatArray, scale: FloatArray, condition: float, confidence: float) -> EnergySplit:
    """Of relative energies, all 1 by construction, on columns of unit length."""
    n, k = weighted.shape
    columns = weighted / scale
    found, _, _, _ = np.linalg.lstsq(columns, np.ones(n), rcond=None)
    left = 1.0 - columns @ found
    residual = float(np.sqrt((left**2).sum() / (n - k)))
    errors = residual * np.sqrt(np.diag(np.linalg.inv(columns.T @ columns)))
    reach = student_t(confidence, n - k)
    estimates = [
        Estimate(value=float(v / s), low=float((v - reach * e) / s), high=float((v + reach * e) / s), n=n)
        for v, e, s in zip(found, errors, scale, strict=True)
    ]
    return EnergySplit(
        j_per_input_tok=estimates[0],
        j_per_output_tok=estimates[1],
        idle_w=estimates[2],
        residual=residual,
        condition=condition,
        n=n,
    )
