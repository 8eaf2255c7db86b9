"""Lists to points: the product of a case's axes in file order, last key fastest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.suite.layers import Layer, label_of
from bench.suite.written import Place, Problems

MOST_CASES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One cell of a matrix: checked values by key. `place` is where its case begins."""

    values: dict[str, Any]
    places: dict[str, Place]
    place: Place
    suffix: str
    broken: frozenset[str] = frozenset()

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default` where it is not written (or taken back)."""
        value = self.values.get(key)
        return default if value is None else value

    def has(self, *keys: str) -> bool:
        """Whether all of `keys` are written, if only with a value that can't be used (`broken`)."""
        return all(self.values.get(key) is not None or key in self.broken for key in keys)

    def later(self, *keys: str) -> Place:
        """The place of whichever of `keys` was written last, a flag after any file: where a conflict is reported."""
        written = [self.places[key] for key in keys if key in self.places]
        return max(written, key=lambda place: (place.line == 0, place), default=self.place)

    def entries(self, mapping: str) -> dict[str, Any]:
        """The entries of `engine_args` or `labels`."""
        prefix = mapping + "."
        return {key.removeprefix(prefix): v for key, v in self.values.items() if key.startswith(prefix) and v is not None}


def count_points(layer: Layer) -> int:
    """How many points a layer makes."""
    return math.prod(len(setting.values) for setting in layer.values())


def check_size(layers: list[tuple[Layer, Place]], problems: Problems) -> bool:
    """Refuse a matrix that nobody could run, before any of it is made."""
    total = 0
    for layer, place in layers:
        before, total = total, total + count_points(layer)
        if total > MOST_CASES:
            sizes = " x ".join(f"{len(s.values)} ({s.key})" for s in layer.values() if s.is_axis) or "of one point"
            together = " with those before it" if before else ""
            problems.add(place, f"the matrix {sizes} makes {total:,} cases{together}; a suite has at most {MOST_CASES:,}")
            return False
    return True


def points(layer: Layer, place: Place) -> Iterator[Point]:
    """Every combination of a layer's values."""
    places = {key: setting.place for key, setting in layer.items()}
    broken = frozenset(key for key, setting in layer.items() if setting.is_broken)
    axes = [key for key, setting in layer.items() if setting.is_axis]
    for combination in itertools.product(*(setting.values for setting in layer.values())):
        values = dict(zip(layer, combination, strict=True))
        suffix = ",".join(f"{key.removeprefix('engine_args.')}={label_of(values[key])}" for key in axes)
        yield Point(values=values, places=places, place=place, suffix=suffix, broken=broken)
