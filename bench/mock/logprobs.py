"""How sure the mock engine is of what it says, and how likely it finds a text: the same for the same words, whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from zlib import crc32

SAID = -0.125
"""ln of the probability of each token that it says."""
NEXT_BEST = (" nothing", -3.0)
"""The only other that it thinks of."""
WRONG_FACTOR = 3.0


def logprobs_of(prompt: str | None, said: Sequence[str], best: int, *, is_wrong: bool) -> dict[str, Any]:
    """OpenAI's logprobs object of the words of `prompt`, where there is one, and of the tokens `said`. The first of a prompt has
    nothing before it, and so no probability.
    """
    words = [] if prompt is None else [word if number == 0 else f" {word}" for number, word in enumerate(prompt.split())]
    factor = WRONG_FACTOR if is_wrong else 1.0
    of_words = [None if number == 0 else factor * _likelihood(word) for number, word in enumerate(words)]
    tops = [dict([(token, SAID), NEXT_BEST][:best]) for token in said]
    tokens = [*words, *said]
    return {
        "tokens": tokens,
        "token_logprobs": [*of_words, *[SAID] * len(said)],
        "top_logprobs": [*(None if one is None else {word: one} for word, one in zip(words, of_words, strict=True)), *tops],
        "text_offset": list(accumulate(map(len, tokens[:-1]), initial=0)),
    }


def _likelihood(word: str) -> float:
    """Between -1 and -2."""
    return -1.0 - crc32(word.encode()) % 1000 / 1000
