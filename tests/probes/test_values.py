"""Values with units in any case, but where the case is the meaning."""

from __future__ import annotations

import pytest

from bench.probes.values import Unavailable, quantity


@pytest.mark.parametrize(("unit", "joules"), [
    ("J", 5.0), ("j", 5.0), ("mJ", 5e-3), ("mj", 5e-3), ("MJ", 5e6), ("kJ", 5e3), ("KJ", 5e3), ("uJ", 5e-6), ("UJ", 5e-6),
])  # fmt: skip
def test_a_million_joules_are_no_thousandth_of_one(unit: str, joules: float) -> None:
    for value in (f"5 {unit}", {"value": 5, "unit": unit}):
        assert quantity(value, "energy") == pytest.approx(joules)
    assert quantity(5, "energy", unit) == pytest.approx(joules)


@pytest.mark.parametrize(("unit", "kind"), [("MW", "power"), ("Mw", "power"), ("Mj", "energy")])
def test_an_m_of_which_nobody_knows_what_it_means_is_refused(unit: str, kind: str) -> None:
    with pytest.raises(Unavailable, match=unit):
        quantity(f"5 {unit}", kind)


@pytest.mark.parametrize("unit", ["MB", "mb", "MiB", "mib"])
def test_sizes_are_told_in_any_case(unit: str) -> None:
    assert quantity(f"5 {unit}", "memory") == 5 << 20
