"""Memory is bounded, and what was let go is known."""

from __future__ import annotations

import numpy as np

from bench.mock.ledger import Column, Ledger, Record
from bench.records import MISSING


def ended(at_ns: int, chunks: int, *, tokens_per_chunk: int = 1) -> Record:
    record = Record(
        opened_ns=at_ns - 10,
        arrived_ns=at_ns - 9,
        streamed=True,
        tokens=chunks,
        tokens_per_chunk=tokens_per_chunk,
        prompt_tokens=1,
    )
    for chunk in range(chunks):
        record.stamps.extend((at_ns - 5 + chunk, at_ns - 6 + chunk))
    record.ended_ns, record.complete = at_ns, True
    return record


def filled(max_chunks: int, requests: int, chunks: int) -> Ledger:
    ledger = Ledger(max_chunks, segment_chunks=10)
    for number in range(requests):
        record = ended(1000 * (number + 1), chunks)
        ledger.open(record)
        ledger.close(record)
    return ledger


def test_rows_come_back_as_they_went_in() -> None:
    ledger = Ledger(100)
    first, second = ended(100, 2), ended(200, 3)
    for record in (first, second):
        ledger.open(record)
        ledger.close(record)
    rows = ledger.since(0)
    assert rows.requests[:, Column.CHUNKS].tolist() == [2, 3]
    assert rows.requests[:, Column.ENDED].tolist() == [100, 200]
    assert rows.sent_ns.tolist() == [95, 96, 195, 196, 197]
    assert (rows.sent_ns - rows.due_ns).tolist() == [1] * 5


def test_running_requests_are_in_it_with_what_they_sent() -> None:
    ledger = Ledger(100)
    record = Record(opened_ns=1, arrived_ns=2, streamed=True, tokens=5, tokens_per_chunk=2, prompt_tokens=1)
    ledger.open(record)
    record.stamps.extend((10, 9, 20, 19, 30, 29))
    rows = ledger.since(0)
    assert rows.requests[0, Column.ENDED] == MISSING
    assert rows.requests[0, Column.COMPLETE] == 0
    assert rows.sent_ns.tolist() == [10, 20, 30]
    assert ledger.running_tokens() == 5


def test_a_request_is_closed_once() -> None:
    ledger = Ledger(100)
    record = ended(100, 2)
    ledger.open(record)
    ledger.close(record)
    ledger.close(record)
    assert len(ledger.since(0).requests) == 1


def test_the_last_chunks_are_kept_and_the_rest_is_known_to_be_gone() -> None:
    ledger = filled(max_chunks=30, requests=50, chunks=5)
    rows = ledger.since(0)
    assert 30 <= len(rows.sent_ns) <= 50
    assert ledger.forgotten_ns > 0
    assert int(rows.requests[:, Column.ENDED].min()) > ledger.forgotten_ns
    assert int(rows.requests[-1, Column.ENDED]) == 50_000


def test_nothing_is_gone_before_the_bound() -> None:
    assert filled(max_chunks=30, requests=6, chunks=5).forgotten_ns == MISSING


def test_requests_without_chunks_are_bounded_too() -> None:
    ledger = filled(max_chunks=30, requests=500, chunks=0)
    assert len(ledger.since(0).requests) <= 50
    assert ledger.forgotten_ns > 0


def test_old_segments_are_left_out() -> None:
    ledger = filled(max_chunks=1000, requests=20, chunks=5)
    assert np.all(ledger.since(15_000).requests[:, Column.ENDED] > 13_000)
    assert len(ledger.since(0).requests) == 20
