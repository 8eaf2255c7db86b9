"""How often the gate is wrong, and how soon it is right, over simulated years of nights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bench.analysis.gate import FINDINGS, Judged, Night, Rule, judge_night
from tests.gate.simulated_nights import SimulatedNight, nights

THROUGHPUT = Rule(better="up", least_effect=0.02)
LEAD_IN = 60
YEAR = 365
SEEN_YEARS = 4
SEEN_DROPS = 60


def follow(seen: Iterable[SimulatedNight]) -> Iterator[Judged]:
    """The gate, night by night: it gets pairs only on a night that triggered."""
    past: list[Judged] = []
    for number, simulated in enumerate(seen):
        night = Night(night=f"{number:04}", values=simulated.values)
        judged = judge_night(past, night, THROUGHPUT)
        if judged.state == "trigger":
            judged = judge_night(past, replace(night, pairs=simulated.pairs), THROUGHPUT)
        past.append(judged)
        yield judged


def false_alarms(rng: np.random.Generator, years: int) -> tuple[int, int]:
    """Findings of any kind in series where nothing ever changed, and pairs asked for."""
    alarms = asked = 0
    for _ in range(years):
        judged = list(follow(nights(rng, LEAD_IN + YEAR)))[LEAD_IN - 1 :]
        alarms += sum(b.state in FINDINGS and a.state not in FINDINGS for a, b in pairwise(judged))
        asked += sum(one.triggered for one in judged[1:])
    return alarms, asked


def nights_to_find(rng: np.random.Generator, rounds: int, state: str, *, drop: float = 0.05, host: bool = False) -> np.ndarray:
    """Nights from a drop to its finding in each of `rounds` series; infinite where 15 are not enough."""
    found = np.full(rounds, np.inf)
    for i in range(rounds):
        judged = list(follow(nights(rng, LEAD_IN + 15, drop_at=LEAD_IN, drop=drop, host=host)))[LEAD_IN:]
        found[i] = next((n for n, one in enumerate(judged, start=1) if one.state == state), np.inf)
    return found


def within(found: np.ndarray, count: int) -> float:
    return float((found <= count).mean())


def test_a_few_years_without_a_change_raise_no_alarm() -> None:
    assert false_alarms(np.random.default_rng(20261201), 6)[0] == 0


def test_a_drop_is_found_soon() -> None:
    found = nights_to_find(np.random.default_rng(20261201), 40, "confirmed")
    assert within(found, 3) >= 0.8
    assert within(found, 15) >= 0.95


@pytest.mark.proof
def test_the_gate_over_200_series_years(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(np.random.SeedSequence().entropy) % 2**32  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    alarms, asked = false_alarms(rng, 200)
    drops, shifts = nights_to_find(rng, 1000, "confirmed"), nights_to_find(rng, 300, "host_shift", host=True)
    say = _sayer(capsys)
    say(f"seed {seed} (drawn when the test began)")
    say(
        f"nothing changed, 200 series-years: {alarms} false findings, {alarms / 200:.3f} a series-year; "
        f"pairs asked for on {asked / 200:.1f} nights a year"
    )
    sets = (("5% slower build, found as confirmed", drops), ("5% slower host, found as host_shift", shifts))
    for name, found in sets:
        say(
            f"{name}: "
            + ", ".join(f"{within(found, n):.1%} within {n}" for n in (1, 3, 7, 15))
            + f" nights ({len(found)} series)"
        )
    for drop in (0.03, 0.10):
        found = nights_to_find(rng, 300, "confirmed", drop=drop)
        say(f"{drop:.0%} slower build: " + ", ".join(f"{within(found, n):.1%} within {n}" for n in (1, 3, 7, 15)) + " nights")
    assert alarms / 200 <= 0.02
    assert within(drops, 3) >= 0.88
    assert within(drops, 15) >= 0.97


def _sayer(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"{line}\n")

    return say


@pytest.mark.proof
def test_the_gate_beside_other_detectors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same nights through asv and Apache Otava, from PyPI in an environment of their own, asked each night."""
    seed = int(np.random.SeedSequence().entropy) % 2**32  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    years = [list(nights(rng, LEAD_IN + YEAR)) for _ in range(SEEN_YEARS)]
    drops = [list(nights(rng, LEAD_IN + 15, drop_at=LEAD_IN, drop=0.05)) for _ in range(SEEN_DROPS)]
    alarms = {"bench gate, with pairs": [_findings(one) for one in (*years, *drops)]}
    alarms |= _others(tmp_path, [[float(np.median(night.values)) for night in one] for one in (*years, *drops)])
    say = _sayer(capsys)
    say(f"\nseed {seed}: {SEEN_YEARS} series-years without a change, {SEEN_DROPS} series that get 5% slower")
    for name, found in alarms.items():
        false = sum(map(len, found[:SEEN_YEARS])) / SEEN_YEARS
        first = np.array([min((night - LEAD_IN + 1 for night in one), default=np.inf) for one in found[SEEN_YEARS:]])
        seen = ", ".join(f"{within(first, n):.0%} within {n}" for n in (1, 3, 7, 15))
        say(f"{name}: {false:.2f} false alarms a series-year; a 5% drop: {seen} nights")
    assert sum(map(len, alarms["bench gate, with pairs"][:SEEN_YEARS])) == 0


def _findings(seen: Sequence[SimulatedNight]) -> list[int]:
    states = [one.state in FINDINGS for one in follow(seen)]
    return [night for night in range(LEAD_IN, len(states)) if states[night] and not states[night - 1]]


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
