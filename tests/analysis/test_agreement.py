"""Answers beside those of a reference: what counts, what does not, and what can't be compared."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis.agreement import Continuation, Reference, Scored, output_check
from bench.timing.validity import LEAST_SURE_STEPS, NEAR_TIE_NATS

SURE, TIE = NEAR_TIE_NATS, NEAR_TIE_NATS - 0.01
SCORED = Scored(text="a b c", tokens=3, nll_nats=2.0)


def continuation(tokens: list[str], gaps_nats: list[float]) -> Continuation:
    return Continuation(
        prompt="Go on:", text="".join(tokens), ends=tuple(accumulate(map(len, tokens))), gaps_nats=tuple(gaps_nats)
    )


def reference(*continuations: Continuation, scored: Scored | None = SCORED) -> Reference:
    """With one answer more, of which it is sure throughout, so that there is enough to compare."""
    rest = continuation([" x"] * LEAST_SURE_STEPS, [9.0] * LEAST_SURE_STEPS)
    return Reference(
        weights="w",
        model="m",
        engine="torch",
        version="2.13",
        precision="fp32",
        continuations=(*continuations, rest),
        scored=scored,
    )


def check(of: Reference, *answers: str, scored: Scored | None = SCORED) -> tuple[int, int]:
    """Agreed and compared tokens of the answers, the last of which is as it should be."""
    found = output_check(of, [*answers, of.continuations[-1].text], scored)
    assert found.reason is None
    assert found.steps - found.agreed == len(found.partings)
    return found.agreed - LEAST_SURE_STEPS, found.steps - LEAST_SURE_STEPS


TOKENS = st.lists(st.tuples(st.sampled_from([" a", " b", " ż", "c", "🙂"]), st.sampled_from([SURE, TIE, 4.0, 0.0])), min_size=1)


@given(tokens=TOKENS)
def test_the_same_answer_agrees_in_every_sure_token(tokens: list[tuple[str, float]]) -> None:
    said, gaps = [text for text, _ in tokens], [gap for _, gap in tokens]
    sure = sum(gap >= NEAR_TIE_NATS for gap in gaps)
    for more in ("", " and so on"):
        assert check(reference(continuation(said, gaps)), "".join(said) + more) == (sure, sure)


@given(tokens=TOKENS, at=st.integers(0, 99), then=st.sampled_from(["", "#", "# b"]))
def test_an_answer_counts_up_to_where_it_parts_and_a_near_tie_is_no_error(
    tokens: list[tuple[str, float]], at: int, then: str
) -> None:
    said, gaps = [text for text, _ in tokens], [gap for _, gap in tokens]
    at %= len(said)
    before = sum(gap >= NEAR_TIE_NATS for gap in gaps[:at])
    parts = gaps[at] >= NEAR_TIE_NATS
    of = reference(continuation(said, gaps))
    assert check(of, "".join(said[:at]) + then) == (before, before + parts)
    found = output_check(of, ["".join(said[:at]) + then, of.continuations[-1].text], None)
    for parting in found.partings:
        assert (parting.step, parting.gap_nats) == (at, gaps[at])
        assert parting.expected.strip() == said[at].strip()
        assert parting.found.strip() == then.strip()


@pytest.mark.parametrize("answer", [" Paris is", "Paris is", "  Paris is"])
def test_a_space_before_the_first_word_is_no_difference(answer: str) -> None:
    assert check(reference(continuation([" Paris", " is"], [3.0, 3.0])), answer) == (2, 2)


def test_a_parting_is_told_as_one_reads_it() -> None:
    of = reference(continuation([" six", " seven", " eight"], [3.0, 3.0, 3.0]))
    (parting,) = output_check(of, [" six pears", of.continuations[-1].text], None).partings
    assert parting.after == "Go on: six"
    assert (parting.expected, parting.found) == (" seven", " pears")


def test_nothing_is_concluded_from_a_reference_that_is_hardly_ever_sure() -> None:
    few = LEAST_SURE_STEPS - 1
    of = reference()
    unsure = replace(of, continuations=(continuation(["x"] * 99, [3.0] * few + [0.0] * (99 - few)),))
    found = output_check(unsure, ["something else"], SCORED)
    assert (found.steps, found.partings) == (0, ())
    assert f"sure of {few} tokens only" in str(found.reason)
    assert found.ppl == SCORED.ppl


def test_answers_that_all_leave_at_a_near_tie_give_no_number() -> None:
    of = replace(reference(), continuations=(continuation(["x"] * 99, [0.0] + [3.0] * 98),))
    found = output_check(of, ["y"], SCORED)
    assert found.steps == 0
    assert "near tie" in str(found.reason)


def test_perplexities_of_one_text_in_the_same_tokens() -> None:
    answers = [reference().continuations[-1].text]
    found = output_check(reference(), answers, replace(SCORED, nll_nats=4.0))
    assert found.reference_ppl == pytest.approx(2.718281828)
    assert found.ppl == pytest.approx(2.718281828**2)
    assert (found.text_tokens, found.ppl_reason) == (3, None)
    assert found.reference == "torch 2.13, fp32"


@pytest.mark.parametrize(
    ("theirs", "ours", "reason"),
    [
        (SCORED, replace(SCORED, tokens=4), "the text is 4 tokens to it, and 3 to the reference"),
        (SCORED, None, "it refuses"),
        (None, SCORED, "the reference has no logprobs of a text"),
    ],
)
def test_a_perplexity_that_can_not_be_compared_has_a_reason(theirs: Scored | None, ours: Scored | None, reason: str) -> None:
    of = reference(scored=theirs)
    found = output_check(of, [of.continuations[-1].text], ours, None if ours else "it refuses")
    assert (found.ppl, found.ppl_reason) == (None, reason)
    assert found.agreed == found.steps == LEAST_SURE_STEPS
