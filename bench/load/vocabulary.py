"""What prompts are made of: common words, or token ids. Every item is as wide as any other, so sizes are known beforehand."""

from __future__ import annotations

import numpy as np

from bench.records import Target

WORDS = tuple(
    (
        "that with have this will your from they know want been good much some time very when come here just like long make "
        "many more only over such take than them well were what year back call came each even find give hand high keep last "
        "left life live look made most move must name need next open part play read same seem show side tell turn used went "
        "work home help line mean also into then city case week down both door face fact feel food four free game girl head "
        "hear hold hope hour idea kind late lead less love main mind once real rest room said sort stop sure talk team test "
        "told took town tree true type unit upon view wait walk wall wide wife wind wish word area army baby ball bank base "
        "bear beat best bill body book born boys cars club cold cost dark date days deal does done draw drop early fall fast "
        "fire five form full gave gone grow half hard held hill host huge jobs join june king land list load loss lost"
    )
    .replace(" early", "")
    .split()
)
LEAD_TOKENS = 4
"""Items of a lead: enough for a billion different ones of words."""
_ID_WIDTH = 7
_STRIDE = 7919
"""Steps through the leads: a prime that divides neither count of them, so that each comes up once in a round."""


class Vocabulary:
    """Items as they stand in the JSON of a request, without the brackets or quotes around them."""

    def __init__(self, ids: range | None) -> None:
        self.ids = ids
        self.items = len(WORDS) if ids is None else len(ids)
        self.joint = b" " if ids is None else b","
        self.quotes = (b'"', b'"') if ids is None else (b"[", b"]")
        self._width = 4 if ids is None else _ID_WIDTH

    def size_b(self, count: int) -> int:
        """Bytes of `count` items with their joints between them."""
        return max(0, count * (self._width + 1) - 1)

    def lead(self, number: int, count: int) -> bytes:
        """`count` items that no other number has (modulo `lead_count`), least significant digit first."""
        base = self.items
        value = number * _STRIDE % base**count
        return self._join([value // base**place % base for place in range(count)])

    def lead_count(self, count: int) -> int:
        """How many different leads of `count` items there are."""
        return int(self.items**count)

    def draw(self, rng: np.random.Generator, count: int) -> bytes:
        """`count` items at random."""
        return self._join(rng.integers(0, self.items, count).tolist())

    def cut(self, stream: bytes, first: int, count: int) -> bytes:
        """`count` items of a drawn stream, from item `first` on."""
        begin = first * (self._width + 1)
        return stream[begin : begin + self.size_b(count)]

    def _join(self, digits: list[int]) -> bytes:
        if self.ids is None:
            return " ".join([WORDS[digit] for digit in digits]).encode()
        return ",".join([f"{self.ids[digit]:{_ID_WIDTH}d}" for digit in digits]).encode()


def id_range(target: Target) -> range:
    """The middle of the target's vocabulary: the first ids are control tokens and single bytes, and the last tenth is where
    added and reserved tokens sit.
    """
    size = target.vocab_size or 32_000
    return range(min(1000, size // 4), max(size - size // 10, size // 4 + 1))
