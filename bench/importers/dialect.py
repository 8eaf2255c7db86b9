"""How a tool writes down what we also measure: which of its keys is which metric of ours, and what is not the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.imported import ImportedMetric, Tool
from bench.importers.node import Node
from bench.timing.spec import SPECS

WANTED = (
    "output_tok_per_s",
    "input_tok_per_s",
    "total_tok_per_s",
    "requests_per_s",
    "goodput_rps",
    "ttft_ms",
    "tpot_ms",
    "icl_ms",
    "itl_ms",
    "e2e_ms",
    "j_per_output_tok",
    "memory_used_peak_b",
)
"""Metrics that every imported result has: with a number, or with the reason why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One of their keys. `differs`: what is not as in our definition of `name`; `scale` brings it to our unit, and `unit` is what
    the file must say of it where it says that.
    """

    name: str
    key: str
    differs: str
    scale: float = 1.0
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A tool's way to write. `scalar`, and `spread` by our fields, are where the numbers of a key lie: dotted, `{}` for the key.
    `no_equal`: keys that are no metric of ours, and why; `lacks`: why a metric that it has no key for isn't there.
    """

    tool: Tool
    scalar: str
    spread: Mapping[str, str]
    keys: tuple[Key, ...]
    no_equal: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)

    def metrics(self, at: Node) -> tuple[ImportedMetric, ...]:
        """What the object `at` says, and what it does not. Raises: BadFile."""
        found = {key.name: self._metric(at, key) for key in self.keys}
        for name in WANTED:
            if name not in found:
                reason = self.lacks.get(name, f"{self.tool} does not measure it")
                found[name] = ImportedMetric(name=name, unit=SPECS[name].unit, reason=reason)
        return tuple(found[name] for name in SPECS if name in found)

    def _metric(self, at: Node, key: Key) -> ImportedMetric:
        spec = SPECS[key.name]
        _check_unit(at, key)
        places = {"value": self.scalar} if spec.kind == "scalar" else self.spread
        numbers = {name: at.at(place.format(key.key)).number() for name, place in places.items() if name != "n"}
        n = at.at(self.spread["n"].format(key.key)).count() if "n" in self.spread and spec.kind == "distribution" else None
        given = [number for number in numbers.values() if number is not None]
        nothing = n == 0 or (spec.unit == "ms" and given and not any(given))
        reason = None
        if not given:
            reason = f"{places.get('value', self.spread['p50']).format(key.key)} is not in the file"
        elif nothing:
            reason = "nothing was measured: the file has 0 for it"
        scaled = {} if reason else {name: None if value is None else value * key.scale for name, value in numbers.items()}
        return ImportedMetric(name=key.name, unit=spec.unit, key=key.key, differs=key.differs, n=n, reason=reason, **scaled)


def _check_unit(at: Node, key: Key) -> None:
    if key.unit is None:
        return
    told = at.at(f"{key.key}.unit")
    if told.text() not in (None, key.unit):
        raise told.refused(f"not {key.unit!r}")
