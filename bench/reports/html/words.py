"""The words of a report in the reader's language. English texts are their own keys; `zh` has each in Chinese. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from bench.reports.html.markup import Html, tag, text
from bench.reports.html.zh import MESSAGES, PAGE

Language = Literal["en", "zh"]
_HOLE = re.compile(r"\{\}")
_LONGEST = 2000
"""Longer messages are shown as they came: none of ours is, and patterns take their time over them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """`words("{} trials", 3)` is a text of the page; a text that has no translation is a KeyError."""

    language: Language

    def __call__(self, template: str, *values: object) -> str:
        words = template if self.language == "en" else PAGE[template]
        return words.format(*values) if values else words

    @property
    def tag(self) -> str:
        """The language as HTML names it."""
        return {"en": "en", "zh": "zh-Hans"}[self.language]

    def said(self, message: str) -> str:
        """What another part of the program worded (reasons, verdicts, states), translated where there are words for it."""
        return message if self.language == "en" else _translated(message) or message

    def quoted(self, message: str) -> Html:
        """The same; what stays English is marked as such."""
        found = message if self.language == "en" else _translated(message)
        return text(message) if found == message else tag("span", message, lang="en") if found is None else text(found)


def _translated(message: str) -> str | None:
    """`message` in Chinese; None where nothing fits. What stands in the holes is translated too."""
    if message in MESSAGES:
        return MESSAGES[message]
    if len(message) > _LONGEST:
        return None
    for matching, template in _patterns():
        found = matching(message)
        if found is not None:
            return template.format(*(_translated(part) or part for part in found.groups()))
    return None


@cache
def _patterns() -> tuple[tuple[Callable[[str], re.Match[str] | None], str], ...]:
    """Templates with holes as patterns, those that say most first."""
    holed: Mapping[str, str] = {key: value for key, value in MESSAGES.items() if "{}" in key}
    ordered = sorted(holed.items(), key=lambda item: -len(_HOLE.sub("", item[0])))
    return tuple((_pattern(key).fullmatch, value) for key, value in ordered)


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile("(.+?)".join(map(re.escape, _HOLE.split(template))), re.DOTALL)
