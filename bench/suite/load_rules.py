"""Combinations of stages, traces and data sets that can't be measured, or not as meant. Rules as in `bench.suite.rules`."""

from __future__ import annotations

from collections.abc import Iterator

from bench.suite.loads import Dataset, Stages
from bench.suite.matrix import Point

_MOST_PREFIX_TOKENS = 16_000_000
"""Over all groups: every worker holds each prefix in memory."""
_Finding = tuple[tuple[str, ...], str]


def is_open(point: Point) -> bool:
    """Whether requests have arrival times, beside those of a `request_rate`."""
    stages = point.get("stages")
    return point.get("arrivals") == "trace" or (isinstance(stages, Stages) and stages.kind == "open")


def stages_alone(point: Point) -> Iterator[_Finding]:
    """Stages say how much and how long."""
    if not point.has("stages"):
        return
    for key, why in (
        ("batch_size", "the stages say how many are in flight"),
        ("request_rate", "the stages say how many come"),
        ("duration", "the stages say how long it takes"),
        ("num_prompts", "a job ends by its stages or by a count"),
    ):
        if point.has(key):
            yield ("stages", key), f"'stages' together with '{key}': {why}; drop one (null takes it back)"
    if point.get("arrivals") in ("burst", "trace"):
        yield ("stages", "arrivals"), "'stages' with arrivals that have no rate: write constant, poisson or gamma"
    stages = point.get("stages")
    if isinstance(stages, Stages) and stages.kind == "closed" and point.has("max_concurrency"):
        yield ("stages", "max_concurrency"), "'max_concurrency' with stages of batch_size, which already cap it: drop it"


def trace_alone(point: Point) -> Iterator[_Finding]:
    """A trace says when, and needs a file."""
    if point.has("speed") and point.get("arrivals") != "trace":
        yield ("speed", "arrivals"), "'speed' without 'arrivals: trace': only a trace has a pace of its own"
    if point.get("arrivals") != "trace":
        return
    for key in ("request_rate", "batch_size", "burstiness"):
        if point.has(key):
            yield ("arrivals", key), f"'{key}' with 'arrivals: trace': the trace says when requests come; drop {key}"
    dataset = point.get("dataset")
    if not isinstance(dataset, Dataset) or not dataset.is_file:
        yield ("arrivals", "dataset"), "'arrivals: trace' needs the trace as 'dataset': add dataset: {path: FILE}"


def prompts(point: Point) -> Iterator[_Finding]:
    """Lengths and prefixes are for prompts that are made up."""
    dataset = point.get("dataset")
    if isinstance(dataset, Dataset) and dataset.is_file:
        for key in ("input_tokens", "prefix_tokens", "prefix_groups"):
            if point.has(key):
                yield ("dataset", key), f"'{key}' with a data file, whose prompts are as they are: drop {key}"
    elif point.has("prefix_groups") and not point.get("prefix_tokens"):
        yield ("prefix_groups", "prefix_tokens"), "'prefix_groups' without 'prefix_tokens': add how long the shared beginning is"
    elif point.get("prefix_tokens", 0) * point.get("prefix_groups", 1) > _MOST_PREFIX_TOKENS:
        yield (
            ("prefix_tokens", "prefix_groups"),
            f"'prefix_tokens' x 'prefix_groups' is above {_MOST_PREFIX_TOKENS:,}: ask for fewer groups or shorter prefixes",
        )


LOAD_RULES = (stages_alone, trace_alone, prompts)
