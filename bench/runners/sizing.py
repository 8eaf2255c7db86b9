"""How many requests at a time, and how much context for each, an engine needs for a set of cases. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.records import Case, LengthSpec, Scalar
from bench.runners.arguments import whole

OPEN_LOOP_SLOTS = 32
"""Slots where nothing in the case bounds how many requests are in flight."""
MARGIN_TOKENS = 64
"""Context beyond the lengths asked for: the chat template, and a start token."""
TEXT_DRIFT = 0.15
"""Share by which a prompt sent as text may come out longer than asked for."""
TAIL_SIGMAS = 4.0
"""Standard deviations of an unbounded length distribution that still fit the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """`slots` requests at a time, each with `slot_tokens` tokens of context."""

    slots: int
    slot_tokens: int

    @property
    def context_tokens(self) -> int:
        """Context over all slots [tokens]."""
        return self.slots * self.slot_tokens


def size_for(cases: Iterable[Case], args: Mapping[str, Scalar]) -> Sizing:
    """Slots for the largest batch, context for the longest request of `cases`; `slots` and `ctx_per_slot` overrule."""
    all_cases = tuple(cases)
    slots = whole(args, "slots") or max(_in_flight(case) for case in all_cases)
    slot_tokens = whole(args, "ctx_per_slot") or max(slot_tokens_of(case) for case in all_cases)
    return Sizing(slots=slots, slot_tokens=slot_tokens)


def slot_tokens_of(case: Case) -> int:
    """Context that one request of `case` needs at most [tokens]."""
    prompt = case.data.prefix_tokens + longest(case.input_tokens)
    drift = math.ceil(prompt * TEXT_DRIFT) if case.protocol == "openai-chat" else 0
    return prompt + drift + longest(case.output_tokens) + MARGIN_TOKENS


def longest(spec: LengthSpec) -> int:
    """The largest length of a distribution [tokens]; for unbounded ones `TAIL_SIGMAS` standard deviations above the mean, and
    for those of a data set what its file says.
    """
    if spec.largest is not None:
        return spec.largest
    match spec.dist:
        case "fixed":
            factor = 1.0
        case "uniform":
            factor = 1.0 + spec.spread
        case _:
            factor = 1.0 + TAIL_SIGMAS * spec.spread
    return math.ceil(spec.mean * factor)


def _in_flight(case: Case) -> int:
    load = case.load
    bound = load.batch_size if load.kind == "closed" else load.max_concurrency
    slots = bound or OPEN_LOOP_SLOTS
    return slots if load.num_prompts is None else min(slots, load.num_prompts)
