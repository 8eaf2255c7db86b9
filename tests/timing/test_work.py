"""What a window's joules were spent on, and how far the count of its tokens may be off."""

from __future__ import annotations

import numpy as np
import pytest

from bench.timing.energies import work_of
from bench.timing.requests import observe
from tests.timing.builders import Request, make_case, make_log, steady, window_ms

WINDOW = window_ms(0, 10_000)


def in_chunks_of_three(sent_ms: float) -> Request:
    """Eight chunks whose tokens nobody told one by one: 24 in all."""
    return steady(sent_ms, n=8, usage=24)


@pytest.mark.parametrize(("at_edges", "within"), [(0, 50), (4, 0), (4, 50), (4, 400)])
def test_only_streams_over_an_edge_make_the_count_uncertain(at_edges: int, within: int) -> None:
    """However long the window: a request that begins and ends inside it counts whole."""
    requests = [in_chunks_of_three(at - 100) for at in (0, 10_000) for _ in range(at_edges)]
    requests += [in_chunks_of_three(1000 + 8000 * i / within) for i in range(within)]
    work = work_of(observe(make_case(), make_log(requests), WINDOW))
    assert work.edge_tokens == pytest.approx(3 * np.sqrt(2 * at_edges))


def test_counted_chunks_are_certain() -> None:
    requests = [steady(sent_ms, n=8) for sent_ms in (-100, 5000, 9900)]
    assert work_of(observe(make_case(), make_log(requests), WINDOW)).edge_tokens == 0.0
