"""Groups of requests that share a beginning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import synthetic_hash
from bench.load.prompts import Calibration
from bench.records import DataSpec, LengthSpec
from tests.load.scripted import make_case
from tests.load.test_prompts import IDS, bodies, make_pool, words


def prefixed(tokens: int, groups: int, **over: Any) -> dict[str, Any]:
    return {"data": DataSpec(prefix_tokens=tokens, prefix_groups=groups), **over}


def shared(one: list[Any], two: list[Any]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


@given(st.integers(4, 80), st.integers(1, 6), st.integers(4, 40), st.booleans(), st.integers(1, 3))
def test_a_group_shares_exactly_its_prefix_and_groups_share_nothing(
    tokens: int, groups: int, own: int, as_ids: bool, workers: int
) -> None:
    """Requests n and n + groups begin alike, over all workers; after the prefix they differ within a lead of four tokens."""
    over = prefixed(tokens, groups, input_tokens=LengthSpec(mean=own), target=IDS if as_ids else None)
    pools = [make_pool(worker=w, workers=workers, wanted=2, **over) for w in range(workers)]
    prompts: list[list[Any]] = []
    for number in range(3 * groups):
        payload = pools[number % workers].take(number)[0].partition(b"\r\n\r\n")[2]
        body = json.loads(payload)
        prompts.append(body["prompt"] if as_ids else words(body))
    for i, one in enumerate(prompts):
        assert len(one) == tokens + own
        for j in range(i):
            got = shared(one, prompts[j])
            if i % groups == j % groups:
                assert tokens <= got < tokens + 4
            else:
                assert got < 4
    assert len({tuple(prompt) for prompt in prompts}) == len(prompts)


def test_the_prefix_counts_as_input() -> None:
    pool = make_pool(**prefixed(100, 2, input_tokens=LengthSpec(mean=30)))
    assert {pool.take(n)[1] for n in range(8)} == {130}


def test_a_prefix_is_as_long_as_the_server_counts() -> None:
    counts = Calibration(overhead_tokens=10, tokens_per_word=2.0)
    pool = make_pool(calibration=counts, **prefixed(100, 1, input_tokens=LengthSpec(mean=60)))
    one, two = (words(body) for body in bodies(pool, 2))
    assert len(one) == counts.words(160)
    assert 50 <= shared(one, two) < 54


def test_the_salt_changes_prefixes_too() -> None:
    (one,), (two,) = (bodies(make_pool(salt=salt, **prefixed(40, 1)), 1) for salt in ("a", "b"))
    assert shared(words(one), words(two)) < 4


def test_short_prefixes() -> None:
    for tokens in (1, 2, 3, 4, 5):
        one, two = (words(body) for body in bodies(make_pool(**prefixed(tokens, 1)), 2))
        assert tokens <= shared(one, two) < tokens + 4


def test_the_hash_of_the_data_knows_the_prefixes() -> None:
    plain = synthetic_hash(make_case())
    assert plain == synthetic_hash(make_case(data=DataSpec(salt=False)))
    assert len({plain, *(synthetic_hash(make_case(**prefixed(t, g))) for t in (10, 20) for g in (1, 2))}) == 5


@pytest.mark.parametrize(("data", "wanted"), [
    (DataSpec(), False), (DataSpec(prefix_tokens=9, prefix_groups=1), True), (DataSpec(salt=False), True),
    (DataSpec(shares_prefixes=True), True), (DataSpec(path="a.jsonl"), False),
])  # fmt: skip
def test_when_cache_hits_are_wanted(data: DataSpec, wanted: bool) -> None:
    assert data.wants_cache_hits is wanted
