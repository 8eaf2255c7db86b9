"""Engine counters from Prometheus text, under the project's names. Pure.

Source: Prometheus text exposition format 0.0.4 and OpenMetrics 1.0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.runners.metric_names import ENGINES, SHARES, Names

_LINE = re.compile(
    r"""(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
        (?:\s*\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\}\s*|\s+)
        (?P<value>[^\s\#]+)""",
    re.VERBOSE,
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line: a name, its labels, a value."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    value: float


def parse(text: str) -> list[Sample]:
    """Every sample of an exposition. Lines that aren't samples, and values that aren't finite, are left out."""
    samples = []
    for line in text.splitlines():
        found = None if line.startswith("#") else _LINE.match(line.strip())
        if found is None:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            labels = {key: _unescape(raw) for key, raw in _LABEL.findall(found["labels"] or "")}
            samples.append(Sample(name=found["name"], labels=labels, value=value))
    return samples


def _unescape(raw: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], raw)


def project_metrics(samples: Iterable[Sample], tables: Iterable[Names] = tuple(ENGINES.values())) -> dict[str, float]:
    """The engine's counters under the project's names, over all its ranks and models; what it has not is absent. `tables` are
    those of the engines that it may be.

    `prompt_tokens_total` counts every prompt token, those from the cache too; `kv_cache_util` is a share in [0, 1].
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    found: dict[str, float] = {}
    for table in tables:
        for project, sources in table.items():
            told = next((value for source in sources if (value := _told(by_name, source, project in SHARES)) is not None), None)
            if told is not None:
                found.setdefault(project, told)
    return {name: value for name, value in found.items() if math.isfinite(value)}  # a sum of finite values may not be


def _told(by_name: dict[str, list[Sample]], source: str, is_share: bool) -> float | None:
    summed, _, sign = source.partition(" & ")
    first, *added = summed.split(" + ")
    if not _named(by_name, first) or (sign and sign not in by_name):
        return None
    values = [sample.value for name in (first, *added) for sample in _without_double_count(_named(by_name, name))]
    return sum(values) / len(values) if is_share else sum(values)


def _named(by_name: dict[str, list[Sample]], source: str) -> list[Sample]:
    """The samples of `name`, or of `name{label=value}`."""
    name, _, rest = source.rstrip("}").partition("{")
    label, _, wanted = rest.partition("=")
    return [sample for sample in by_name.get(name, []) if not label or sample.labels.get(label) == wanted]


def _without_double_count(samples: list[Sample]) -> list[Sample]:
    # SGLang gives cached tokens per source (device, host, ...) and may give their total beside them
    parts = [sample for sample in samples if sample.labels.get("cache_source") != "total"]
    return parts or samples
