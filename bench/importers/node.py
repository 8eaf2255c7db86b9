"""A value of a JSON file that anyone may have written, with its place in it: what is read of it is checked, and what is wrong is
refused with that place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self

_LONGEST_TEXT = 1000
_LARGEST = 1e18
"""No count, rate or time of a benchmark is beyond it."""


class BadFile(ValueError):
    """Why a file is refused, and what may help."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Node:
    """One value. What is absent or null reads as None; what is of the wrong kind raises `BadFile`."""

    def __init__(self, value: Any, where: str = "$") -> None:
        self._value = value
        self.where = where

    def at(self, path: str) -> Node:
        """What lies at `a.b.c` below; absent where any part of it is. Raises: BadFile where a part is no object."""
        found = self
        for name in path.split("."):
            found = Node(found.fields().get(name), f"{found.where}.{name}")
        return found

    def fields(self) -> dict[str, Any]:
        """An object's members; none where it is absent. Raises: BadFile."""
        return self._as(dict, "an object") or {}

    def items(self) -> Iterator[Self]:
        """An array's values; none where it is absent. Raises: BadFile."""
        for place, value in enumerate(self._as(list, "an array") or []):
            yield type(self)(value, f"{self.where}[{place}]")

    def number(self, *, least: float = 0.0) -> float | None:
        """A finite number of at least `least`. Raises: BadFile."""
        value = self._value
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refused("not a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.refused("not a finite number")
        if value < least:
            raise self.refused(f"below {least:g}")
        if value > _LARGEST:
            raise self.refused("larger than anything that can be measured")
        return float(value)

    def count(self) -> int | None:
        """A whole number from 0. Raises: BadFile."""
        value = self.number()
        if value is not None and value != int(value):
            raise self.refused("not a whole number")
        return None if value is None else int(value)

    def text(self) -> str | None:
        """A string of at most a thousand characters; an empty one is absent. Raises: BadFile."""
        value: str | None = self._as(str, "a text")
        if value is not None and len(value) > _LONGEST_TEXT:
            raise BadFile(f"{self.where} is a text of {len(value)} characters, more than {_LONGEST_TEXT}")
        return value.encode("utf-8", "replace").decode() if value else None

    def refused(self, why: str) -> BadFile:
        """What to raise: the place, what is there, and `why` it can't be."""
        return BadFile(f"{self.where} is {self.shown()}, {why}")

    def is_number(self) -> bool:
        """Whether there is a number here at all."""
        return isinstance(self._value, int | float) and not isinstance(self._value, bool)

    def is_text(self, wanted: str | None = None) -> bool:
        """Whether there is a string here, and `wanted` where that is given."""
        return isinstance(self._value, str) and wanted in (None, self._value)

    def is_set(self) -> bool:
        """Whether there is `true` here."""
        return self._value is True

    def is_object(self) -> bool:
        """Whether there is an object here."""
        return isinstance(self._value, dict)

    def is_array(self) -> bool:
        """Whether there is an array here."""
        return isinstance(self._value, list)

    def shown(self) -> str:
        """The value for a message."""
        kinds = {dict: "an object", list: "an array", type(None): "null"}
        if type(self._value) in kinds:
            return kinds[type(self._value)]
        told = repr(self._value)
        return told if len(told) <= 40 else f"{told[:40]}..."

    def _as(self, kind: type[Any], called: str) -> Any:
        if self._value is not None and not isinstance(self._value, kind):
            raise self.refused(f"not {called}")
        return self._value
