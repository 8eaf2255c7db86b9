"""A checked point to a `Case`: every default is written out here, so that the case means the same for ever."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import structs

from bench.records import Case, ContainerSpec, DataSpec, LengthSpec, LoadSpec, Parallelism, Profile, Sampling, Search
from bench.suite.loads import Dataset, Stages
from bench.suite.matrix import Point

GRACE_S = 30.0
REQUEST_TIMEOUT_S = 600.0
TOKENS = 128
MINIMUM_WINDOW_S = {Profile.SMOKE: 5.0, Profile.NIGHTLY: 60.0, Profile.OFFICIAL: 600.0}
"""Windows below these are marked `too_short` by the timing core; here they only bring a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDefaults:
    """How long to measure, and how often."""

    duration_s: float
    warmup_s: float
    idle_s: float
    repeats: int


PROFILES = {
    Profile.SMOKE: WindowDefaults(duration_s=10.0, warmup_s=2.0, idle_s=2.0, repeats=1),
    Profile.NIGHTLY: WindowDefaults(duration_s=60.0, warmup_s=10.0, idle_s=10.0, repeats=3),
    Profile.OFFICIAL: WindowDefaults(duration_s=600.0, warmup_s=60.0, idle_s=30.0, repeats=5),
}


def profile_of(point: Point) -> Profile:
    """The profile written, else smoke."""
    profile = point.get("profile", Profile.SMOKE)
    assert isinstance(profile, Profile)
    return profile


def engine_of(point: Point) -> str:
    """The engine written, else `openai` for an address and `llamacpp` without."""
    return str(point.get("engine", "openai" if point.has("base_url") else "llamacpp"))


def window_defaults(point: Point) -> WindowDefaults:
    """Times [s] and repeats: as written, else by profile."""
    default = PROFILES[profile_of(point)]
    stages = point.get("stages")
    return WindowDefaults(
        duration_s=stages.duration_s if isinstance(stages, Stages) else point.get("duration", default.duration_s),
        warmup_s=point.get("warmup", default.warmup_s),
        idle_s=point.get("idle", default.idle_s),
        repeats=point.get("repeats", default.repeats),
    )


def load_of(point: Point) -> LoadSpec:
    """Closed loop of `batch_size` (default 1), or open loop at `request_rate` (infinite: all at once); stages; a trace."""
    num_prompts = point.get("num_prompts")
    if point.get("arrivals") == "trace":
        return _trace_of(point)
    if isinstance(point.get("stages"), Stages):
        return _staged(point, point.get("stages"))
    if not point.has("request_rate"):
        return LoadSpec(kind="closed", batch_size=point.get("batch_size", 1), num_prompts=num_prompts)
    rate = point.get("request_rate")
    at_once = rate == math.inf
    return LoadSpec(
        kind="open",
        request_rate=None if at_once else rate,
        arrivals="burst" if at_once else point.get("arrivals", "poisson"),
        burstiness=point.get("burstiness"),
        max_concurrency=point.get("max_concurrency"),
        num_prompts=num_prompts,
    )


def _trace_of(point: Point) -> LoadSpec:
    num_prompts = point.get("num_prompts")
    return LoadSpec(
        kind="open",
        arrivals="trace",
        speed=point.get("speed", 1.0),
        max_concurrency=point.get("max_concurrency"),
        num_prompts=num_prompts,
        whole_trace=num_prompts is None and not point.has("duration"),
    )


def _staged(point: Point, stages: Stages) -> LoadSpec:
    if stages.kind == "closed":
        return LoadSpec(kind="closed", batch_size=round(stages.highest), stages=stages.stages)
    return LoadSpec(
        kind="open",
        arrivals=point.get("arrivals", "poisson"),
        burstiness=point.get("burstiness"),
        max_concurrency=point.get("max_concurrency"),
        stages=stages.stages,
    )


def data_of(point: Point) -> tuple[str, DataSpec]:
    """The kind of data, and where and what it is."""
    dataset = point.get("dataset")
    found = dataset if isinstance(dataset, Dataset) else Dataset(kind="synthetic", data=DataSpec())
    tokens = point.get("prefix_tokens", 0)
    groups = point.get("prefix_groups", 1) if tokens else 0
    return found.kind, structs.replace(found.data, prefix_tokens=tokens, prefix_groups=groups)


def lengths_of(point: Point) -> tuple[LengthSpec, LengthSpec]:
    """Lengths of prompts and replies: as written, else those of the data file, else 128."""
    kind, _ = data_of(point)
    default = LengthSpec(mean=TOKENS) if kind == "synthetic" else LengthSpec(dist="dataset", mean=TOKENS)
    return point.get("input_tokens", default), point.get("output_tokens", default)


def parallel_of(point: Point) -> Parallelism:
    """Ranks as written, else one of each kind."""
    return Parallelism(**{kind: point.get(kind, 1) for kind in ("tp", "pp", "dp", "ep")})


def container_of(point: Point) -> ContainerSpec | None:
    """The container of `launch: docker` and `podman`; None for a process of this host."""
    tool = point.get("launch", "process")
    if tool == "process":
        return None
    written = point.get("container")
    return ContainerSpec(tool=tool, image=point.get("image"), **({} if written is None else written.model_dump()))


def at_end(point: Point, end: Literal["low", "high"]) -> Point:
    """A point with a `sweep` as the one of its lowest or highest load; any other as it is."""
    search = point.get("sweep")
    if not isinstance(search, Search):
        return point
    load = search.low if end == "low" else search.high
    rest = {key: value for key, value in point.values.items() if key != "sweep"}
    return replace(point, values={**rest, search.over: int(load) if search.over == "batch_size" else load})


def name_of(point: Point) -> str:
    """The case's name, or its model's, with the values of its matrix."""
    base = point.get("name") or point.get("model", "mock")
    return f"{base}/{point.suffix}" if point.suffix else str(base)


def resolve(point: Point, suite: str) -> Case:
    """The case of a point that has passed the rules."""
    times = window_defaults(point)
    kind, data = data_of(point)
    input_tokens, output_tokens = lengths_of(point)
    return Case(
        name=name_of(point),
        suite=suite,
        model=point.get("model", "mock"),
        model_source=point.get("model_source"),
        precision=point.get("precision"),
        engine=engine_of(point),
        engine_args=point.entries("engine_args"),
        engine_python=point.get("engine_python"),
        container=container_of(point),
        parallel=parallel_of(point),
        base_url=point.get("base_url"),
        api_key_env=point.get("api_key_env"),
        protocol=point.get("protocol", "openai-chat"),
        stream=point.get("stream", True),
        batching=point.get("batching", "continuous"),
        tokenizer=point.get("tokenizer"),
        devices=point.get("devices", ()),
        load=load_of(point),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        exact_lengths=point.get("exact_lengths", False),
        dataset=kind,
        data=data,
        seed=point.get("seed", 0),
        sampling=Sampling(
            temperature=point.get("temperature", 0.0), top_p=point.get("top_p", 1.0), ignore_eos=point.get("ignore_eos", True)
        ),
        duration_s=times.duration_s,
        warmup_s=times.warmup_s,
        grace_s=point.get("grace", GRACE_S),
        request_timeout_s=point.get("request_timeout", REQUEST_TIMEOUT_S),
        idle_s=times.idle_s,
        repeats=times.repeats,
        profile=profile_of(point),
        slos=point.get("goodput", ()),
        client_workers=point.get("workers"),
        labels=point.entries("labels"),
    )
