"""Slots and context for sets of cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.records import DataSpec, LengthSpec, LoadSpec
from bench.runners.sizing import MARGIN_TOKENS, OPEN_LOOP_SLOTS, Sizing, longest, size_for
from bench.testing.cases import case

SPECS = st.builds(
    LengthSpec,
    dist=st.sampled_from(["fixed", "uniform", "normal", "lognormal"]),
    mean=st.integers(1, 10_000),
    spread=st.floats(0, 0.99),
)


@given(SPECS)
def test_the_longest_length_covers_the_distribution(spec: LengthSpec) -> None:
    assert longest(spec) >= spec.mean
    if spec.dist == "uniform":
        assert longest(spec) >= int(spec.mean * (1 + spec.spread))
    if spec.dist in ("normal", "lognormal"):
        assert longest(spec) >= spec.mean + 4 * spec.spread * spec.mean


def test_context_has_room_for_the_longest_row_of_a_data_file_and_for_shared_prefixes() -> None:
    assert longest(LengthSpec(dist="dataset", mean=100, largest=3000)) == 3000
    plain = size_for([case(data=DataSpec())], {})
    assert size_for([case(data=DataSpec(prefix_tokens=512, prefix_groups=3))], {}).slot_tokens >= plain.slot_tokens + 512


@given(st.lists(st.tuples(st.integers(1, 64), SPECS, SPECS), min_size=1, max_size=5))
def test_one_start_serves_all_its_cases(points: list[tuple[int, LengthSpec, LengthSpec]]) -> None:
    cases = [
        case(load=LoadSpec(kind="closed", batch_size=batch), input_tokens=prompt, output_tokens=output)
        for batch, prompt, output in points
    ]
    whole = size_for(cases, {})
    for one in cases:
        alone = size_for([one], {})
        assert whole.slots >= alone.slots == one.load.batch_size
        assert whole.slot_tokens >= alone.slot_tokens >= longest(one.input_tokens) + longest(one.output_tokens) + MARGIN_TOKENS
    assert whole.context_tokens == whole.slots * whole.slot_tokens


@pytest.mark.parametrize(
    ("load", "slots"),
    [
        (LoadSpec(kind="closed", batch_size=7), 7),
        (LoadSpec(kind="open", request_rate=5.0, max_concurrency=9), 9),
        (LoadSpec(kind="open", request_rate=5.0), OPEN_LOOP_SLOTS),
        (LoadSpec(kind="open", arrivals="burst", num_prompts=3), 3),
        (LoadSpec(kind="closed", batch_size=2, num_prompts=100), 2),
    ],
)
def test_slots_follow_the_load(load: LoadSpec, slots: int) -> None:
    assert size_for([case(load=load)], {}).slots == slots


def test_sizes_that_are_given_are_taken() -> None:
    assert size_for([case()], {"slots": 3, "ctx_per_slot": 1000}) == Sizing(slots=3, slot_tokens=1000)


def test_token_ids_need_no_room_for_drift() -> None:
    exact = size_for([case(protocol="openai-completions")], {}).slot_tokens
    assert exact == 64 + 32 + MARGIN_TOKENS < size_for([case(protocol="openai-chat")], {}).slot_tokens
