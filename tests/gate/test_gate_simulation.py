"""How often the gate is wrong, and how soon it is right, over simulated years of nights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.analysis.gate import Judged, State, base_nights
from tests.gate.following import LEAD_IN, YEAR, drawn, drawn_seed, findings, follow, nights_until, sayer, within
from tests.gate.simulated_nights import SimulatedNight, medians, nights, step

SEEN_YEARS = 20
SEEN_DROPS = 60
SOON = 15
AFTER = (1, 3, 7, SOON)
DROP = step(LEAD_IN + SOON, LEAD_IN, 0.05)


def false_alarms(rng: np.random.Generator, years: int) -> tuple[int, int]:
    """Findings of any kind in series where nothing ever changed, and nights that triggered."""
    alarms = asked = 0
    for _ in range(years):
        judged = follow(nights(rng, LEAD_IN + YEAR))
        alarms += sum(night >= LEAD_IN for night, _ in findings(judged))
        asked += sum(one.triggered for one in judged[LEAD_IN:])
    return alarms, asked


def nights_to_find(rng: np.random.Generator, rounds: int, state: State, *, drop: float = 0.05) -> list[float]:
    """Nights from a drop to its finding in each of `rounds` series; infinite where 15 are not enough. What drops is the build, or
    the host where that is to be found.
    """
    count = LEAD_IN + SOON
    lost = {"host" if state == "host_shift" else "build": step(count, LEAD_IN, drop)}
    return [nights_until(follow(nights(rng, count, **lost)), state, LEAD_IN) for _ in range(rounds)]


def shares(found: list[float], form: str = ".1%") -> str:
    """`78.8% within 1, ...`."""
    return ", ".join(f"{within(found, n):{form}} within {n}" for n in AFTER) + " nights"


def test_a_few_years_without_a_change_raise_no_alarm() -> None:
    assert false_alarms(np.random.default_rng(20261201), 6)[0] == 0


def test_a_drop_is_found_soon() -> None:
    found = nights_to_find(np.random.default_rng(20261201), 40, "confirmed")
    assert within(found, 3) >= 0.8
    assert within(found, 15) >= 0.95


@pytest.mark.proof
def test_the_gate_over_200_series_years(capsys: pytest.CaptureFixture[str]) -> None:
    rng, say = drawn(capsys)
    alarms, asked = false_alarms(rng, 200)
    drops, shifts = nights_to_find(rng, 1000, "confirmed"), nights_to_find(rng, 300, "host_shift")
    say(
        f"nothing changed, 200 series-years: {alarms} false findings, {alarms / 200:.3f} a series-year; "
        f"pairs asked for on {asked / 200:.1f} nights a year"
    )
    sets = (("5% slower build, found as confirmed", drops), ("5% slower host, found as host_shift", shifts))
    for name, found in sets:
        say(f"{name}: {shares(found)} ({len(found)} series)")
    for drop in (0.03, 0.10):
        say(f"{drop:.0%} slower build: {shares(nights_to_find(rng, 300, 'confirmed', drop=drop))}")
    assert alarms / 200 <= 0.02
    assert within(drops, 3) >= 0.88
    assert within(drops, 15) >= 0.97


@pytest.mark.proof
def test_the_build_that_pairs_are_measured_against(capsys: pytest.CaptureFixture[str]) -> None:
    seed = drawn_seed()
    say = sayer(capsys)
    say(f"\nseed {seed} (drawn when the test began): 5% slower build, 1000 series, the same for both")
    confirmed = {}
    for name, base in (("a good night two weeks ago", base_nights), ("the last good night", _last_good)):
        rng = np.random.default_rng(seed)
        judged = [follow(nights(rng, LEAD_IN + SOON, build=DROP), base=base) for _ in range(1000)]
        confirmed[name] = [nights_until(one, "confirmed", LEAD_IN) for one in judged]
        shifted = [nights_until(one, "host_shift", LEAD_IN) for one in judged]
        say(f"against the build of {name}: {shares(confirmed[name])}; told as a shift of the host {within(shifted, SOON):.1%}")
    ours, lucky = (within(found, SOON) for found in confirmed.values())
    assert ours > lucky


def _last_good(past: Sequence[Judged]) -> list[str]:
    return [one.night for one in reversed(past) if one.counts]


@pytest.mark.proof
def test_the_gate_beside_other_detectors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same nights through asv and Apache Otava, from PyPI in an environment of their own, asked each night."""
    seed = drawn_seed()
    rng = np.random.default_rng(seed)
    years = [nights(rng, LEAD_IN + YEAR) for _ in range(SEEN_YEARS)]
    drops = [nights(rng, LEAD_IN + SOON, build=DROP) for _ in range(SEEN_DROPS)]
    alarms = {"bench gate, with pairs": [_alarms(one) for one in (*years, *drops)]}
    alarms |= _others(tmp_path, [medians(one) for one in (*years, *drops)])
    say = sayer(capsys)
    say(f"\nseed {seed}: {SEEN_YEARS} series-years without a change, {SEEN_DROPS} series that get 5% slower")
    for name, found in alarms.items():
        false = sum(map(len, found[:SEEN_YEARS])) / SEEN_YEARS
        first = [min((night - LEAD_IN + 1 for night in one), default=np.inf) for one in found[SEEN_YEARS:]]
        say(f"{name}: {false:.2f} false alarms a series-year; a 5% drop: {shares(first, '.0%')}")
    assert (
        sum(map(len, alarms["bench gate, with pairs"][:SEEN_YEARS])) / SEEN_YEARS <= 0.1
    )  # 20 years are few: two may be bad luck


def _alarms(seen: list[SimulatedNight]) -> list[int]:
    return [night for night, _ in findings(follow(seen)) if night >= LEAD_IN]


def _others(folder: Path, series: list[list[float]]) -> dict[str, list[list[int]]]:
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "apache-otava==0.8.*", "asv==0.6.*"], check=True, capture_output=True
    )
    script = Path(__file__).with_name("other_detectors.py")
    done = subprocess.run([str(python), str(script)], input=json.dumps(series), capture_output=True, text=True, check=True)
    found: dict[str, list[list[int]]] = json.loads(done.stdout)
    return {f"{name}, as it comes": nights for name, nights in found.items()}
