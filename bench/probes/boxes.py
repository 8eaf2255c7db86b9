"""The boxed tables that vendors' tools print: cells between `|`, rules of `+---+` or `+===+` between blocks.

Columns are known by the words of the header, never by their place in the line: widths change with every release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_BETWEEN_WORDS = re.compile(r"(?<![/\s])\s+(?![/\s])")
"""Blanks, but those around a slash: `54W / 350W` is one word."""
_RULE = re.compile(r"^[\s|+]*[+|][-=+|\s]*[-=]{3,}[-=+|\s]*$")


def blocks(text: str) -> Iterator[list[list[str]]]:
    """Runs of rows between rules, each row its stripped cells. Lines that are neither row nor rule end a block."""
    block: list[list[str]] = []
    for line in text.splitlines():
        row = cells(line)
        if row is None:
            if block:
                yield block
            block = []
        else:
            block.append(row)
    if block:
        yield block


def cells(line: str) -> list[str] | None:
    """The stripped cells of a row of a box; None for a rule, a line outside a box, and a row that was cut off: the number in its
    last cell may lack digits.
    """
    line = line.strip()
    if len(line) < 2 or not (line.startswith("|") and line.endswith("|")) or _RULE.match(line):
        return None
    return [cell.strip() for cell in line[1:-1].split("|")]


def has(row: Sequence[str], *words: str) -> bool:
    """Whether a row's cells hold all of these words, in any case."""
    line = " ".join(row).lower()
    return all(word.lower() in line for word in words)


def under(headers: Sequence[Sequence[str]], block: Sequence[Sequence[str]]) -> dict[str, str]:
    """The words of a block's rows by those of the headers, the first row under the first row of headers and so on.

    A row with more or fewer cells than its headers tells nothing; of headings that come twice the first counts.
    """
    found: dict[str, str] = {}
    for header, row in zip(headers, block, strict=False):
        if len(header) == len(row):
            for heading, cell in zip(header, row, strict=True):
                found = {**words(heading, cell), **found}
    return found


def words(heading: str, cell: str) -> dict[str, str]:
    """A cell's words by those of its heading, in lower case; none where they are not as many: they could be anybody's.

    Headings of several words are parted by two blanks (`Temp  MPC Capable`). One alone has the whole cell, and a `name` may be
    several words.
    """
    told = _BETWEEN_WORDS.split(cell) if cell else []
    by_words, by_gaps = heading.lower().split(), re.split(r"\s{2,}", heading.lower())
    for heads in (by_words, by_gaps):
        aligned = _names_joined(heads, told)
        if len(heads) == len(aligned):
            return dict(zip(heads, aligned, strict=True))
    return {by_words[0]: cell} if len(by_words) == 1 else {}


def _names_joined(heads: Sequence[str], told: list[str]) -> list[str]:
    if "name" not in heads:
        return told
    before = heads.index("name")
    end = len(told) - (len(heads) - before - 1)
    return [*told[:before], " ".join(told[before:end]), *told[end:]] if end > before else []
