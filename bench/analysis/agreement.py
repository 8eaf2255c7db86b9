"""Do two engines say the same with the same weights? An answer is compared with the reference's token by token. Pure.

An engine that computes in another order, or in fewer bits, may choose another token where the two best are nearly as likely; from
there on the two tell different stories, and what follows says nothing. So near ties are not counted, and an answer is compared up
to where it parts from the reference's: at each counted token both had the same text before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.records import OutputCheck, Parting
from bench.timing.validity import LEAST_SURE_STEPS, NEAR_TIE_NATS

_SHOWN_CHARS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A prompt and how the reference goes on: token i ends at character `ends[i]` of `text`, and was likelier than the next best
    one by `gaps_nats[i]`.
    """

    prompt: str
    text: str
    ends: tuple[int, ...]
    gaps_nats: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A text of `tokens` tokens, and -ln of the probability of all of them but the first, given what comes before each [nats]."""

    text: str
    tokens: int
    nll_nats: float

    @property
    def ppl(self) -> float:
        """Perplexity of the text."""
        return math.exp(self.nll_nats / (self.tokens - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the weights with the identity `weights` say, as `engine` of `version` ran them in `precision`."""

    weights: str
    model: str
    engine: str
    version: str | None
    precision: str | None
    continuations: tuple[Continuation, ...]
    scored: Scored | None
    scored_reason: str | None = None

    @property
    def told(self) -> str:
        """What gave it, in words."""
        engine = " ".join(part for part in (self.engine, self.version) if part)
        return f"{engine}, {self.precision}" if self.precision else engine

    @property
    def sure_steps(self) -> int:
        """Tokens of its answers that are no near ties."""
        return sum(gap >= NEAR_TIE_NATS for one in self.continuations for gap in one.gaps_nats)


def output_check(
    reference: Reference, answers: Sequence[str], scored: Scored | None, scored_reason: str | None = None
) -> OutputCheck:
    """What an engine made of the reference's prompts (`answers`, in their order) and of its text, beside the reference."""
    found = [_compared(*pair) for pair in zip(reference.continuations, answers, strict=True)]
    partings = tuple(parting for _, parting in found if parting is not None)
    agreed = sum(count for count, _ in found)
    reason = None
    if reference.sure_steps < LEAST_SURE_STEPS:
        reason = f"the reference is sure of {reference.sure_steps} tokens only, and {LEAST_SURE_STEPS} are needed"
    elif not agreed and not partings:
        reason = "every answer left the reference at a near tie, before any token that it was sure of"
    ppl_reason = _not_comparable(reference, scored, scored_reason)
    return OutputCheck(
        reference=reference.told,
        steps=0 if reason else agreed + len(partings),
        agreed=0 if reason else agreed,
        partings=() if reason else partings,
        reason=reason,
        text_tokens=0 if ppl_reason or scored is None else scored.tokens,
        ppl=None if ppl_reason or scored is None else scored.ppl,
        reference_ppl=None if reference.scored is None else reference.scored.ppl,
        ppl_reason=ppl_reason,
    )


def _compared(reference: Continuation, answer: str) -> tuple[int, Parting | None]:
    """Sure tokens that an answer has in common with the reference, and where it parts from it at one. Texts are compared, which
    every engine tells: a token that only begins like the reference's shows one step later. A space before the first word is no
    difference: some engines cut it off.
    """
    text, answer = reference.text.lstrip(), answer.lstrip()
    cut = len(reference.text) - len(text)
    agreed = 0
    ends = [max(end - cut, 0) for end in reference.ends]
    for step, (end, gap) in enumerate(zip(ends, reference.gaps_nats, strict=True)):
        if answer[:end] == text[:end]:
            agreed += gap >= NEAR_TIE_NATS
            continue
        if gap < NEAR_TIE_NATS:
            return agreed, None
        begin = ends[step - 1] if step else 0
        return agreed, Parting(
            step=step,
            after=(reference.prompt + reference.text[: begin + cut])[-_SHOWN_CHARS:],
            expected=text[begin:end],
            found=answer[begin : begin + _SHOWN_CHARS],
            gap_nats=gap,
        )
    return agreed, None


def _not_comparable(reference: Reference, scored: Scored | None, reason: str | None) -> str | None:
    """Why two perplexities can't be compared; None where they can."""
    if reference.scored is None:
        return reference.scored_reason or "the reference has no logprobs of a text"
    if scored is None:
        return reason or "no logprobs of a given text"
    if scored.tokens != reference.scored.tokens:
        return f"the text is {scored.tokens} tokens to it, and {reference.scored.tokens} to the reference"
    return None
