"""The nouns of the lab: frozen records that flow between the layers. No clock, no file, no network here.

In columns (`EventLog`, `ReadingSeries`) a missing stamp or count is `MISSING` (-1: a monotonic stamp or a count is never
negative) and a missing float is NaN; in records and in storage missing is `None`/NULL. Zero always means a measured zero.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCHEMA_VERSION = 1
"""Version of `trial.json` and of the Parquet columns. Raised when the meaning of a stored value changes."""

MISSING = -1

if TYPE_CHECKING:
    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]
else:  # half of a run's processes hold no arrays, and numpy takes longer to import than all that they do need
    IntArray = FloatArray = Any
Scalar = str | int | float | bool | None

LATER = Meta(extra={"later": True})
"""Marks a field that was added when ids were in use already: at its default it takes no part in them."""


ProtocolName = Literal[
    "openai-chat", "openai-completions", "vllm-completions", "sglang-generate", "llamacpp-completion", "kserve-generate"
]
"""How requests are worded: one module each in `bench.load.protocols`."""

TOKEN_ID_PROTOCOLS = frozenset({"openai-completions", "vllm-completions", "sglang-generate", "llamacpp-completion"})
"""Protocols whose prompts may be token ids: lengths are exact where the vocabulary's size is known."""


# --- what is to be measured -------------------------------------------------------------------------------------------


class Profile(StrEnum):
    """How strict the validity rules are: seconds for CI, a night, or something to publish."""

    SMOKE = "smoke"
    NIGHTLY = "nightly"
    OFFICIAL = "official"


class LengthSpec(Struct, frozen=True, kw_only=True):
    """A distribution of token counts. `fixed`: always `mean`; `uniform`: mean*(1 +- spread); `normal`, `lognormal`:
    standard deviation `spread`*mean; `dataset`: as each row of the data set says, with their mean and their `largest`.
    """

    dist: Literal["fixed", "uniform", "normal", "lognormal", "dataset"] = "fixed"
    mean: int
    spread: float = 0.0
    largest: Annotated[int | None, LATER] = None


class Stage(Struct, frozen=True, kw_only=True):
    """A stretch of load that goes in a straight line from `start` to `end`: requests/s in open loop, requests in flight in
    closed loop. Equal ends make a step.
    """

    start: float
    end: float
    duration_s: float


class DataSpec(Struct, frozen=True, kw_only=True):
    """Where prompts come from, beside the kind that `Case.dataset` names. `sha256` and `rows` (usable ones) are those of the
    file's content, None until it has been read. Rows outside the limits are left out. `salt`: put something new before each
    prompt, so that no prefix cache knows it. `prefix_tokens` come before the prompt and are shared by every
    `prefix_groups`-th request.
    """

    path: str | None = None
    sha256: str | None = None
    rows: int | None = None
    prompt_column: str | None = None
    output_tokens_column: str | None = None
    min_input_tokens: int | None = None
    max_input_tokens: int | None = None
    min_output_tokens: int | None = None
    max_output_tokens: int | None = None
    shuffle: bool = True
    salt: bool = True
    prefix_tokens: int = 0
    prefix_groups: int = 0
    shares_prefixes: bool = False
    """The rows themselves say which prompts begin alike."""

    @property
    def wants_cache_hits(self) -> bool:
        """Whether a prefix cache is meant to find something."""
        return self.prefix_groups > 0 or self.shares_prefixes or not self.salt


class LoadSpec(Struct, frozen=True, kw_only=True):
    """How requests arrive. Closed loop: `batch_size` requests in flight. Open loop: `request_rate` per second
    (None with `arrivals` burst: all at once), `max_concurrency` caps what is in flight. `num_prompts` makes the job
    count-bound. `stages` replace a constant load from `t0` on; `batch_size` is then the largest. Arrivals `trace` are those of
    the data set, `speed` times as fast; `whole_trace`: all of it, as one job.
    """

    kind: Literal["closed", "open"]
    batch_size: int | None = None
    request_rate: float | None = None
    arrivals: Literal["constant", "poisson", "gamma", "burst", "trace"] | None = None
    burstiness: float | None = None
    max_concurrency: int | None = None
    num_prompts: int | None = None
    stages: Annotated[tuple[Stage, ...], LATER] = ()
    speed: Annotated[float | None, LATER] = None
    whole_trace: Annotated[bool, LATER] = False


