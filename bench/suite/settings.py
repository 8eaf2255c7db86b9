"""Every key of the format with its type, its limits and what it means: the source of validation, JSON Schema and docs.

A field holds the type of *one* value. That a list of values makes a matrix is said once, by `EXPANDABLE`. Defaults that depend on
other keys are in `bench.suite.resolve`; `None` means "not written", and `null` in a file takes back what `defaults` wrote.
"""

from __future__ import annotations

from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StrictBool, TypeAdapter

from bench.records import Profile, ProtocolName
from bench.suite.loads import DatasetChoice, StageList
from bench.suite.values import (
    Argument,
    Burstiness,
    CaseName,
    ContainerSettings,
    Count,
    DeviceList,
    Goodput,
    Image,
    InFlight,
    Length,
    Mass,
    PositiveSeconds,
    PrefixTokens,
    Ranks,
    Rate,
    Repeats,
    RequestCount,
    Seconds,
    Seed,
    Speed,
    Sweeping,
    Temperature,
    Text,
    Url,
    VariableName,
    Workers,
)


class Settings(BaseModel):
    """The keys of `defaults` and of each case, in the order in which they are documented."""

    model_config = ConfigDict(extra="forbid")

    name: CaseName | None = Field(
        default=None, description="Name of the case, for people; the values of a matrix are added to it. Default: the model."
    )
    model: Text | None = Field(default=None, description="A name of the model catalogue, or what the endpoint calls it.")
    model_source: Text | None = Field(
        default=None,
        description="Where the weights come from (`hf:repo@rev`, `path:/dir`, ...) instead of the catalogue's source.",
    )
    precision: Text | None = Field(
        default=None, description="Precision of the weights, as in `fp16` or `q4_1`. Default: the engine's own."
    )
    engine: Text | None = Field(
        default=None, description="Which engine to run. Default: `openai` with a `base_url`, else `llamacpp`."
    )
    engine_args: dict[str, Argument] | None = Field(
        default=None, description="Arguments of the engine; a list as a value expands."
    )
    engine_python: Text | None = Field(
        default=None,
        description="The Python that has the engine, when it is not found by itself; see [engines](engines.md#environments).",
    )
    launch: Literal["process", "docker", "podman"] | None = Field(
        default=None, description="How the engine is started; see [containers](engines.md#containers). Default: `process`."
    )
    image: Image | None = Field(
        default=None, description="The container image that has the engine, with a tag or digest that does not move."
    )
    container: ContainerSettings | None = Field(
        default=None, description="How the container is set up: a mapping of `network`, `shm_size` and `user`."
    )
    tp: Ranks | None = Field(default=None, description="Tensor parallel ranks. Default: 1.")
    pp: Ranks | None = Field(default=None, description="Pipeline parallel ranks. Default: 1.")
    dp: Ranks | None = Field(default=None, description="Data parallel ranks. Default: 1.")
    ep: Ranks | None = Field(default=None, description="Expert parallel ranks, spread over those of `tp` and `dp`. Default: 1.")
    base_url: Url | None = Field(
        default=None, description="URL of an endpoint that already runs (engine `openai`); `unix:/path` for a socket."
    )
    api_key_env: VariableName | None = Field(
        default=None, description="Name of the environment variable with the API key; never the key."
    )
    protocol: ProtocolName | None = Field(
        default=None, description="How requests are worded (docs/load.md lists the protocols). Default: `openai-chat`."
    )
    tokenizer: Text | None = Field(
        default=None, description="A `tokenizer.json` or its folder: counts output tokens where the server tells none."
    )
    stream: StrictBool | None = Field(
        default=None, description="Whether answers are streamed; without, there is no TTFT, TPOT or ITL. Default: true."
    )
    batching: Literal["continuous", "static"] | None = Field(
        default=None,
        description="`static`: whole batches, one after the other, as one job of `num_prompts`. Default: `continuous`.",
    )
    devices: DeviceList | None = Field(default=None, description="Boards to run on, one or a list; the list does not expand.")
    batch_size: InFlight | None = Field(
        default=None, description="Closed loop: requests in flight, each refilled at once. Default: 1 without `request_rate`."
    )
    request_rate: Rate | None = Field(
        default=None, description="Open loop: requests per second; `inf` sends all `num_prompts` at once."
    )
    arrivals: Literal["constant", "poisson", "gamma", "burst", "trace"] | None = Field(
        default=None,
        description="Open loop: spacing of requests; `trace`: as in the `dataset`. Default: `poisson`, or `burst` at rate `inf`.",
    )
    burstiness: Burstiness | None = Field(
        default=None, description="Shape of `gamma` arrivals: below 1 burstier than Poisson, above 1 steadier."
    )
    speed: Speed | None = Field(default=None, description="With `arrivals: trace`: how much faster than it was. Default: 1.")
    stages: StageList | None = Field(
        default=None,
        description="A load that changes: steps and ramps of `rate` or `batch_size`; see [load and data](load-data.md).",
    )
    sweep: Sweeping | None = Field(
        default=None, description="Search for a load instead of measuring given ones; see [sweeps](sweeps.md)."
    )
    max_concurrency: InFlight | None = Field(default=None, description="Open loop: cap on requests in flight.")
    num_prompts: RequestCount | None = Field(default=None, description="Measure this many requests instead of a `duration`.")
    input_tokens: Length | None = Field(
        default=None, description="Prompt length in tokens, a number or a distribution. Default: 128."
    )
    output_tokens: Length | None = Field(
        default=None, description="Answer length in tokens, a number or a distribution. Default: 128."
    )
    exact_lengths: StrictBool | None = Field(
        default=None, description="Make a trial whose lengths are off invalid. Default: false."
    )
    dataset: DatasetChoice | None = Field(
        default=None,
        description="Where prompts come from: a file, or a mapping; see [load and data](load-data.md). Default: `synthetic`.",
    )
    prefix_tokens: PrefixTokens | None = Field(
        default=None, description="Tokens before each synthetic prompt that requests of a group share. Default: 0."
    )
    prefix_groups: Count | None = Field(default=None, description="How many groups with a prefix of their own. Default: 1.")
    seed: Seed | None = Field(default=None, description="Seed of prompts, lengths and arrivals. Default: 0.")
    temperature: Temperature | None = Field(default=None, description="Sampling temperature. Default: 0.")
    top_p: Mass | None = Field(default=None, description="Nucleus sampling mass. Default: 1.")
    ignore_eos: StrictBool | None = Field(default=None, description="Keep generating past the end token. Default: true.")
    duration: PositiveSeconds | None = Field(default=None, description="Length of the measured window. Default: by profile.")
    warmup: Seconds | None = Field(default=None, description="Load before the window that is not measured. Default: by profile.")
    grace: Seconds | None = Field(default=None, description="How long requests of the window may end after it. Default: 30s.")
    request_timeout: PositiveSeconds | None = Field(default=None, description="When a request counts as failed. Default: 600s.")
    idle: Seconds | None = Field(default=None, description="How long idle power is measured. Default: by profile.")
    repeats: Repeats | None = Field(default=None, description="Trials of each case. Default: by profile.")
    profile: Profile | None = Field(
        default=None, description="Defaults and strictness: `smoke`, `nightly` or `official`. Default: `smoke`."
    )
    goodput: Goodput | None = Field(
        default=None, description="Latency limits in ms: `[ttft:200, tpot:50]` or `{ttft: 200}`; also `e2e`."
    )
    workers: Workers | None = Field(default=None, description="Client worker processes. Default: chosen from the load.")
    labels: dict[str, Text] | None = Field(
        default=None, description="Words for people to filter by; not part of what is measured."
    )


KEYS = tuple(Settings.model_fields)
MAPPINGS = ("engine_args", "labels")
"""Keys that hold a mapping: a case adds to the one of `defaults`, entry by entry."""
EXPANDABLE = frozenset(KEYS) - {"name", "api_key_env", "devices", "container", "goodput", "sweep", "stages", *MAPPINGS}
"""Keys for which a list means several cases. The entries of `engine_args` expand as well."""
KEPT_QUIET = frozenset({"api_key_env", "base_url"})
"""Keys whose wrong value is not repeated in a message: it may hold a secret."""

_HINTS = get_type_hints(Settings, include_extras=True)
ADAPTERS: dict[str, TypeAdapter[Any]] = {key: TypeAdapter(_HINTS[key]) for key in KEYS if key not in MAPPINGS}
ENTRY_ADAPTERS: dict[str, TypeAdapter[Any]] = {"engine_args": TypeAdapter(Argument), "labels": TypeAdapter(Text)}
ENTRY_NAMES: TypeAdapter[str] = TypeAdapter(Text)
