"""Prompts for rows that only have lengths: filler of exactly so many tokens, with what rows have in common where they say so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.load.data.rows import Row
from bench.load.data.traces import BLOCK_TOKENS
from bench.load.prompts import Calibration, seed_of
from bench.load.vocabulary import LEAD_TOKENS, Vocabulary

_STREAM_ITEMS = 1 << 16


@dataclass(frozen=True, slots=True)
class Filler:
    """A prompt around the place of its lead: `shared` + lead of `lead_tokens` + `rest`, joints included."""

    shared: bytes
    lead_tokens: int
    rest: bytes


class TracePrompts:
    """Makes the prompts of one trial: another salt, another text; the same block, the same text."""

    def __init__(self, words: Vocabulary, calibration: Calibration, salt: str) -> None:
        self._words, self._calibration = words, calibration
        self._stream = words.draw(np.random.default_rng(seed_of(f"{salt}/stream")), _STREAM_ITEMS)
        self._block_start = seed_of(f"{salt}/blocks", 6)

    def prompt(self, row: Row, number: int) -> Filler:
        """The prompt of a row. Blocks come first; what they don't cover is the row's own, and begins with a lead."""
        exact = self._words.ids is not None
        left = row.input_tokens if exact else self._calibration.words(row.input_tokens)
        block = BLOCK_TOKENS if exact else self._calibration.words_within(BLOCK_TOKENS)
        pieces: list[bytes] = []
        for name in row.blocks:
            if left == 0:
                break
            count = min(block, left)
            pieces.append(self._piece(name, count))
            left -= count
        if left == 0:
            return Filler(self._words.joint.join(pieces), 0, b"")
        lead = min(LEAD_TOKENS, left)
        rest = self._fill(number * 31, left - lead)
        return Filler(self._words.joint.join([*pieces, b""]) if pieces else b"", lead, self._words.joint + rest if rest else b"")

    def _piece(self, name: int, count: int) -> bytes:
        lead = min(LEAD_TOKENS, count)
        rest = self._fill(name * 31, count - lead)
        return self._words.joint.join([self._words.lead(self._block_start + name, lead), *([rest] if rest else [])])

    def _fill(self, first: int, count: int) -> bytes:
        """`count` items out of the stream, which goes round."""
        parts: list[bytes] = []
        at = first % _STREAM_ITEMS
        while count > 0:
            now = min(count, _STREAM_ITEMS - at)
            parts.append(self._words.cut(self._stream, at, now))
            count, at = count - now, 0
        return self._words.joint.join(parts)
