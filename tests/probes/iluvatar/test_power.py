"""W or mW: the unit that a number of Iluvatar's library is in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.probes.iluvatar import power
from bench.probes.values import Unavailable


@pytest.mark.parametrize(
    ("raw", "limit", "watts"),
    [
        (93, 350, 93.0),
        (93_000, 350_000, 93.0),
        (93, None, 93.0),
        (93_000, None, 93.0),
        (999, None, 999.0),
        (1000, None, 1.0),
        (6350, 320_000, 6.35),
        (9, 320, 9.0),
    ],
)
def test_seeds(raw: int, limit: int | None, watts: float) -> None:
    limits = [] if limit is None else [limit]
    limit_w = None if limit is None else power.limit_w(limit)
    assert power.watts(raw, power.is_milliwatts(limits), limit_w) == pytest.approx(watts)


@pytest.mark.parametrize(
    ("raw", "limit"), [(93_000, 350), (93, 350_000), (701, 350), (701_000, 350_000), (0, 350), (0, None), (6_000_000, None)]
)
def test_what_fits_no_unit_is_no_reading(raw: int, limit: int | None) -> None:
    limits = [] if limit is None else [limit]
    with pytest.raises(Unavailable):
        power.watts(raw, power.is_milliwatts(limits), None if limit is None else power.limit_w(limit))


@given(st.integers(1, 999), st.integers(75, 1000), st.booleans(), st.booleans())
def test_every_card_is_read_right_in_both_releases(watts: int, limit: int, in_milliwatts: bool, tells_limit: bool) -> None:
    if watts > 2 * limit:
        return
    scale = 1000 if in_milliwatts else 1
    limits = [limit * scale] if tells_limit else []
    limit_w = power.limit_w(limit * scale) if tells_limit else None
    assert power.watts(watts * scale, power.is_milliwatts(limits), limit_w) == watts


def test_no_limit_is_none() -> None:
    with pytest.raises(Unavailable):
        power.limit_w(0)
