"""J per token of simulated devices, in a column of its own: what a test can compare with the analytic answer. Pure."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from bench.records import Metric
from bench.timing.joules import Baseline, Work, energy_metrics
from bench.timing.scopes import ScopeEnergy
from bench.timing.spec import SIMULATED_J_PER_OUTPUT_TOK, undefined

_NO_BASELINE = Baseline(power_w=None, reason="not taken of simulated devices")


def simulated_metrics(
    energy: ScopeEnergy | None, seconds: float, work: Work, *, rng: np.random.Generator, harmless: frozenset[str]
) -> dict[str, Metric]:
    """`j_per_output_tok_simulated`, with the interval that a measured one would have; nothing where no device is simulated."""
    if energy is None:
        return {}
    broken = next((fault.message for fault in energy.faults if fault.code not in harmless), None)
    if energy.energy_j is None or broken:
        why = energy.reason or broken or "not read"
        return {SIMULATED_J_PER_OUTPUT_TOK: undefined(SIMULATED_J_PER_OUTPUT_TOK, why)}
    found = energy_metrics(energy, seconds, work, idle=_NO_BASELINE, resident=_NO_BASELINE, rng=rng)["j_per_output_tok"]
    return {SIMULATED_J_PER_OUTPUT_TOK: replace(found, name=SIMULATED_J_PER_OUTPUT_TOK)}
