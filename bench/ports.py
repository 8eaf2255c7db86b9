"""What the trial loop needs from the outside, one protocol each. Adapters live in `runners`, `probes`, `load`, `store` and
`models`; `cli` wires them together. `session` sees only this page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from bench.records import (
    Case,
    DeviceInfo,
    EngineHandle,
    EventLog,
    LoadProgress,
    LoadResult,
    LocalModel,
    OutputCheck,
    Placement,
    ProbeProblem,
    Reading,
    Target,
    Telemetry,
    TrialKey,
    TrialRecord,
    Window,
)

# --- models -----------------------------------------------------------------------------------------------------------

BytesProgress = Callable[[str, int, int | None], None]
"""Called with (what, bytes done, bytes in all or None)."""


class ModelSource(Protocol):
    """Where weights come from."""

    def check(self, name: str, source: str | None, *, precision: str | None = None, formats: Sequence[str] = ()) -> object:
        """Refuse a name, precision, format or source that can't be right, before anything is started. Raises: UsageError."""
        ...

    def fetch(
        self,
        name: str,
        source: str | None,
        progress: BytesProgress,
        *,
        precision: str | None = None,
        formats: Sequence[str] = (),
        python: str | None = None,
    ) -> LocalModel:
        """The weights on this disk, downloaded or converted if need be. `source` overrides the catalogue; `precision` and
        `formats` (what the engine reads) choose among the catalogue's sources of one model. `python`: the engine's own, which may
        have what a conversion takes.

        Raises: ModelError, UsageError (unknown model), MissingError (nothing here can convert).
        """
        ...


