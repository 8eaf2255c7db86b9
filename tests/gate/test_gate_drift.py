"""A loss that is too slow for any night to see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.analysis.gate import Judged, Rule
from bench.analysis.gate_drift import FEWEST_NIGHTS, Drift, drift_of
from tests.factories import save_trial
from tests.gate.test_gate import WIGGLE, name_of
from tests.gate.test_gate_command import of_throughput, trial
from tests.in_process import Bench

UP, DOWN = Rule(better="up", least_effect=0.02), Rule(better="down", least_effect=0.03)


def history(values: Sequence[float], *, wiggle: float = 1.0, state: dict[int, str] | None = None) -> list[Judged]:
    return [
        Judged(
            night=name_of(number),
            state=(state or {}).get(number, "ok"),  # type: ignore[arg-type]
            x=math.log(value * (1 + wiggle * WIGGLE[number % 10])),
            baseline=20,
        )
        for number, value in enumerate(values)
    ]


def sliding(change: float, count: int = 100) -> list[float]:
    """A level that goes in even steps from 100 to 100 times (1 + change)."""
    return [100.0 * (1 + change * number / (count - 1)) for number in range(count)]


def seen(found: Drift | None) -> float | None:
    return None if found is None else round(found.change, 2)


@pytest.mark.parametrize(
    ("values", "rule", "told"),
    [
        (sliding(-0.10), UP, 0.08),
        (sliding(0.10), DOWN, 0.08),
        (sliding(0.10), UP, None),  # it got better
        (sliding(-0.10), DOWN, None),
        (sliding(0.0), UP, None),
        (sliding(-0.02), UP, None),  # too little to matter
        (sliding(-0.10, FEWEST_NIGHTS - 1), UP, None),
        (sliding(-0.10, FEWEST_NIGHTS), UP, 0.07),
        ([], UP, None),
    ],
)
def test_a_slow_loss_is_told(values: list[float], rule: Rule, told: float | None) -> None:
    assert seen(drift_of(history(values), rule)) == told


def test_noise_hides_it() -> None:
    assert drift_of(history(sliding(-0.05)), UP) is not None
    assert drift_of(history(sliding(-0.05), wiggle=10.0), UP) is None


def test_what_was_found_or_accepted_is_no_drift() -> None:
    step = [100.0] * 50 + [90.0] * 50
    assert drift_of(history(step), UP) is not None
    assert drift_of(history(step, state=dict.fromkeys(range(50, 100), "confirmed")), UP) is None
    assert drift_of(history([100.0] * 30 + [90.0] * 80, state={30: "accepted change point"}), UP) is None


def test_the_gate_tells_it_and_goes_on(results: Path, bench: Bench) -> None:
    for night in range(FEWEST_NIGHTS):
        save_trial(results, trial(night, (1 - 0.08 * night / FEWEST_NIGHTS) * (1 + 0.3 * WIGGLE[night % 10])))
    ran = bench("gate")
    assert ran.code == 0
    assert "slow drift: output_tok_per_s of tiny q4_1" in ran.out
    assert "worse than those from 2026-09-01 on" in ran.out
    told = of_throughput(bench("gate", "--json").out)["drift"]
    assert told["since"] == "2026-09-01"
    assert told["change"] > 0.03
