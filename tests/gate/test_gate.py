"""What a night is judged to be, given the nights before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.gate import (
    BASE_AGE,
    FEWEST_NIGHTS,
    SHIFT_NIGHTS,
    Judged,
    Night,
    Rule,
    base_nights,
    confirm,
    judge_all,
    judge_night,
)

UP, DOWN = Rule(better="up", least_effect=0.02), Rule(better="down", least_effect=0.03)
WIGGLE = (0.0, 0.006, -0.006, 0.009, -0.004, 0.003, -0.009, 0.005, -0.002, 0.007)


def name_of(number: int) -> str:
    return f"2026-{1 + number // 28:02}-{1 + number % 28:02}"


def steady(count: int, level: float = 100.0, *, start: int = 0) -> list[Night]:
    """Nights that differ by half a percent or so."""
    return [Night(night=name_of(start + i), values=(level * (1 + WIGGLE[i % 10]),)) for i in range(count)]


def pairs(change: float, count: int = 5, noise: float = 0.004) -> tuple[tuple[float, float], ...]:
    """Pairs whose candidate is slower by `change`."""
    return tuple((100.0, 100.0 * (1 - change) * (1 + noise * (i % 2 - 0.5))) for i in range(count))


def last(nights: list[Night], rule: Rule = UP) -> Judged:
    return judge_all({"s": nights}, {"s": rule})["s"][-1]


def tonight(
    values: tuple[float, ...], found: tuple[tuple[float, float], ...] = (), accepted: str | None = None, number: int = 30
) -> Night:
    return Night(night=name_of(number), values=values, pairs=found, accepted=accepted)


@pytest.mark.parametrize(
    ("nights", "state"),
    [
        (steady(FEWEST_NIGHTS), "insufficient data"),
        (steady(FEWEST_NIGHTS + 1), "ok"),
        ([*steady(30), tonight((95.0,))], "trigger"),
        ([*steady(30), tonight((106.0,))], "ok"),
        ([*steady(30), tonight((98.5,))], "ok"),  # z is large, the change too small to matter
        ([*steady(30), tonight((95.0,), pairs(0.05))], "confirmed"),
        ([*steady(30), tonight((95.0,), pairs(0.0))], "trigger"),
        ([*steady(30), tonight((95.0,), pairs(0.01, noise=0.0))], "trigger"),  # sure, but too small
        ([*steady(30), tonight((95.0,), pairs(0.05, count=2))], "trigger"),
        ([*steady(30), tonight((80.0,), accepted="new kernel")], "accepted change point"),
        ([*steady(30), tonight((95.0, 99.9, 100.1))], "ok"),  # one odd repeat of three is no night
    ],
)
def test_a_night_gets_its_state(nights: list[Night], state: str) -> None:
    assert last(nights).state == state


@pytest.mark.parametrize(
    ("rule", "value", "state"), [(UP, 95.0, "trigger"), (DOWN, 95.0, "ok"), (DOWN, 105.0, "trigger"), (UP, 105.0, "ok")]
)
def test_worse_follows_the_direction_of_the_metric(rule: Rule, value: float, state: str) -> None:
    judged = last([*steady(30), tonight((value,))], rule)
    assert judged.state == state
    assert judged.change == pytest.approx(0.05 if state == "trigger" else -0.05, abs=0.003)


def test_a_noisy_host_needs_a_larger_change() -> None:
    rng = np.random.default_rng(1)
    noisy = [Night(night=name_of(i), values=(100.0 * float(np.exp(rng.normal(0, 0.04))),)) for i in range(30)]
    assert last([*steady(30), tonight((97.0,))]).state == "trigger"
    assert last([*noisy, tonight((97.0,))]).state == "ok"


def test_a_confirmed_change_stands_without_new_pairs_until_it_is_gone() -> None:
    low = [tonight((95.0,), pairs(0.05)), tonight((95.5,), number=31), tonight((96.5,), number=32)]
    judged = judge_all({"s": [*steady(30), *low, *steady(4, start=33)]}, {"s": UP})["s"]
    assert [one.state for one in judged[-7:]] == ["confirmed"] * 4 + ["ok"] * 3
    assert {one.since for one in judged[-7:-3]} == {name_of(30)}


def test_an_accepted_change_begins_a_new_baseline() -> None:
    nights = [*steady(30), tonight((80.0,), accepted="fewer threads"), *steady(12, 80.0, start=31)]
    judged = judge_all({"s": nights}, {"s": UP})["s"]
    assert [one.state for one in judged[31:38]] == ["insufficient data"] * 7
    assert [one.state for one in judged[38:]] == ["ok"] * 5


def test_triggers_whose_pairs_show_nothing_night_after_night_are_a_shift_of_the_host() -> None:
    nights = [*steady(30), *(tonight((95.0,), pairs(0.0), number=30 + i) for i in range(SHIFT_NIGHTS))]
    states = [one.state for one in judge_all({"s": nights}, {"s": UP})["s"][30:]]
    assert states == ["trigger"] * (SHIFT_NIGHTS - 1) + ["host_shift"]


def test_triggers_that_nobody_paired_are_no_finding() -> None:
    nights = [*steady(30), *(tonight((95.0,), number=30 + i) for i in range(10))]
    assert {one.state for one in judge_all({"s": nights}, {"s": UP})["s"][30:]} == {"trigger"}


def test_pairs_of_many_series_on_one_night_are_judged_together() -> None:
    """p = 0.009 alone confirms; among forty whose pairs show nothing it may be luck."""
    changes = (0.004, 0.020, 0.036, 0.012, 0.028)
    found = tuple((100.0, 100.0 * (1 - change)) for change in changes)
    alone = confirm(found, UP)
    assert alone is not None
    assert 0.005 < alone.p < 0.03
    sure = tuple((100.0, 100.0 * (1 - change * 0.9 - 0.003)) for change in changes)
    one = {"s": [*steady(30), tonight((95.0,), sure)]}
    assert judge_all(one, {"s": UP})["s"][-1].state == "confirmed"
    many = one | {f"t{i}": [*steady(30), tonight((95.0,), pairs(0.0))] for i in range(40)}
    assert judge_all(many, dict.fromkeys(many, UP))["s"][-1].state == "trigger"


@given(st.lists(st.floats(50, 200), min_size=3, max_size=40), st.floats(1e-3, 1e3))
def test_the_unit_does_not_matter(values: list[float], scale: float) -> None:
    nights = [Night(night=name_of(i), values=(v,)) for i, v in enumerate(values)]
    scaled = [Night(night=name_of(i), values=(v * scale,)) for i, v in enumerate(values)]
    one, two = judge_all({"s": nights}, {"s": UP})["s"], judge_all({"s": scaled}, {"s": UP})["s"]
    for a, b in zip(one, two, strict=True):
        assert a.baseline == b.baseline
        assert a.z is None or b.z is None or a.z == pytest.approx(b.z, rel=1e-6, abs=1e-6)


def test_a_night_knows_nothing_of_later_ones() -> None:
    nights = [*steady(30), tonight((95.0,), pairs(0.05)), *steady(5, start=31)]
    whole = judge_all({"s": nights}, {"s": UP})["s"]
    past: list[Judged] = []
    for night in nights:
        past.append(judge_night(past, night, UP))
    assert past == whole


# --- a reference, whose build never changes -------------------------------------------------------------------------------


def beside_a_reference(ours: list[Night], theirs: list[Night], host: str = "h") -> list[Judged]:
    """How a series is judged beside the reference of host `h`."""
    references = [replace(night, is_reference=True) for night in theirs]
    return judge_all({"s": ours, "ref": references}, {"s": UP, "ref": UP}, {"s": host, "ref": "h"})["s"]


@pytest.mark.parametrize(
    ("ours", "theirs", "host", "spoken"),
    [
        (95.0, 95.0, "h", True),
        (95.0, 96.5, "h", True),
        (95.0, 100.0, "h", False),  # the build is under suspicion: pairs are asked for
        (95.0, 97.5, "h", False),  # the host is to blame for a half of it
        (90.0, 95.0, "h", False),
        (97.4, 99.0, "h", False),  # what is left is little, and yet most of it
        (95.0, 95.0, "another", False),
    ],
)
def test_as_much_as_the_reference_got_worse_the_night_is_to_blame(ours: float, theirs: float, host: str, spoken: bool) -> None:
    found = beside_a_reference([*steady(30), tonight((ours,))], [*steady(30), tonight((theirs,))], host)[-1]
    assert (found.state, found.in_vain, found.wants_pairs) == ("trigger", spoken, not spoken)


def shifted(*ours: Night) -> list[Judged]:
    """A series whose host shifts by 5% and stays there, from the night of the shift on; `ours` are its last nights."""
    low = [tonight((95.0,), number=30 + i) for i in range(SHIFT_NIGHTS + len(ours))]
    return beside_a_reference([*steady(30), *low[:SHIFT_NIGHTS], *ours], [*steady(30), *low])[30:]


def test_a_build_that_gets_worse_while_the_host_is_slow_is_suspected_and_found() -> None:
    """The shift of the host stands, and says nothing of what came on top."""
    night = SHIFT_NIGHTS + 30
    same, worse = shifted(tonight((95.0,), number=night))[-1], shifted(tonight((90.0,), number=night))[-1]
    assert (same.state, same.wants_pairs) == ("host_shift", False)
    assert (worse.state, worse.wants_pairs) == ("host_shift", True)
    blamed = shifted(tonight((90.0,), pairs(0.05), number=night))[-1]
    assert (blamed.state, blamed.since, blamed.wants_pairs) == ("confirmed", blamed.night, False)
    cleared = shifted(tonight((90.0,), pairs(0.0), number=night))[-1]
    assert (cleared.state, cleared.wants_pairs) == ("host_shift", False)


def test_a_shift_of_the_host_without_a_reference_asks_for_no_more_pairs() -> None:
    nights = [
        *steady(30),
        *(tonight((95.0,), pairs(0.0), number=30 + i) for i in range(SHIFT_NIGHTS)),
        tonight((90.0,), number=40),
    ]
    found = judge_all({"s": nights}, {"s": UP})["s"][-1]
    assert (found.state, found.wants_pairs) == ("host_shift", False)


# --- the build that pairs are measured against ----------------------------------------------------------------------------


def bases(nights: list[Night]) -> list[str]:
    return base_nights(judge_all({"s": nights}, {"s": UP})["s"])


def test_a_build_is_measured_against_one_from_before_it_may_have_got_worse() -> None:
    """A bad build that was lucky on its first nights is no base for itself."""
    assert bases(steady(30)) == [name_of(night) for night in range(30 - BASE_AGE, 30)]
    assert bases([*steady(24), *(tonight((95.0,), number=24 + i) for i in range(BASE_AGE))])[0] == name_of(23)
    assert bases(steady(3)) == [name_of(0), name_of(1), name_of(2)]
    assert bases([]) == []


def test_no_build_is_measured_against_one_from_before_an_accepted_change() -> None:
    nights = [*steady(30), tonight((80.0,), accepted="fewer threads"), *steady(4, 80.0, start=31)]
    assert bases(nights)[0] == name_of(30)


def test_every_reference_must_have_moved() -> None:
    ours = [*steady(30), tonight((95.0,))]
    moved, still = ([replace(n, is_reference=True) for n in [*steady(30), tonight((v,))]] for v in (95.0, 100.0))
    keys = ("s", "r1", "r2")
    found = judge_all(dict(zip(keys, (ours, moved, still), strict=True)), dict.fromkeys(keys, UP), dict.fromkeys(keys, "h"))
    assert not found["s"][-1].in_vain


def test_a_host_that_moved_its_reference_night_after_night_has_shifted_without_any_pairs() -> None:
    low = [tonight((95.0,), number=30 + i) for i in range(SHIFT_NIGHTS)]
    states = [one.state for one in beside_a_reference([*steady(30), *low], [*steady(30), *low])[30:]]
    assert states == ["trigger"] * (SHIFT_NIGHTS - 1) + ["host_shift"]


def test_pairs_that_blame_the_build_outweigh_the_reference() -> None:
    ours = [*steady(30), tonight((90.0,), pairs(0.05))]
    assert beside_a_reference(ours, [*steady(30), tonight((95.0,))])[-1].state == "confirmed"


def test_a_night_that_a_reference_excused_comes_into_the_baseline_later() -> None:
    """As one whose pairs showed nothing does: left out for good, a host's bad nights would seem ever rarer."""
    ours = [*steady(10), tonight((95.0,), number=10), *steady(9, start=11)]
    excused, accused = beside_a_reference(ours, ours), beside_a_reference(ours, steady(20))
    assert (excused[-1].baseline, accused[-1].baseline) == (19, 18)