class Sampling(Struct, frozen=True, kw_only=True):
    """Decoding settings sent with each request."""

    temperature: float = 0.0
    top_p: float = 1.0
    ignore_eos: bool = True


class Slo(Struct, frozen=True, kw_only=True):
    """A latency limit that a request must meet to count as goodput: `metric` is ttft, tpot or e2e; `limit_ms` in ms."""

    metric: Literal["ttft", "tpot", "e2e"]
    limit_ms: float


class Parallelism(Struct, frozen=True, kw_only=True):
    """How one engine is spread over its devices: ranks of tensor, pipeline, data and expert parallelism. Experts are spread over
    the tensor and data ranks that are there: `ep` adds no devices.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1

    @property
    def devices(self) -> int:
        """Devices that all ranks together need."""
        return self.tp * self.pp * self.dp


class ContainerSpec(Struct, frozen=True, kw_only=True):
    """How an engine runs in a container: the program that starts it, the image, whether it shares the host's network or has a
    port published (`bridge`), the size of its /dev/shm, and as whom it runs (None: as the image says).
    """

    tool: Literal["docker", "podman"]
    image: str
    network: Literal["host", "bridge"] = "host"
    shm_size: str = "32g"
    user: str | None = None


class Case(Struct, frozen=True, kw_only=True):
    """One fully resolved point: nothing in it is a default that could change later. Immutable.

    `name`, `suite` and `labels` are for people and take no part in `case_id` (see `bench.identity`).
    """

    name: str
    suite: str
    model: str
    model_source: str | None
    precision: str | None
    engine: str
    engine_args: dict[str, Scalar] = field(default_factory=dict)
    engine_python: Annotated[str | None, LATER] = None
    """The Python that has the engine; None: found by the runner."""
    container: Annotated[ContainerSpec | None, LATER] = None
    """The container that has the engine; None: it is started as a process of this host."""
    parallel: Annotated[Parallelism, LATER] = Parallelism()
    base_url: str | None = None
    api_key_env: str | None = None
    protocol: ProtocolName = "openai-chat"
    stream: Annotated[bool, LATER] = True
    """False: each answer comes whole, so that nothing is known of its first token."""
    batching: Annotated[Literal["continuous", "static"], LATER] = "continuous"
    """`static`: the engine gathers requests into whole batches and opens none before the last has ended; else as it schedules."""
    tokenizer: Annotated[str | None, LATER] = None
    """A `tokenizer.json`, or its folder, that counts output tokens where the server tells none."""
    devices: tuple[str, ...] = ()
    load: LoadSpec
    input_tokens: LengthSpec
    output_tokens: LengthSpec
    exact_lengths: bool = False
    dataset: str = "synthetic"
    """`synthetic`, or the format of the file in `data`: `sharegpt`, `jsonl`, `csv`, `parquet`, `mooncake`, `azure`; `file` until
    it has been looked at.
    """
    data: Annotated[DataSpec, LATER] = DataSpec()
    seed: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    duration_s: float
    warmup_s: float
    grace_s: float
    request_timeout_s: float
    idle_s: float
    repeats: int
    profile: Profile
    slos: tuple[Slo, ...] = ()
    client_workers: int | None = None
    labels: dict[str, str] = field(default_factory=dict)


class Search(Struct, frozen=True, kw_only=True):
    """What is looked for among loads from `low` to `high` with at most `points` of them measured.

    `knee`: the smallest load that doubling would raise throughput by less than `gain` (a share). `max-goodput`: the largest load
    at which the share of requests that meet every SLO is at least `attainment`.
    """

    find: Literal["knee", "max-goodput"]
    over: Literal["batch_size", "request_rate"] = "batch_size"
    low: float = 1.0
    high: float = 256.0
    points: int = 12
    attainment: float = 0.99
    gain: float = 0.1


class Sweep(Struct, frozen=True, kw_only=True):
    """A search, and the case that it measures at each load: `case` stands at the lowest one."""

    case: Case
    search: Search


# --- where it runs ----------------------------------------------------------------------------------------------------


class ModelShape(Struct, frozen=True, kw_only=True):
    """The numbers of a model that roofline maths needs; None where unknown.

    A mixture of `experts` sends each token through `experts_used` of them, and so through `active_parameters`; a dense model has
    none. `kv_width`: numbers that the cache holds per token and layer where that isn't 2 * kv_heads * head_dim, as in latent
    attention.
    """

    parameters: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    hidden: int | None = None
    vocab: int | None = None
    experts: int | None = None
    experts_used: int | None = None
    active_parameters: int | None = None
    kv_width: int | None = None


class LocalModel(Struct, frozen=True, kw_only=True):
    """Weights on this disk. `path` is a file (GGUF) or a folder; `weights_sha256` covers every weight byte, None when
    not hashed (with `weights_reason`). `made_of`: that of the weights which these were converted from, None for all others.
    """

    name: str
    source: str
    path: str
    format: Literal["gguf", "safetensors", "openvino", "other"]
    size_b: int
    weights_sha256: str | None
    weights_reason: str | None = None
    made_of: str | None = None
    licence: str | None = None
    shape: ModelShape = field(default_factory=ModelShape)

    @property
    def is_synthetic(self) -> bool:
        """Whether the weights are random: such a model has a speed, and no right answer."""
        return self.source.startswith("synthetic:")


class PlacedBoard(Struct, frozen=True, kw_only=True):
    """A board, or a slice of one, that an engine may use: the probe that reads it, its uid, and the driver's number for it."""

    probe: str
    uid: str
    number: str


