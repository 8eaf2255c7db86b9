"""Token counts, their attribution to chunks, and where they come from."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from bench.records import MISSING, ChunkKind, Outcome
from bench.timing.tokens import count_tokens
from tests.timing.builders import Request, make_log, steady

TOOL, REASONING, CONTENT = ChunkKind.TOOL, ChunkKind.REASONING, ChunkKind.CONTENT


def test_one_token_a_chunk_when_usage_says_so() -> None:
    found = count_tokens(make_log([steady(0, n=5)]))
    assert found.per_chunk.tolist() == [1.0] * 5
    assert found.n_out.tolist() == [5]
    assert found.per_chunk_known.tolist() == [True]
    assert found.source == "usage"


@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
def test_a_textless_stop_token_is_no_mismatch(finish: str) -> None:
    found = count_tokens(make_log([steady(0, n=5, usage=6, finish=finish)]))
    assert found.n_out.tolist() == [6]
    assert found.delivered.tolist() == [5.0]
    assert found.per_chunk_known.tolist() == [True]
    assert found.source == "usage"


def test_a_reply_ended_by_length_has_no_stop_token_so_two_tokens_share_a_chunk() -> None:
    found = count_tokens(make_log([steady(0, n=5, usage=6, finish="length")]))
    assert found.per_chunk_known.tolist() == [False]
    assert found.per_chunk.sum() == pytest.approx(6)
    assert found.source == "spread_by_bytes"


def test_tokens_are_spread_by_bytes() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 10), (2, 30), (3, 40)], usage=16)]))
    assert found.per_chunk.tolist() == [2.0, 6.0, 8.0]
    assert found.source == "spread_by_bytes"


def test_tokens_are_spread_evenly_where_chunks_have_no_text() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 0, TOOL), (2, 0, TOOL)], usage=6)]))
    assert found.per_chunk.tolist() == [3.0, 3.0]


def test_told_tokens_per_chunk_are_taken() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 4, CONTENT, 1), (2, 4, CONTENT, 3), (3, 4, CONTENT, 4)], usage=8)]))
    assert found.per_chunk.tolist() == [1.0, 3.0, 4.0]
    assert found.source == "ids"
    assert found.per_chunk_known.all()


def test_counts_of_a_tokenizer_stand_in_where_the_server_has_none() -> None:
    told = Request(chunks=[(1, 4, CONTENT), (2, 4, CONTENT)], usage=2)
    counted = Request(chunks=[(3, 4, CONTENT, 2), (4, 4, CONTENT, 0), (5, 4, CONTENT, 3)])
    whole = Request(chunks=[])  # not streamed
    log = replace(make_log([told, counted, whole]), output_retokenized=np.array([MISSING, 5, 7]))
    found = count_tokens(log)
    assert found.n_out.tolist() == [2, 5, 7]
    assert found.per_chunk.tolist() == [1.0, 1.0, 2.0, 0.0, 3.0]
    assert found.per_chunk_known.tolist()[:2] == [True, True]
    assert found.source == "retokenized"


def test_told_tokens_stand_in_for_missing_usage() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 4, CONTENT, 2), (2, 4, CONTENT, 3)])]))
    assert found.n_out.tolist() == [5]
    assert found.source == "ids"


def test_usage_outranks_told_tokens_that_contradict_it() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 4, CONTENT, 2), (2, 4, CONTENT, 3)], usage=10)]))
    assert found.n_out.tolist() == [10]
    assert found.per_chunk.tolist() == [4.0, 6.0]
    assert found.per_chunk_known.tolist() == [False]


def test_the_length_asked_for_is_never_a_count() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 4), (2, 4)], output_requested=2)]))
    assert found.n_out.tolist() == [MISSING]
    assert np.isnan(found.per_chunk).all()
    assert found.source is None


def test_a_request_cut_off_before_usage_is_counted_like_its_peers() -> None:
    cut = Request(chunks=[(1, 4), (2, 4), (3, 4)], outcome=Outcome.CANCELLED, finish=None)
    found = count_tokens(make_log([steady(0, n=5), cut]))
    assert found.per_chunk.tolist() == [1.0] * 8
    assert found.n_out.tolist() == [5, MISSING]
    assert found.source == "usage"


def test_a_request_cut_off_among_bundled_chunks_is_counted_by_bytes() -> None:
    whole = Request(chunks=[(1, 10), (2, 10)], usage=5)
    cut = Request(chunks=[(1, 40)], outcome=Outcome.TRUNCATED, finish=None)
    found = count_tokens(make_log([whole, cut]))
    assert found.per_chunk.tolist() == [2.5, 2.5, 10.0]


def test_hidden_reasoning_is_not_put_on_visible_chunks() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 4), (2, 4)], usage=102, reasoning=100)]))
    assert found.hidden.tolist() == [True]
    assert found.per_chunk.tolist() == [1.0, 1.0]
    assert found.n_out.tolist() == [102]


def test_streamed_reasoning_is_not_hidden() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 4, REASONING), (2, 4)], usage=2, reasoning=1)]))
    assert found.hidden.tolist() == [False]
    assert found.per_chunk.tolist() == [1.0, 1.0]


def test_a_usage_of_zero_with_content_is_no_count() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 4)], usage=0)]))
    assert np.isnan(found.per_chunk).all()


def test_no_requests_and_no_chunks() -> None:
    assert len(count_tokens(make_log([])).n_out) == 0
    empty = count_tokens(make_log([Request(outcome=Outcome.TIMEOUT)]))
    assert np.isnan(empty.delivered).all()
    assert empty.source is None


def test_the_only_chunk_of_a_reply_holds_all_of_it() -> None:
    found = count_tokens(make_log([Request(chunks=[(1, 99)], usage=7), Request(chunks=[(1, 10), (2, 30)], usage=8)]))
    assert found.per_chunk.tolist() == [7.0, 2.0, 6.0]
    assert found.per_chunk_known.tolist() == [True, False]
    assert found.source == "spread_by_bytes"
    assert count_tokens(make_log([Request(chunks=[(1, 99)], usage=7)])).source == "usage"
