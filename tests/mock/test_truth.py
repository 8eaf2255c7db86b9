"""The window arithmetic, over arrays made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.mock.ledger import Ledger, Record, Rows
from bench.mock.truth import Spread, truth_over

MS = 1_000_000


def rows_of(*records: Record) -> Rows:
    ledger = Ledger(1_000_000)
    for record in records:
        ledger.open(record)
        if record.ended_ns >= 0:
            ledger.close(record)
    return ledger.since(0)


def record(
    arrived_ms: float,
    sent_ms: list[float],
    *,
    tokens: int | None = None,
    step: int = 1,
    complete: bool = True,
    late_ms: float = 0.0,
    streamed: bool = True,
    prompt_tokens: int = 5,
) -> Record:
    made = Record(
        opened_ns=round((arrived_ms - 1) * MS),
        arrived_ns=round(arrived_ms * MS),
        streamed=streamed,
        tokens=len(sent_ms) * step if tokens is None else tokens,
        tokens_per_chunk=step,
        prompt_tokens=prompt_tokens,
    )
    for at_ms in sent_ms:
        made.stamps.extend((round(at_ms * MS), round((at_ms - late_ms) * MS)))
    if complete:
        made.complete, made.ended_ns = True, round((sent_ms[-1] if sent_ms else arrived_ms) * MS) + 1
    return made


def test_latencies_are_of_requests_that_arrived_in_the_window() -> None:
    rows = rows_of(record(10, [60, 80, 100]), record(200, [240, 300]), record(400, [999]))
    truth = truth_over(rows, 100 * MS, 400 * MS)
    assert truth.requests == 1
    assert truth.ttft_ms == Spread(n=1, mean=40.0, p50=40.0, p90=40.0, p99=40.0, max=40.0)
    assert truth.icl_ms.n == 1
    assert truth.icl_ms.p50 == 60.0
    assert truth.e2e_ms.p50 == 100.0
    assert truth.request_read_ms.p50 == 1.0


def test_throughput_is_of_events_in_the_window_whenever_their_request_came() -> None:
    rows = rows_of(record(10, [60, 80, 100, 120]), record(90, [150, 250]))
    truth = truth_over(rows, 80 * MS, 150 * MS)
    assert truth.output_tokens == 3  # 80, 100, 120: the end is not in the window
    assert truth.output_tok_per_s == pytest.approx(3 / 0.070)
    assert truth.requests_completed == 1
    assert truth.requests_per_s == pytest.approx(1 / 0.070)


def test_input_tokens_count_where_the_first_content_falls() -> None:
    rows = rows_of(record(10, [60], prompt_tokens=7), record(20, [160], prompt_tokens=11))
    assert truth_over(rows, 0, 100 * MS).input_tokens == 7


def test_chunks_hold_several_tokens_and_the_last_holds_the_rest() -> None:
    rows = rows_of(record(0, [10, 30, 50], tokens=8, step=3))
    truth = truth_over(rows, 0, 100 * MS)
    assert truth.output_chunks == 3
    assert truth.output_tokens == 8
    assert truth_over(rows, 40 * MS, 60 * MS).output_tokens == 2
    assert truth.itl_ms.n == 5  # gaps of 3 and 2 tokens, weighted by tokens
    assert truth.itl_ms.mean == pytest.approx(40 / 5)
    assert truth.icl_ms.mean == pytest.approx(20.0)


def test_unfinished_requests_have_a_ttft_but_no_e2e() -> None:
    truth = truth_over(rows_of(record(0, [10, 20], tokens=9, complete=False)), 0, 100 * MS)
    assert (truth.requests, truth.requests_unfinished, truth.requests_completed) == (1, 1, 0)
    assert truth.ttft_ms.n == 1
    assert truth.e2e_ms == Spread(n=0)
    assert truth.output_tokens == 2


def test_replies_that_are_not_streamed_have_no_ttft() -> None:
    truth = truth_over(rows_of(record(0, [50], tokens=12, step=12, streamed=False)), 0, 100 * MS)
    assert truth.ttft_ms == Spread(n=0)
    assert truth.e2e_ms.p50 == 50.0
    assert truth.output_tokens == 12


def test_empty_replies_are_completed_requests_without_any_latency() -> None:
    truth = truth_over(rows_of(record(5, [])), 0, 100 * MS)
    assert truth.requests_completed == 1
    assert truth.ttft_ms == truth.e2e_ms == Spread(n=0)
    assert truth.output_tokens == 0


def test_nothing_at_all_is_none_and_not_zero() -> None:
    truth = truth_over(rows_of(), 0, MS)
    assert truth.lag_ms == Spread(n=0)
    assert truth.lag_ms.p99 is None
    assert truth.server_saturated is False


@pytest.mark.parametrize(("late_ms", "saturated"), [(0.1, False), (1.9, False), (2.1, True)])
def test_a_lag_above_two_milliseconds_is_saturation(late_ms: float, saturated: bool) -> None:
    truth = truth_over(rows_of(record(0, [10, 20, 30], late_ms=late_ms)), 0, 100 * MS)
    assert truth.lag_ms.p99 == pytest.approx(late_ms)
    assert truth.server_saturated is saturated


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        truth_over(rows_of(), 5, 5)


requests = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 60), st.lists(st.integers(0, 40), max_size=6), st.integers(1, 3)), max_size=8
)


def made(parts: list[tuple[int, int, list[int], int]]) -> list[Record]:
    built = []
    for arrived, first, gaps, step in parts:
        sent = np.cumsum([arrived + first, *gaps]).tolist()
        built.append(record(arrived, sent, step=step))
    return built


@given(requests, st.integers(1, 999))
def test_windows_that_meet_add_up(parts: list[tuple[int, int, list[int], int]], cut: int) -> None:
    rows = rows_of(*made(parts))
    both, left, right = (truth_over(rows, low * MS, high * MS) for low, high in ((0, 1000), (0, cut), (cut, 1000)))
    for name in ("requests", "requests_completed", "output_tokens", "output_chunks", "input_tokens"):
        assert getattr(both, name) == getattr(left, name) + getattr(right, name)
    for name in ("ttft_ms", "icl_ms", "itl_ms", "e2e_ms", "lag_ms"):
        assert getattr(both, name).n == getattr(left, name).n + getattr(right, name).n


@given(requests, st.integers(0, 10**15))
def test_a_shift_of_the_clock_changes_nothing(parts: list[tuple[int, int, list[int], int]], shift: int) -> None:
    rows = rows_of(*made(parts))
    moved = rows.requests.copy()
    moved[:, :3] += shift
    later = Rows(requests=moved, sent_ns=rows.sent_ns + shift, due_ns=rows.due_ns + shift)
    here, there = truth_over(rows, 0, 600 * MS), truth_over(later, shift, shift + 600 * MS)
    assert (here.ttft_ms, here.icl_ms, here.e2e_ms) == (there.ttft_ms, there.icl_ms, there.e2e_ms)
    assert here.output_tokens == there.output_tokens


@given(requests)
def test_the_order_of_requests_does_not_matter(parts: list[tuple[int, int, list[int], int]]) -> None:
    records = made(parts)
    turned = truth_over(rows_of(*reversed(records)), 0, 700 * MS)
    straight = truth_over(rows_of(*records), 0, 700 * MS)
    assert turned.ttft_ms.p50 == straight.ttft_ms.p50
    assert turned.icl_ms.p99 == straight.icl_ms.p99
    assert turned.output_tokens == straight.output_tokens