class Placement(Struct, frozen=True, kw_only=True):
    """The boards of a case: their uids as the probes name them, and the variables that show only them to an engine.

    `numbered_env`: the same with the driver's numbers, for engines that can't read ids; None where something has no number (a
    slice of a board). `boards`: those that the engine may use, in the order given, for who must hand them to a container.
    `devices`: how many it sees; None where nothing was restricted.
    """

    device_uids: tuple[str, ...] = ()
    visibility_env: dict[str, str] = field(default_factory=dict)
    numbered_env: dict[str, str] | None = None
    boards: tuple[PlacedBoard, ...] = ()
    devices: int | None = None


class Target(Struct, frozen=True, kw_only=True):
    """Where to send load, always a URL. `api_key_env` is the *name* of the variable that holds the key, never the key.

    `token_ids`: prompts may be sent as token ids (exact lengths), drawn below `vocab_size`.
    """

    base_url: str
    protocol: ProtocolName
    model: str
    api_key_env: str | None = None
    token_ids: bool = False
    vocab_size: int | None = None


class EngineHandle(Struct, frozen=True, kw_only=True):
    """A running engine, as the probes and the store need it. `pids` are the roots of its process trees on this host,
    empty for an attached endpoint. `settings` are read back from the engine where it tells them.
    """

    name: str
    version: str | None
    build: str | None
    command: tuple[str, ...]
    env: dict[str, str]
    pids: tuple[int, ...]
    settings: dict[str, Scalar]
    precision: str | None
    start_s: float | None
    """From the launch to the first good answer of its health page [s]."""
    load_s: float | None = None
    """How long it says that loading the weights took [s]."""
    first_token_s: float | None = None
    """From that answer to the first token of all [s]."""
    log_path: str | None
    own_weights: str | None = None
    """What its weights are called where it brings them itself, so that runs of the same can be told; None for all others."""


class EngineSamples(Struct, frozen=True, kw_only=True):
    """An engine's own counters while a load ran, under the project's names: one column each, None where an answer lacked it;
    `at_ns` is when each answer came.
    """

    at_ns: tuple[int, ...] = ()
    counters: dict[str, tuple[float | None, ...]] = field(default_factory=dict)


class HostInfo(Struct, frozen=True, kw_only=True):
    """The machine: `host_id` is a hash, no name or address is kept."""

    host_id: str
    system: str
    release: str
    machine: str
    cpu_model: str | None
    cpu_count: int
    memory_b: int
    python: str


# --- what was measured: load ------------------------------------------------------------------------------------------


class ClockAnchor(Struct, frozen=True, kw_only=True):
    """The same moment on two clocks [ns]: ties monotonic stamps to dates."""

    monotonic_ns: int
    wall_ns: int


class Window(Struct, frozen=True, kw_only=True):
    """`[t0_ns, t1_ns)` on the monotonic clock: throughput and energy use the same one. `whole_job` windows are compared
    only with their like.
    """

    t0_ns: int
    t1_ns: int
    kind: Literal["steady", "whole_job"] = "steady"

    @property
    def seconds(self) -> float:
        """Length [s]."""
        return (self.t1_ns - self.t0_ns) / 1e9


