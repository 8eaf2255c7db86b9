"""Devices of one physical board: what counts once, and what counts each."""

from __future__ import annotations

import pytest

from bench.probes import cards
from bench.probes.cards import Card, Quantity
from bench.records import Scope
from bench.timing.scopes import accountable


def card(index: int, power_w: float | None, scope: Scope = "accelerator") -> Card:
    told = {} if power_w is None else {"power_w": Quantity(get=lambda: power_w, api="call", unit="W")}
    return Card(index=index, unique_id=f"x{index}", board="one", scope=scope, quantities=told)


def counted(told: list[Card], *, repeated: bool = False) -> list[str]:
    """The devices whose power is added up."""
    made, _ = cards.boards("x", "X", [told])
    for group in cards.of_one_board(made):
        cards.gather(group, repeated=repeated)
    kinds = {board.info.scope for board in made}
    return sorted(d.uid for kind in kinds for d in accountable(b.info for b in made if b.info.scope == kind))


@pytest.mark.parametrize(
    ("powers", "repeated", "expected"),
    [
        ((100.0, None), False, ["x0"]),
        ((None, 100.0), False, ["x1"]),
        ((100.0, 60.0), False, ["x0", "x1"]),
        ((100.0, 60.0, None), False, ["x0", "x1"]),
        ((100.0, 100.0), True, ["x0"]),
    ],
)
def test_no_watt_of_a_board_is_lost_or_counted_twice(
    powers: tuple[float | None, ...], repeated: bool, expected: list[str]
) -> None:
    assert counted([card(i, power) for i, power in enumerate(powers)], repeated=repeated) == expected


def test_a_module_belongs_to_its_board_and_is_counted_in_its_own_scope() -> None:
    told = [card(0, 100.0), card(1, 150.0, "module")]
    assert counted(told) == ["x0", "x1"]
    made, _ = cards.boards("x", "X", [told])
    cards.gather(made)
    assert [board.info.board for board in made] == ["x0", "x0"]
