"""The gate over simulated nights, one after the other, as it is asked every morning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bench.analysis.gate import FINDINGS, Judged, Night, Rule, State, base_nights, judge_tonight
from bench.lab.gate import JUDGED_NIGHTS
from tests.gate.simulated_nights import SimulatedNight

THROUGHPUT = Rule(better="up", least_effect=0.02)
RULES = {"ours": THROUGHPUT, "reference": THROUGHPUT}
LEAD_IN = 60
"""Nights before anything happens: after them the gate knows how much nights differ."""
YEAR = 365


def follow(
    ours: Sequence[SimulatedNight],
    reference: Sequence[SimulatedNight] = (),
    base: Callable[[Sequence[Judged]], Sequence[str]] = base_nights,
) -> list[Judged]:
    """What each night is judged to be. The gate gets pairs only of a night for which it wants them, against the build of the
    first night that `base` names.
    """
    past: dict[str, list[Judged]] = {"ours": [], "reference": []}
    for number, simulated in enumerate(ours):
        tonight = {"ours": Night(night=f"{number:04}", values=simulated.values)}
        if reference:
            tonight["reference"] = Night(night=f"{number:04}", values=reference[number].values, is_reference=True)
        seen = {key: judged[-JUDGED_NIGHTS:] for key, judged in past.items()}
        judged = judge_tonight(seen, tonight, RULES)
        if judged["ours"].wants_pairs:
            good = base(seen["ours"])
            tonight["ours"] = replace(tonight["ours"], pairs=simulated.pairs(ours[int(good[0])]))
            judged = judge_tonight(seen, tonight, RULES)
        for key, one in judged.items():
            past[key].append(one)
    return past["ours"]


def findings(judged: Sequence[Judged]) -> list[tuple[int, State]]:
    """The nights on which a finding began, and what it is."""
    return [
        (number, now.state)
        for number, (before, now) in enumerate(pairwise(judged), start=1)
        if now.state in FINDINGS and now.state != before.state
    ]


def nights_until(judged: Sequence[Judged], state: State, since: int) -> float:
    """How many nights it took from the night `since` on to find this; infinite where it wasn't."""
    return next((night - since + 1 for night, found in findings(judged) if found == state and night >= since), np.inf)


def within(found: Sequence[float], count: int) -> float:
    """The share that took no more nights."""
    return float(np.mean(np.asarray(found) <= count))


def drawn_seed() -> int:
    """A seed that nobody chose."""
    return int(np.random.SeedSequence().entropy) % 2**32  # type: ignore[arg-type]


def drawn(capsys: pytest.CaptureFixture[str]) -> tuple[np.random.Generator, Callable[[str], None]]:
    """Noise of a seed that nobody chose, and what prints a line of the proof; the first one says the seed."""
    seed, say = drawn_seed(), sayer(capsys)
    say(f"\nseed {seed} (drawn when the test began)")
    return np.random.default_rng(seed), say


def sayer(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line of a proof."""

    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"{line}\n")

    return say
