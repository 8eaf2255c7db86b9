"""Replies laid out in advance, without a clock or a socket."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.mock.api import Ask
from bench.mock.options import MockOptions
from bench.mock.plan import MAX_PIECES, Ending, Planner, Reply
from bench.mock.quirks import parse_quirks
from bench.mock.render import Renderer

MS = 1_000_000
ASK = Ask(
    chat=True,
    model="mock",
    prompt_tokens=3,
    max_tokens=12,
    ignore_eos=True,
    stream=True,
    include_usage=True,
    usage_every_chunk=False,
)
FRAMING = (
    "comments",
    "crlf",
    "split-bytes",
    "split-bytes=random",
    "coalesce=3",
    "gzip",
    "trailers",
    "slow-headers=7",
    "stall=3:9",
)
CONTENT = (
    "role-null",
    "no-role",
    "role-with-first",
    "usage-late=5",
    "multi-token=4",
    "reasoning",
    "eos=5",
    "truncate=4",
    "hang-after=2",
)


def planner(*quirks: str, ttft_ms: float = 50.0, gap_ms: float = 20.0, seed: int = 0) -> Planner:
    parsed = parse_quirks(quirks)
    renderer = Renderer(model="mock", created_s=1, quirks=parsed)
    return Planner(MockOptions(ttft_ms=ttft_ms, gap_ms=gap_ms), parsed, renderer, np.random.default_rng(seed))


def content(reply: Reply) -> list[int]:
    """Offsets at which content chunks are complete."""
    return [offset for offset, chunks in zip(reply.offsets_ns, reply.chunks, strict=True) for _ in range(chunks)]


def wire(reply: Reply) -> bytes:
    return reply.opening + b"".join(reply.writes)


def test_content_is_due_at_the_ttft_and_then_each_gap() -> None:
    reply = planner().plan(ASK)
    assert reply.ttft_ns == 50 * MS
    assert content(reply) == [20 * MS * index for index in range(12)]
    assert (reply.tokens, reply.ending, reply.complete) == (12, Ending.KEEP, True)


def test_the_same_question_costs_nothing_the_second_time() -> None:
    made = planner()
    assert made.plan(ASK) is made.plan(dataclasses.replace(ASK))


def test_random_replies_are_laid_out_anew() -> None:
    made = planner("gap-jitter=0.5")
    assert made.plan(ASK).offsets_ns != made.plan(ASK).offsets_ns


def test_jitter_keeps_the_mean_gap_and_never_goes_back() -> None:
    offsets = content(planner("gap-jitter=0.3").plan(dataclasses.replace(ASK, max_tokens=4000)))
    gaps = np.diff(offsets)
    assert gaps.min() > 0
    assert gaps.mean() == pytest.approx(20 * MS, rel=0.03)


def test_stalls_add_to_every_so_many_gaps() -> None:
    gaps = np.diff(content(planner("stall=3:9").plan(ASK))) // MS
    assert gaps.tolist() == [20, 20, 29, 20, 20, 29, 20, 20, 29, 20, 20]


def test_split_bytes_puts_each_byte_in_a_write_of_its_own() -> None:
    whole, split = planner("comments").plan(ASK), planner("comments", "split-bytes").plan(ASK)
    assert {len(data) for data in split.writes} == {1}
    assert wire(split) == wire(whole)


def test_split_random_cuts_a_few_times_anywhere() -> None:
    whole, split = planner("comments").plan(ASK), planner("comments", "split-bytes=random").plan(ASK)
    assert wire(split) == wire(whole)
    assert len(whole.writes) < len(split.writes) <= MAX_PIECES * len(whole.writes)


@pytest.mark.parametrize("split", ["split-bytes", "split-bytes=random"])
def test_split_events_are_complete_when_they_are_due(split: str) -> None:
    assert content(planner(split).plan(ASK)) == content(planner().plan(ASK))


@pytest.mark.parametrize("gap_ms", [0.0, 20.0])
@pytest.mark.parametrize("ttft_ms", [0.0, 50.0])
@given(framing=st.sets(st.sampled_from(FRAMING)), extra=st.sampled_from(CONTENT), tokens=st.integers(1, 30))
def test_any_quirks_together_keep_time_and_count(
    ttft_ms: float, gap_ms: float, framing: set[str], extra: str, tokens: int
) -> None:
    reply = planner(*framing, extra, ttft_ms=ttft_ms, gap_ms=gap_ms).plan(dataclasses.replace(ASK, max_tokens=tokens))
    assert len(reply.writes) == len(reply.offsets_ns) == len(reply.chunks)
    assert list(reply.offsets_ns) == sorted(reply.offsets_ns)
    assert reply.offsets_ns == () or reply.offsets_ns[0] >= -reply.ttft_ns
    assert all(reply.writes)
    if reply.complete:
        assert sum(reply.chunks) == -(-reply.tokens // reply.tokens_per_chunk)
        assert wire(reply).endswith(b"\r\n\r\n")


@given(st.integers(1, 200), st.integers(1, 50))
def test_chunks_times_tokens_is_the_length(tokens: int, step: int) -> None:
    reply = planner(f"multi-token={step}").plan(dataclasses.replace(ASK, max_tokens=tokens))
    assert sum(reply.chunks) == -(-tokens // step)
    assert wire(reply).count(b"tok0") == 1


def test_prefill_and_cache_move_the_ttft() -> None:
    quirks = parse_quirks(["cached=100"])
    options = MockOptions(prefill_us_per_token=10.0)
    made = Planner(options, quirks, Renderer(model="m", created_s=1, quirks=quirks), np.random.default_rng(0))
    assert made.plan(dataclasses.replace(ASK, prompt_tokens=1100)).ttft_ns == 60 * MS
    assert made.plan(dataclasses.replace(ASK, prompt_tokens=50)).ttft_ns == 50 * MS
    assert made.plan(dataclasses.replace(ASK, prompt_tokens=50)).cached_tokens == 50
