"""Values together with where they were written: a line of a file, or a flag. Every message about a suite begins with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

_SHOWN = 50
_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """Where something was written. `line` orders messages; `text` (`quickstart.yaml:12`, `--batch-size`) begins them."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """Something to mend, and where."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place.text}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A scalar, or a mapping or list of `Written`, at its place (for an entry of a mapping: that of its key)."""

    value: Any
    place: Place

    def plain(self) -> Any:
        """The value as dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        return self.value

    def follow(self, path: Iterable[str | int]) -> tuple[Written, list[str]]:
        """The deepest part along `path` and its name from here; steps that don't exist are passed over."""
        here, named = self, list[str]()
        for step in path:
            inner = here.value
            if isinstance(inner, dict) and step in inner:
                here = inner[step]
                named.append(str(step))
            elif isinstance(inner, list) and isinstance(step, int) and step < len(inner):
                here = inner[step]
        return here, named


@dataclass(slots=True)
class Problems:
    """Collects everything wrong, so that a person mends a file once and not error by error."""

    found: dict[Problem, None] = field(default_factory=dict)

    def add(self, place: Place, message: str) -> None:
        """Note a problem; the same one at the same place counts once."""
        self.found[Problem(place=place, message=message)] = None

    def __bool__(self) -> bool:
        return bool(self.found)

    def text(self) -> str:
        """One line a problem, in the order of the file."""
        ordered = sorted(self.found, key=lambda problem: problem.place.line)
        lines = [str(problem) for problem in ordered[:_SHOWN]]
        if len(ordered) > _SHOWN:
            lines.append(f"... and {len(ordered) - _SHOWN} more")
        return "\n".join(lines)


def wrap(value: Any, place: Place) -> Written:
    """A plain value as if all of it had been written at `place`."""
    if isinstance(value, Mapping):
        return Written(value={str(key): wrap(entry, place) for key, entry in value.items()}, place=place)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Written(value=[wrap(entry, place) for entry in value], place=place)
    return Written(value=value, place=place)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`: did you mean 'x'?`, or the known words when none is near."""
    words = list(known)
    near = get_close_matches(word.lower().replace("-", "_"), words, n=1) or get_close_matches(word, words, n=1)
    return f": did you mean {near[0]!r}?" if near else f" (known: {', '.join(words)})"


def shown(value: Any) -> str:
    """A value as it appears in a message: on one line, and cut when long."""
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
