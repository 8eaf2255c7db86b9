"""Which requests are stepped together. Standard library only, Python 3.10 and newer: beside the shims of libraries.

Continuous: a request joins between two steps as soon as a slot is free, and leaves with its last token. Static: requests are
gathered until the batch is full (or for a while), go through together, and nothing joins before the longest has ended; rows of
shorter ones are computed on as padding, as it is with such a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench.runners.shims.openai_http import Request


class Stepper(Protocol):
    """A model with a cache, in rows: one a request, in the order in which they joined."""

    eos: Sequence[int]

    def join(self, requests: list[Request]) -> list[int]:
        """Prefill: the first token of each."""
        ...

    def step(self) -> list[int]:
        """One more token of every row."""
        ...

    def leave(self, kept: list[int]) -> None:
        """Keep only these rows, by index in ascending order."""
        ...


class Batcher:
    """Hands tokens of `stepper` to requests. `submit` from any thread; `turn` again and again from one."""

    def __init__(self, stepper: Stepper, *, slots: int, prefill_tokens: int, static: bool = False, gather_s: float = 0.0) -> None:
        self._stepper = stepper
        self._slots = slots
        self._prefill_tokens = prefill_tokens
        self._static = static
        self._gather_s = gather_s
        self._rows: list[Request] = []
        self._open: list[bool] = []
        self._waiting: list[Request] = []
        self._changed = threading.Condition()
        self._prompt_tokens = 0
        self._generated_tokens = 0

    def submit(self, request: Request) -> None:
        """Put it in line."""
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()

    def counters(self) -> dict[str, float]:
        """What it has done so far, and what it is at."""
        return {
            "prompt_tokens_total": self._prompt_tokens,
            "generation_tokens_total": self._generated_tokens,
            "requests_running": sum(self._open),
            "requests_waiting": len(self._waiting),
        }

    def turn(self) -> None:
        """Let requests join, or make one step; waits where there is neither a row nor a request."""
        joining = self._admit()
        for part in parts_of(joining, self._prefill_tokens):
            first = len(self._rows)
            self._rows += part
            self._open += [True] * len(part)
            self._prompt_tokens += sum(len(request.ids) for request in part)
            self._deal(first, self._stepper.join(part))
        if not joining and self._rows:
            self._deal(0, self._stepper.step())
        self._part()

    def _admit(self) -> list[Request]:
        with self._changed:
            if not self._rows:
                self._await_some()
            if self._static and self._rows:
                return []
            self._waiting = [request for request in self._waiting if not request.cancelled]
            free = self._slots - len(self._rows)
            joining, self._waiting = self._waiting[:free], self._waiting[free:]
            return joining

    def _await_some(self) -> None:
        self._changed.wait_for(lambda: bool(self._waiting))
        if self._static:
            self._changed.wait_for(lambda: len(self._waiting) >= self._slots, self._gather_s)

    def _deal(self, first: int, tokens: list[int]) -> None:
        for row, token in enumerate(tokens, first):
            request = self._rows[row]
            if request.cancelled:
                self._open[row] = False
            if not self._open[row]:
                continue
            request.made += 1
            self._generated_tokens += 1
            reason = "length" if request.made >= request.max_tokens else None
            if token in self._stepper.eos and not request.ignore_eos:
                reason = "stop"
            self._open[row] = reason is None
            request.events.put((token, reason))

    def _part(self) -> None:
        """Close rows: each that is done, or in a static batch all of them once the last is."""
        if all(self._open) or (self._static and any(self._open)):
            return
        kept = [row for row, is_open in enumerate(self._open) if is_open]
        self._stepper.leave(kept)
        self._rows = [self._rows[row] for row in kept]
        self._open = [True] * len(kept)


def parts_of(requests: list[Request], most_tokens: int) -> list[list[Request]]:
    """Requests in order, in parts that hold up to `most_tokens` tokens when padded to their longest; one alone may hold more."""
    parts: list[list[Request]] = []
    longest = 0
    for request in requests:
        longest = max(longest, len(request.ids))
        if parts and (len(parts[-1]) + 1) * longest <= most_tokens:
            parts[-1].append(request)
        else:
            parts.append([request])
            longest = len(request.ids)
    return parts
