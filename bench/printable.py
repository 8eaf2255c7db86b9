"""Text from outside (names, messages of servers, files) as a terminal may show it: nothing in it moves the cursor, changes
colours, or turns the direction of what follows. Pure.
"""

from __future__ import annotations

import unicodedata

_ACTIVE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories: controls (C0 and C1), formats (bidi overrides, zero width), lone surrogates, line and paragraph ends."""


def printable(text: str) -> str:
    """One line: control characters, line ends among them, are written out (`\\x1b`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in _ACTIVE else c for c in text)


def printable_lines(text: str) -> str:
    """Several lines, whose ends and tabs stay as they are."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def printable_json(text: str) -> str:
    """JSON that means the same: control characters can stand only in its strings, where they become `\\uXXXX`."""
    if text.isascii():
        return text  # an encoder has escaped C0 already
    return "".join(_escape(c) if c > "\x7e" and unicodedata.category(c) in _ACTIVE else c for c in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
