"""Token counts that can't be: those are refused before anything is made of them. Pure.

A streamed token holds at least one byte of text. Tokens without any are reasoning that the server keeps to itself (and counts
in `usage.reasoning_tokens`), the markup of tool calls, a stop token or two, and, where a reply was told to go on after its
end, special tokens up to the length asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from bench.records import MISSING, Case, ChunkKind, EventLog, FloatArray, IntArray, Outcome
from bench.timing.population import BoolArray, Population

MAX_IMPOSSIBLE_SHARE = 0.01
"""When more of the replies than this have an impossible count, none of the server's counts is used."""
TEXTLESS_TOKENS = 16
"""A reply may hold this many tokens without text: stop tokens, half characters at its end."""
TOOL_MARKUP_TOKENS = 64
"""A chunk of a tool call may stand for this many tokens of markup that the server took out."""
PROMPT_TOKENS_PER_ASKED = 64
HIDDEN_PROMPT_TOKENS = 65_536
"""A server may count a prompt in tokens of single bytes, and put a long prompt of its own before it: no more than that."""
MOST_TOKENS = 2**27
"""No reply and no prompt is longer: more than ten times the longest context there is."""
_NO_COUNTS = "the server gave no token counts: no usage, no token ids"
_UNFINISHED = "no request of the window finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What was wrong with the counts of one side. `impossible`: refused, in words, and `all_refused` when they are too many for
    any count to be believed. `doubtful`: kept. `negative`: taken as missing.
    """

    impossible: str | None = None
    all_refused: bool = False
    doubtful: str | None = None
    negative: str | None = None

    def why_missing(self, otherwise: str) -> str:
        """Why there is no count."""
        if self.impossible and self.all_refused:
            return f"impossible: {self.impossible}"
        return self.negative or self.impossible or otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Vetted:
    """A log without its impossible counts, and what was refused."""

    log: EventLog
    output: Refusal
    prompt: Refusal

    def no_output(self, of: BoolArray) -> str:
        """Why the requests `of` have no output count. `usage` comes at a reply's end: one that never finished has none."""
        finished = bool((of & (self.log.outcome == Outcome.OK)).any())
        return self.output.why_missing(_NO_COUNTS if finished else _UNFINISHED)


def vet_counts(case: Case, log: EventLog, members: Population) -> Vetted:
    """`log` with every count that can't be turned to MISSING. How many is judged by the successes of the population."""
    output, refused_output = _vet_output(case, log, members.ok)
    prompt, refused_prompt = _vet_prompt(log, members.ok)
    chunk_tokens = np.where(refused_output[log.chunk_request] | (log.chunk_tokens < 0), MISSING, log.chunk_tokens)
    return Vetted(
        log=replace(
            log,
            output_tokens=_kept(log.output_tokens, refused_output),
            input_tokens=_kept(log.input_tokens, refused_prompt),
            cached_tokens=_kept(log.cached_tokens, refused_prompt),
            reasoning_tokens=_kept(log.reasoning_tokens, log.reasoning_tokens > MOST_TOKENS),
            chunk_tokens=chunk_tokens,
        ),
        output=output,
        prompt=prompt,
    )


def _kept(counts: IntArray, refused: BoolArray) -> IntArray:
    return np.where(refused | (counts < 0), MISSING, counts)


def _vet_output(case: Case, log: EventLog, ok: BoolArray) -> tuple[Refusal, BoolArray]:
    n, owner = len(log), log.chunk_request
    text_b = np.bincount(owner, weights=log.chunk_bytes, minlength=n).astype(np.float64)
    told = np.bincount(owner, weights=np.maximum(log.chunk_tokens, 0), minlength=n)  # in floats: sums can't wrap around
    claimed = np.maximum(log.output_tokens.astype(np.float64), told)
    allowed = _most_streamed(log, text_b)
    asked = np.where(case.sampling.ignore_eos, log.output_requested, 0)
    over = claimed > allowed
    impossible = over & (claimed > asked)
    words = "replies count more output tokens than their text has bytes"
    text, doubt = (_told(ok, which, claimed, text_b, words) for which in (impossible, over & ~impossible))
    hint = "a model that reasons out of sight must say so in usage.completion_tokens_details.reasoning_tokens"
    many = _share(ok, impossible, claimed) > MAX_IMPOSSIBLE_SHARE
    doubtful = _share(ok, over & ~impossible, claimed) > MAX_IMPOSSIBLE_SHARE
    refusal = Refusal(
        impossible=f"{text}: {hint}" if text else None,
        all_refused=many,
        doubtful=f"{doubt}: special tokens after the reply's end, or a wrong count" if doubt and doubtful else None,
        negative=_negative(log.output_tokens, ok, "output"),
    )
    return refusal, impossible | many


def _most_streamed(log: EventLog, text_b: FloatArray) -> FloatArray:
    """The most tokens that each reply can hold. Of one that was not streamed the text isn't known."""
    n, owner = len(log), log.chunk_request
    tools = np.bincount(owner, weights=log.chunk_kind == ChunkKind.TOOL, minlength=n)
    unseen = np.maximum(log.reasoning_tokens.astype(np.float64), 0.0)
    allowed = text_b + unseen + TEXTLESS_TOKENS + TOOL_MARKUP_TOKENS * tools
    streamed = np.bincount(owner, minlength=n) > 0
    return np.minimum(np.where(streamed, allowed, np.inf), MOST_TOKENS)


def _vet_prompt(log: EventLog, ok: BoolArray) -> tuple[Refusal, BoolArray]:
    claimed, asked = log.input_tokens.astype(np.float64), log.input_requested.astype(np.float64)
    allowed = np.where(asked >= 0, PROMPT_TOKENS_PER_ASKED * asked + HIDDEN_PROMPT_TOKENS, np.inf)
    impossible = claimed > np.minimum(allowed, MOST_TOKENS)
    many = _share(ok, impossible, claimed) > MAX_IMPOSSIBLE_SHARE
    refusal = Refusal(
        impossible=_told(ok, impossible, claimed, None, "requests count more prompt tokens than were sent"),
        all_refused=many,
        negative=_negative(log.input_tokens, ok, "prompt"),
    )
    return refusal, impossible | many


def _share(ok: BoolArray, which: BoolArray, claimed: FloatArray) -> float:
    counted = int((ok & (claimed >= 0)).sum())
    return int((ok & which).sum()) / counted if counted else 0.0


def _told(ok: BoolArray, which: BoolArray, claimed: FloatArray, text_b: FloatArray | None, words: str) -> str | None:
    found = np.flatnonzero(ok & which)
    if len(found) == 0:
        return None
    first = found[0]
    place = "" if text_b is None else f" in {text_b[first]:.0f} bytes"
    return f"{len(found)} of {int(ok.sum())} {words} (first: {claimed[first]:.0f} tokens{place})"


def _negative(counts: IntArray, ok: BoolArray, what: str) -> str | None:
    wrong = np.flatnonzero(ok & (counts < MISSING))
    if len(wrong) == 0:
        return None
    return f"the server counted {what} tokens below zero for {len(wrong)} of {int(ok.sum())} requests (first: {counts[wrong[0]]})"
