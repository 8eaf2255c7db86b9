"""Losses too slow for a night to see, and those that a host and a build share, over simulated nights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from bench.analysis.gate import Judged
from bench.analysis.gate_drift import drift_of
from bench.lab.gate import JUDGED_NIGHTS
from tests.gate.following import (
    LEAD_IN,
    THROUGHPUT,
    YEAR,
    drawn,
    findings,
    follow,
    nights_until,
    within,
)
from tests.gate.simulated_nights import beside_a_reference, nights, slide, step

SEED = 20261201
AFTERWARDS = 30
"""Nights for which a loss is looked for once it is whole."""
SLIDES = ((0.09, 30), (0.06, 60), (0.05, 120), (0.03, 120))
"""Slow losses: share that is lost in the end, nights that it takes."""
YEARS, ROUNDS = 1000, 300
LATER = 20
"""Nights after its host on which a build gets worse, too."""


def drifts(judged: Sequence[Judged]) -> list[int]:
    """The nights on which a slow drift began to be told."""
    told = [
        drift_of(judged[max(0, night + 1 - JUDGED_NIGHTS) : night + 1], THROUGHPUT) is not None for night in range(len(judged))
    ]
    return [night for night in range(LEAD_IN, len(told)) if told[night] and not told[night - 1]]


def first_told(judged: Sequence[Judged]) -> tuple[int, str] | None:
    """The first thing that is told of a series after its lead-in, and when."""
    every = [*((night, str(state)) for night, state in findings(judged)), *((night, "slow drift") for night in drifts(judged))]
    return min((one for one in every if one[0] >= LEAD_IN), default=None)


# --- slow losses --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Slid:
    """What was told first of some series that got slower a little every night, and the loss [share] by then."""

    rounds: int
    told: Counter[str]
    losses: list[float]

    @property
    def share(self) -> float:
        """How many were told of at all."""
        return len(self.losses) / self.rounds

    def __str__(self) -> str:
        named = ", ".join(f"{count / self.rounds:.0%} {name}" for name, count in self.told.most_common())
        if not self.losses:
            return "nothing told"
        half, most = np.quantile(self.losses, (0.5, 0.9))
        return f"{self.share:.0%} told ({named}), half of them at a loss of {half:.1%}, nine in ten by {most:.1%}"


def slid(rng: np.random.Generator, rounds: int, side: str, loss: float, over: int) -> Slid:
    """Series whose build or host (`side`) gets slower by a share, in even steps over so many nights."""
    lost = slide(LEAD_IN + over + AFTERWARDS, LEAD_IN, loss, over)
    found = [first_told(follow(nights(rng, len(lost), **{side: lost}))) for _ in range(rounds)]
    told = [one for one in found if one is not None]
    return Slid(
        rounds=rounds, told=Counter(name for _, name in told), losses=[float(-np.expm1(lost[night])) for night, _ in told]
    )


def false_drifts(rng: np.random.Generator, years: int) -> int:
    return sum(len(drifts(follow(nights(rng, LEAD_IN + YEAR)))) for _ in range(years))


def test_a_few_years_without_a_change_drift_nowhere() -> None:
    assert false_drifts(np.random.default_rng(SEED), 4) == 0


@pytest.mark.parametrize(("side", "wrong"), [("build", "host_shift"), ("host", "confirmed")])
def test_a_slow_loss_is_told_and_nobody_else_is_blamed(side: str, wrong: str) -> None:
    found = slid(np.random.default_rng(SEED), 15, side, 0.09, 30)
    assert found.share == 1.0
    assert found.told[wrong] <= 1


@pytest.mark.proof
def test_slow_losses(capsys: pytest.CaptureFixture[str]) -> None:
    rng, say = drawn(capsys)
    false = false_drifts(rng, YEARS)
    say(f"nothing changed, {YEARS} series-years: slow drift told {false} times, {false / YEARS:.3f} a series-year")
    told = {}
    for loss, over in SLIDES:
        for side in ("build", "host"):
            told[side, loss] = slid(rng, ROUNDS, side, loss, over)
            say(f"{loss:.0%} slower {side}, {loss / over:.3%} a night for {over} nights: {told[side, loss]} ({ROUNDS} series)")
    assert false / YEARS <= 0.02
    assert min(one.share for (_, loss), one in told.items() if loss >= 0.05) >= 0.9
    assert told["build", 0.09].told["host_shift"] <= 0.05 * ROUNDS
    assert told["host", 0.09].told["confirmed"] <= 0.05 * ROUNDS


# --- beside a reference -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Some series of which the build, the host or both got 5% slower: nights from then until a regression was confirmed, or a
    shift of the host was told; infinite where it wasn't. `asked`: pairs a series after the first drop.
    """

    confirmed: list[float]
    shifted: list[float]
    asked: float

    def __str__(self) -> str:
        named = (("regression", self.confirmed), ("shift of the host", self.shifted))
        told = "; ".join(f"{name} {', '.join(f'{within(found, n):.1%} within {n}' for n in (3, 7, 15))}" for name, found in named)
        return f"{told} nights; pairs on {self.asked:.1f} nights a series"