class Outcome(IntEnum):
    """How a request ended. Only `OK` counts as a success."""

    OK = 0
    CONNECT = 1
    """The connection could not be made, or was reset before any byte of the answer."""
    HTTP = 2
    """An HTTP status other than 200."""
    STREAM_ERROR = 3
    """HTTP 200 whose stream carries an error object."""
    TRUNCATED = 4
    """The stream ended with neither a finish reason nor `[DONE]`, or the connection broke in mid-answer."""
    EMPTY = 5
    """A complete answer without any token where tokens were asked for."""
    PROTOCOL = 6
    """Bytes that are not HTTP, SSE or JSON."""
    TIMEOUT = 7
    """No end within `request_timeout_s`."""
    CANCELLED = 8
    """Cut off by us: the grace ended, or the run was stopped."""


class ChunkKind(IntEnum):
    """What a content chunk carries."""

    CONTENT = 0
    REASONING = 1
    REFUSAL = 2
    TOOL = 3


class EventLog(Struct, frozen=True, kw_only=True):
    """What the load generator saw, in columns: the only source of every latency and throughput number.

    Requests (length n, in order of `sent_ns`; stamps [ns], `MISSING` where the thing never happened):
      `scheduled_ns` intended send time (open loop; MISSING in closed loop), `sent_ns` first byte handed to the kernel,
      `opened_ns` response headers complete, `closed_ns` response complete or given up; `outcome` an `Outcome`;
      `http_status`; `input_requested`, `output_requested` lengths asked for; `input_tokens`, `output_tokens`,
      `cached_tokens`, `reasoning_tokens` from the server's `usage` (MISSING where it gave none); `finish_reason`, `error`
      per request or None; `worker` that sent it.
    Content chunks (length m, grouped by request in request order, then in time order): `chunk_request` index into the
      requests, `chunk_ns` stamp of the read that completed it, `chunk_kind` a `ChunkKind`, `chunk_tokens` tokens in it
      when the server says so (ids, cumulative usage) or a tokenizer was given, else MISSING, `chunk_bytes` UTF-8 bytes of its
      text.
    `output_retokenized` (length n): output tokens that the case's tokenizer counts in the text of a good answer, MISSING where
      the server told its own count; None where nothing was counted.
    """

    scheduled_ns: IntArray
    sent_ns: IntArray
    opened_ns: IntArray
    closed_ns: IntArray
    outcome: IntArray
    http_status: IntArray
    input_requested: IntArray
    output_requested: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    cached_tokens: IntArray
    reasoning_tokens: IntArray
    worker: IntArray
    finish_reason: tuple[str | None, ...]
    error: tuple[str | None, ...]
    chunk_request: IntArray
    chunk_ns: IntArray
    chunk_kind: IntArray
    chunk_tokens: IntArray
    chunk_bytes: IntArray
    output_retokenized: IntArray | None = None

    def __len__(self) -> int:
        return len(self.sent_ns)


class ClientHealth(Struct, frozen=True, kw_only=True):
    """The load generator's judgement of itself, over the window. None where it could not be told.

    `send_lag_*`: sent - scheduled (open loop), or refill delay after a completion (closed loop) [ms].
    `loop_lag_p99_ms`: how late a heartbeat timer fires. `coalesced_read_share`: reads that held more than one content
    event. `cpu_share`: CPU seconds per wall second of the busiest worker. `in_flight_*`: concurrency really reached.
    """

    workers: int
    send_lag_p50_ms: float | None
    send_lag_p99_ms: float | None
    loop_lag_p99_ms: float | None
    coalesced_read_share: float | None
    cpu_share: float | None
    in_flight_asked: int | None
    in_flight_reached: int
    loop: str


class LoadProgress(Struct, frozen=True, kw_only=True):
    """A glance at running load, for the terminal only. `phase` is warmup, measure or drain."""

    phase: Literal["warmup", "measure", "drain"]
    elapsed_s: float
    in_flight: int
    completed: int
    failed: int
    chunks_per_s: float


class LoadResult(Struct, frozen=True, kw_only=True):
    """Everything that a load generator hands back. `window` is None if it was stopped before `t0`."""

    log: EventLog
    window: Window | None
    health: ClientHealth
    dataset_hash: str
    interrupted: bool = False
    prompts_recycled: bool = False


