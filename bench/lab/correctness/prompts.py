"""What every engine is asked. References keep their own copy, so that these may change.

Short: any engine start has room for 64 tokens more than its cases need. They begin what a model of any size is sure how to go on
with: the more sure tokens, the more there is to compare.
"""

from __future__ import annotations

PROMPTS = (
    "The days of the week are Monday, Tuesday,",
    "Count on: one, two, three, four, five,",
    "A red box holds apples. A blue box holds pears. A green box holds plums. Again: a red box holds",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n\ndef multiply(a, b):\n",
)
TOKENS = 24
"""Of each answer."""
TEXT = "Water boils when it is hot enough, and the steam that rises from the pot soon turns back into drops on the cold window."
"""Whose perplexity is worked out."""
