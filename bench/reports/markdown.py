"""Text in GitHub's Markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def row(cells: Sequence[str]) -> str:
    """A row of a table, of cells that are escaped already."""
    return "| " + " | ".join(cells) + " |"


def rule(columns: int) -> str:
    """The line between a table's header and its rows."""
    return row(["---"] * columns)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, with no HTML and no cell border in it."""
    for character in "\\`*_{}[]<>|#":
        text = text.replace(character, f"\\{character}")
    return text.replace("&", "&amp;")