# --- what was measured: devices ---------------------------------------------------------------------------------------

Scope = Literal["accelerator", "module", "cpu_package", "dram", "node", "process"]
BOARD_SCOPES: tuple[Scope, ...] = ("accelerator", "module")
"""Scopes of a device that is bought and chosen as a whole: the others are parts of its host."""
Quality = Literal["measured", "modelled", "simulated"]


class SensorInfo(Struct, frozen=True, kw_only=True):
    """Where a quantity comes from: vendor call or file, raw unit, averaging window, and what was measured at start."""

    api: str
    unit: str
    averaging_window_s: float | None = None
    update_period_s: float | None = None
    call_cost_s: float | None = None
    gain_error: float | None = None
    """Relative gain error of the sensor (0.05 = 5% of reading), None where no source gives one."""
    wrap_j: float | None = None
    """Joules at which a counter wraps; None where it does not, or is not known to."""


class DeviceInfo(Struct, frozen=True, kw_only=True):
    """One measured domain: an accelerator board, a CPU package, its DRAM, or the engine's own process tree.

    `uid` is stable across tools and reboots (board UUID, else PCI address). `board` groups domains of one physical board;
    `covers` names the uids whose power this domain's reading includes. `power`/`energy` are None where the domain has no
    such sensor, and then `power_reason` says why. `reasons` maps any other missing quantity to its reason.
    """

    uid: str
    probe: str
    vendor: str
    name: str
    index: int
    scope: Scope
    quality: Quality = "measured"
    board: str | None = None
    covers: tuple[str, ...] = ()
    pci: str | None = None
    driver: str | None = None
    firmware: str | None = None
    visible_as: str | None = None
    """What the vendor's visibility variable calls it, where that is neither uid nor index."""
    memory_total_b: int | None = None
    power_limit_w: float | None = None
    power: SensorInfo | None = None
    energy: SensorInfo | None = None
    power_reason: str | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    shared: str | None = None
    """Why its power can't be one engine's alone (MIG slices, vGPU, HAMi), in words; None where nothing says so."""


class ProbeProblem(Struct, frozen=True, kw_only=True):
    """Something present but unreadable, with the fix: shown by `bench devices` and `bench doctor`."""

    probe: str
    subject: str
    problem: str
    fix: str


class Reading(Struct, frozen=True, kw_only=True):
    """One sample of one domain with the monotonic clock before and after the call. Missing is None, never 0.

    `throttle`: standard names of active limits (`sw_power_cap`, `hw_thermal`, ...), empty when none is active, None when
    unknown.
    """

    uid: str
    before_ns: int
    after_ns: int
    power_w: float | None = None
    energy_j: float | None = None
    memory_used_b: int | None = None
    utilisation: float | None = None
    """Busy share in [0, 1]; for a process tree: CPU seconds per wall second per core of the host."""
    temperature_c: float | None = None
    clock_mhz: float | None = None
    throttle: tuple[str, ...] | None = None
    foreign_processes: float | None = None
    """Processes that use the device and are not the engine's: before it was started, all of them. None where it can't be told."""
    engine_memory_b: int | None = None
    """Device memory that the engine's processes hold [bytes]; None where the vendor does not tell memory by process."""


class StreamEnd(Struct, frozen=True, kw_only=True):
    """A telemetry stream that stopped early (hung, crashed, lost) and why."""

    probe: str
    at_ns: int
    reason: str


class Telemetry(Struct, frozen=True, kw_only=True):
    """All readings of a trial. `period_s` is the polling period asked for. `idle` is the window measured before the engine
    started, `resident` the one with the model loaded and no load; None where not taken.
    """

    devices: tuple[DeviceInfo, ...] = ()
    readings: tuple[Reading, ...] = ()
    ends: tuple[StreamEnd, ...] = ()
    problems: tuple[ProbeProblem, ...] = ()
    period_s: float = 0.1
    idle: Window | None = None
    resident: Window | None = None
    idle_readings: tuple[Reading, ...] = ()


# --- what was measured: answers ----------------------------------------------------------------------------------------


class Parting(Struct, frozen=True, kw_only=True):
    """Where an engine's greedy answer leaves the reference's though that was sure of its token. `after` is the end of what both
    said, `expected` and `found` what each said next; `gap_nats` lay between the reference's two best tokens.
    """

    step: int
    after: str
    expected: str
    found: str
    gap_nats: float