# --- engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What a runner gets. `work_dir` is a private folder for the engine's log and files; `cases` are all points that this one
    engine start must serve (their largest batch and lengths size its slots and context). `run_id` is written on what outlives
    a process.
    """

    cases: tuple[Case, ...]
    model: LocalModel | None
    placement: Placement
    work_dir: Path
    start_timeout_s: float
    run_id: str = ""

    @property
    def case(self) -> Case:
        """The first point: all of them share model, precision, engine and engine arguments."""
        return self.cases[0]


class Engine(Protocol):
    """A running engine. Leaving its `with` block stops it and all that it started."""

    @property
    def target(self) -> Target: ...

    @property
    def handle(self) -> EngineHandle: ...

    def failure(self) -> str | None:
        """None while it lives; otherwise in plain words how it ended (exit status or signal, and the likely cause)."""
        ...

    def log_tail(self, lines: int = 40) -> str:
        """The engine's own last words; empty for an attached endpoint."""
        ...

    def server_metrics(self, window: Window | None = None) -> dict[str, float]:
        """A snapshot of the engine's own counters under the project's names (`prompt_tokens_total`,
        `prompt_tokens_cached_total`, `generation_tokens_total`, `requests_running`, `requests_waiting`, `kv_cache_util`,
        ...); with a `window`, also what only a window has (the mock engine's schedule lag, `mock_lag_p99_ms`). Empty where
        it has none. Never raises for a missing endpoint.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Runner(Protocol):
    """Launches one kind of engine."""

    name: str

    @property
    def reads(self) -> tuple[str, ...]:
        """Formats of weights that it reads (`gguf`, `safetensors`); empty for endpoints and engines that bring their own model:
        then no weights are fetched.
        """
        ...

    def check(self, case: Case) -> None:
        """Refuse before anything is downloaded or started. Raises: EngineMissing, UsageError (precision, arguments)."""
        ...

    def about(self, case: Case) -> str:
        """The engine that `case` would start, in one line: its version, where it is, what it runs on. Raises: EngineMissing with
        how to install it.
        """
        ...

    def start(self, request: StartRequest) -> Engine:
        """Start and wait until it answers. Raises: EngineMissing, EngineStartError (with the log's tail), TargetError."""
        ...


class OutputChecker(Protocol):
    """Compares what an engine says with what the same weights say elsewhere."""

    def check(self, engine: Engine, case: Case, model: LocalModel | None) -> OutputCheck:
        """Ask it a few short prompts, once in each start. Whatever it answers, or does not, is in what comes back."""
        ...


# --- load -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One trial's load. `salt` makes the prompts of this trial unlike those of any other (workload, repeat, run nonce).
    `spill_dir` is where raw events go while it runs.
    """

    case: Case
    target: Target
    salt: str
    spill_dir: Path


class LoadGenerator(Protocol):
    """Drives a target in processes of its own."""

    def run(
        self,
        plan: LoadPlan,
        on_progress: Callable[[LoadProgress], None],
        should_stop: Callable[[], str | None],
    ) -> LoadResult:
        """Warm up, measure, drain, parse. `should_stop` is asked a few times a second; a text ends the load early and is
        kept as the reason (the log then holds what was seen so far).

        Raises: TargetError (refused, 401, 404 before any load), LoadError (a worker died).
        """
        ...


# --- devices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What a probe found: devices it can read, and what is present but unreadable with the fix."""

    devices: tuple[DeviceInfo, ...] = ()
    problems: tuple[ProbeProblem, ...] = ()


class Probe(Protocol):
    """Reads one vendor's devices, never sets anything. Lives in a child process of its own: it may hang or crash."""

    name: str

    def discover(self) -> Discovery:
        """Find devices. Never raises for a missing vendor: that is an empty `Discovery`."""
        ...

    def watch(self, pids: Iterable[int]) -> Discovery:
        """From now on also observe these process trees (`cpu`), or know them for ours (boards).

        Returns the devices that this adds.
        """
        ...

    def sample(self, uid: str) -> Reading:
        """One reading. Raises: ProbeError for this device only."""
        ...

    def close(self) -> None:
        """Let go of the vendor library."""
        ...


class ProbeStream(Protocol):
    """One probe's child process, seen from the harness."""

    def discovery(self) -> Discovery: ...

    def watch(self, pids: Iterable[int]) -> None: ...

    def drain(self) -> list[Reading]:
        """Readings that have arrived since the last call."""
        ...

    def settled(self) -> bool:
        """Whether its sensors have been timed: it polls evenly from then on."""
        ...

    def ended(self) -> str | None:
        """Why the stream ended before it was closed; None while it lives."""
        ...

    def close(self) -> None: ...


class ProbeHost(Protocol):
    """Opens probe children by name."""

    def names(self) -> tuple[str, ...]:
        """The probes worth opening on this host."""
        ...

    def open(self, name: str, period_s: float) -> ProbeStream:
        """Start a probe child that samples every `period_s`. A probe that can't start is a stream that has ended."""
        ...


# --- results ----------------------------------------------------------------------------------------------------------


class OpenTrial(Protocol):
    """A trial being written under `.partial/`."""

    @property
    def folder(self) -> Path: ...

    def describe(self, draft: TrialRecord) -> None:
        """Keep what is known so far (host, engine, devices), for whoever finds this trial should we be killed."""
        ...

    def save(self, record: TrialRecord, log: EventLog | None, telemetry: Telemetry | None) -> Path:
        """Write Parquet and JSON, hash them, rename into place; returns the shard's folder. Raises: StoreError."""
        ...


class TrialStore(Protocol):
    """Where trials go."""

    def begin(self, key: TrialKey, case: Case) -> OpenTrial:
        """Raises: StoreError (read-only folder, disk full)."""
        ...


# --- what comes next -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """A trial to be measured. `role`: what its run wants it for. `extra` is kept in its record as it is."""

    case: Case
    repeat: int
    role: str = "measure"
    extra: dict[str, Any] = field(default_factory=dict)


class Planner(Protocol):
    """Chooses trials while a run goes on, all for one engine start."""

    @property
    def patience(self) -> int:
        """Engine deaths in a row after which the rest is not tried."""
        ...

    @property
    def cases(self) -> tuple[Case, ...]:
        """Cases between whose loads all others lie: they decide which engine is started, and how large."""
        ...

    def remaining(self, done: Sequence[TrialRecord]) -> Sequence[PlannedTrial]:
        """What is known by now to be still to come, next first, given every trial of the run so far; nothing once it is
        through. Asked again after each trial.
        """
        ...


# --- the person -------------------------------------------------------------------------------------------------------


class Observer(Protocol):
    """Told what happens, for the terminal. Every method returns at once."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins: pull, start, idle, check, warmup, measure, drain, save."""
        ...

    def bytes_done(self, what: str, done: int, total: int | None) -> None: ...

    def load(self, progress: LoadProgress, power_w: float | None, seconds_left: float | None) -> None: ...

    def trial_done(self, record: TrialRecord) -> None: ...

    def note(self, message: str) -> None:
        """Something a person should know, not an error."""
        ...
