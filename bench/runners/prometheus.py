"""Engine counters from Prometheus text, under the project's names. Pure.

Source: Prometheus text exposition format 0.0.4 and OpenMetrics 1.0; metric names of vLLM, SGLang and llama.cpp.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """Where one of the project's counters is found: the first of `sources` that is there. `mean` for shares, which must not
    be added up over ranks.
    """

    project: str
    sources: tuple[str, ...]
    mean: bool = False


_NAMES = (
    _Name(
        project="prompt_tokens_total",
        sources=("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "mock:prompt_tokens_total"),
    ),
    _Name(
        project="prompt_tokens_cached_total",
        sources=(
            "vllm:prompt_tokens_cached_total",
            "vllm:prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total",
            "sglang:cached_tokens_total",
            "llamacpp:prompt_tokens_cached_total",
            "mock:prompt_tokens_cached_total",
        ),
    ),
    _Name(
        project="generation_tokens_total",
        sources=(
            "vllm:generation_tokens_total",
            "sglang:generation_tokens_total",
            "llamacpp:tokens_predicted_total",
            "mock:generation_tokens_total",
        ),
    ),
    _Name(
        project="requests_running",
        sources=("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing", "mock:requests_running"),
    ),
    _Name(
        project="requests_waiting",
        sources=("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred", "mock:requests_waiting"),
    ),
    _Name(project="preemptions_total", sources=("vllm:num_preemptions_total", "sglang:num_retracted_requests_total")),
    _Name(
        project="kv_cache_util",
        sources=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"),
        mean=True,
    ),
)


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


def project_metrics(samples: Iterable[Sample]) -> dict[str, float]:
    """The engine's counters under the project's names, over all its ranks and models; what it has not is absent.

    `prompt_tokens_total` counts every prompt token, those from the cache too (llama.cpp counts them apart); `kv_cache_util`
    is a share in [0, 1].
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    found = {}
    for name in _NAMES:
        source = next((source for source in name.sources if source in by_name), None)
        if source is not None:
            values = [sample.value for sample in _without_double_count(by_name[source])]
            found[name.project] = sum(values) / len(values) if name.mean else sum(values)
    processed = by_name.get("llamacpp:prompt_tokens_total")
    if processed and "prompt_tokens_total" not in found:
        found["prompt_tokens_total"] = sum(s.value for s in processed) + found.get("prompt_tokens_cached_total", 0.0)
    return {name: value for name, value in found.items() if math.isfinite(value)}  # a sum of finite values may not be


def _without_double_count(samples: list[Sample]) -> list[Sample]:
    # SGLang gives cached tokens per source (device, host, ...) and may give their total beside them
    parts = [sample for sample in samples if sample.labels.get("cache_source") != "total"]
    return parts or samples