class OutputCheck(Struct, frozen=True, kw_only=True):
    """An engine's answers beside those of the reference run of the same weights (`bench.analysis.agreement`).

    `reference`: what gave those, in words. Of `steps` compared tokens `agreed` are the reference's. `ppl`, `reference_ppl`:
    perplexity of one text of `text_tokens` tokens. What could not be compared has a reason instead.
    """

    reference: str | None = None
    steps: int = 0
    agreed: int = 0
    partings: tuple[Parting, ...] = ()
    reason: str | None = None
    text_tokens: int = 0
    ppl: float | None = None
    reference_ppl: float | None = None
    ppl_reason: str | None = None


# --- what it means ----------------------------------------------------------------------------------------------------

Group = Literal["all", "throughput", "latency", "energy", "memory"]


class Reason(Struct, frozen=True, kw_only=True):
    """Why a trial, or a group of its metrics, is not to be trusted (`invalid`) or to be read with care (`warning`)."""

    code: str
    group: Group
    severity: Literal["invalid", "warning"]
    message: str


class Metric(Struct, frozen=True, kw_only=True):
    """One number, or one distribution, with its unit. `value` for scalars; `p50`.. for distributions. `low`/`high` bound
    the headline (value or p50) at 95%. When it is undefined every number is None and `reason` says why.
    """

    name: str
    unit: str
    value: float | None = None
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p99_low: float | None = None
    p99_high: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str | None = None
    source: str | None = None
    """Where counts come from when that matters: `usage`, `ids`, `chunks`, `retokenized`, `spread_by_bytes`; or the energy
    method.
    """
    terms: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The error budget of an energy metric: 95% half-widths below and above, in its unit, by what causes them (`blocks`, `ends`,
    `unseen`, `token_count`, `idle`, `gain`). `low` and `high` add them in quadrature.
    """


class Status(StrEnum):
    """Of a trial. Only `valid` ones are compared; a valid trial may carry warnings."""

    VALID = "valid"
    INVALID = "invalid"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"


class Measured(Struct, frozen=True, kw_only=True):
    """What the timing core says of a trial."""

    metrics: dict[str, Metric]
    reasons: tuple[Reason, ...]
    energy_scope: Scope | None

    @property
    def status(self) -> Status:
        """Invalid as soon as the throughput, latency or whole of it is; an energy reason only nulls the J metrics."""
        bad = any(r.severity == "invalid" and r.group in ("all", "throughput", "latency") for r in self.reasons)
        return Status.INVALID if bad else Status.VALID


class TrialKey(Struct, frozen=True, kw_only=True):
    """Which trial of which run."""

    run_id: str
    trial_id: str
    case_id: str
    workload_id: str
    repeat: int
    role: str = "measure"
    attempt: int = 1
    """Above 1 where a resumed run measures again what had failed or was cut off; only the last attempt counts."""


class TrialRecord(Struct, frozen=True, kw_only=True):
    """`trial.json`: everything needed to recompute and to rerun one trial."""

    schema_version: int = SCHEMA_VERSION
    bench_version: str
    key: TrialKey
    status: Status
    reasons: tuple[Reason, ...] = ()
    error: str | None = None
    case: Case
    series_id: str | None = None
    config_id: str | None = None
    engine: EngineHandle | None = None
    model: LocalModel | None = None
    target: Target | None = None
    host: HostInfo
    devices: tuple[DeviceInfo, ...] = ()
    problems: tuple[ProbeProblem, ...] = ()
    stream_ends: tuple[StreamEnd, ...] = ()
    health: ClientHealth | None = None
    window: Window | None = None
    idle: Window | None = None
    resident: Window | None = None
    started: ClockAnchor
    ended: ClockAnchor
    energy_scope: Scope | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    engine_metrics_before: dict[str, float] = field(default_factory=dict)
    engine_metrics_after: dict[str, float] = field(default_factory=dict)
    engine_samples: EngineSamples = field(default_factory=EngineSamples)
    output_check: OutputCheck | None = None
    dataset_hash: str | None = None
    prompts_recycled: bool = False
    telemetry_period_s: float | None = None
    files: dict[str, str] = field(default_factory=dict)
    """sha256 of each sibling file."""
    extra: dict[str, Any] = field(default_factory=dict)
