"""Boxed tables of vendors' tools, as they are and cut off."""

from __future__ import annotations

import pytest

from bench.probes import boxes

HEADER = "| Card  Name | Power:Usage/Cap | Memory |"
ROW = "| 0     X100 | 54W / 350W      | 1234MiB |"
RULE = "+------------+-----------------+--------+"


@pytest.mark.parametrize("end", range(len(ROW)))
def test_a_row_that_was_cut_anywhere_never_tells_half_a_number(end: int) -> None:
    cut = ROW[:end]
    told = boxes.cells(cut)
    whole = boxes.cells(ROW)
    assert whole is not None
    assert told is None or all(cell in (*whole, "") for cell in told)  # cut just behind a bar: fewer cells, each whole
    found = list(boxes.blocks("\n".join((RULE, HEADER, RULE, cut))))
    assert found[0] == [["Card  Name", "Power:Usage/Cap", "Memory"]]
    assert all(boxes.under(found[0], block) == {} for block in found[1:])


def test_cells_at_the_end_may_be_empty() -> None:
    assert boxes.cells("| a | |") == ["a", ""]
    assert boxes.cells("| a ||") == ["a", ""]


@pytest.mark.parametrize("line", ["", "|", "text", RULE, "|=====+=====|", "Driver 1.2 | 3"])
def test_what_is_no_row(line: str) -> None:
    assert boxes.cells(line) is None