def shared(
    rng: np.random.Generator,
    rounds: int,
    *,
    build_at: int | None = None,
    host_at: int | None = None,
    felt: float = 1.0,
    referenced: bool = True,
) -> Shared:
    """Series beside a reference, where nights count from the end of the lead-in; times to confirm count from the build's drop."""
    began = [at for at in (build_at, host_at) if at is not None]
    count = LEAD_IN + max(began) + 15
    build, host = (None if at is None else step(count, LEAD_IN + at, 0.05) for at in (build_at, host_at))
    confirmed, shifted, asked = [], [], 0
    for _ in range(rounds):
        ours, theirs = beside_a_reference(rng, count, build=build, host=host, felt=felt)
        judged = follow(ours, theirs if referenced else ())
        confirmed.append(nights_until(judged, "confirmed", LEAD_IN + (min(began) if build_at is None else build_at)))
        shifted.append(nights_until(judged, "host_shift", LEAD_IN + min(began)))
        asked += sum(one.confirmation is not None for one in judged[LEAD_IN + min(began) :])
    return Shared(confirmed=confirmed, shifted=shifted, asked=asked / rounds)


def false_beside(rng: np.random.Generator, years: int) -> tuple[int, int]:
    """Findings in series beside a reference where nothing ever changed, and pairs measured for them."""
    alarms = asked = 0
    for _ in range(years):
        judged = follow(*beside_a_reference(rng, LEAD_IN + YEAR))
        alarms += sum(night >= LEAD_IN for night, _ in findings(judged))
        asked += sum(one.confirmation is not None for one in judged[LEAD_IN:])
    return alarms, asked


def test_a_host_that_got_slower_is_told_as_such_and_as_nothing_else() -> None:
    found = shared(np.random.default_rng(SEED), 60, host_at=0)
    assert within(found.shifted, 15) >= 0.7
    assert within(found.confirmed, 15) == 0.0


@pytest.mark.parametrize("build_at", [0, LATER])
def test_a_host_that_got_slower_hides_no_build_that_did(build_at: int) -> None:
    assert within(shared(np.random.default_rng(SEED), 20, build_at=build_at, host_at=0).confirmed, 15) >= 0.9


@pytest.mark.proof
def test_beside_a_reference(capsys: pytest.CaptureFixture[str]) -> None:
    rng, say = drawn(capsys)
    alarms, asked = false_beside(rng, YEARS)
    say(
        f"nothing changed, {YEARS} series-years: {alarms} false findings, {alarms / YEARS:.3f} a series-year; "
        f"pairs on {asked / YEARS:.1f} nights a year"
    )
    host, build = shared(rng, ROUNDS, host_at=0), shared(rng, ROUNDS, build_at=0)
    both, later = shared(rng, ROUNDS, build_at=0, host_at=0), shared(rng, ROUNDS, build_at=LATER, host_at=0)
    say(f"5% slower host: {host}")
    say(f"5% slower host, which its reference feels as 3%: {shared(rng, ROUNDS, host_at=0, felt=0.6)}")
    say(f"5% slower build: {build}")
    say(f"both on one night: {both}")
    say(f"the host, and {LATER} nights later the build: {later}")
    alone = shared(rng, ROUNDS, build_at=LATER, host_at=0, referenced=False)
    say(f"the same without a reference: {alone}")
    assert alarms / YEARS <= 0.02
    assert within(host.shifted, 15) >= 0.8
    assert within(host.confirmed, 15) <= 0.02
    assert within(build.confirmed, 3) >= 0.88
    assert min(within(one.confirmed, 15) for one in (build, both, later)) >= 0.95
