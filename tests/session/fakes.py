"""Hand-written stand-ins for every port of the trial loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np

from bench.clock import FakeClock
from bench.errors import BenchError, DeviceMissing, UsageError
from bench.ports import BytesProgress, Discovery, Engine, LoadPlan, Planner, StartRequest
from bench.records import (
    Case,
    ClientHealth,
    DeviceInfo,
    EngineHandle,
    EventLog,
    LengthSpec,
    LoadProgress,
    LoadResult,
    LoadSpec,
    LocalModel,
    OutputCheck,
    Placement,
    Profile,
    Reading,
    SensorInfo,
    Target,
    Telemetry,
    TrialKey,
    TrialRecord,
    Window,
)
from bench.session.interrupts import Interrupts
from bench.session.loop import RunOutcome, Session

S = 1_000_000_000


def a_case(name: str = "c", **over: object) -> Case:
    """A small closed-loop case; keywords replace fields."""
    fields: dict[str, object] = {
        "name": name,
        "suite": "s",
        "model": "m",
        "model_source": None,
        "precision": None,
        "engine": "fake",
        "load": LoadSpec(kind="closed", batch_size=2),
        "input_tokens": LengthSpec(mean=8),
        "output_tokens": LengthSpec(mean=4),
        "duration_s": 5.0,
        "warmup_s": 1.0,
        "grace_s": 1.0,
        "request_timeout_s": 10.0,
        "idle_s": 2.0,
        "repeats": 1,
        "profile": Profile.SMOKE,
    }
    return Case(**{**fields, **over})  # type: ignore[arg-type]


def a_log(*, t0_ns: int, seconds: float, requests: int = 20, tokens: int = 4) -> EventLog:
    """`requests` one after another over `seconds`, each with `tokens` chunks evenly spaced."""
    each_ns = int(seconds * S / requests)
    sent = t0_ns + np.arange(requests, dtype=np.int64) * each_ns
    chunk_ns = (sent[:, None] + (np.arange(1, tokens + 1) * each_ns // (tokens + 1))[None, :]).reshape(-1)
    ones, missing = np.ones(requests, dtype=np.int64), np.full(requests, -1, dtype=np.int64)
    return EventLog(
        scheduled_ns=missing,
        sent_ns=sent,
        opened_ns=sent + 1000,
        closed_ns=sent + each_ns - 1000,
        outcome=0 * ones,
        http_status=200 * ones,
        input_requested=8 * ones,
        output_requested=tokens * ones,
        input_tokens=8 * ones,
        output_tokens=tokens * ones,
        cached_tokens=missing,
        reasoning_tokens=missing,
        worker=0 * ones,
        finish_reason=("length",) * requests,
        error=(None,) * requests,
        chunk_request=np.repeat(np.arange(requests, dtype=np.int64), tokens),
        chunk_ns=chunk_ns,
        chunk_kind=np.zeros(requests * tokens, dtype=np.int64),
        chunk_tokens=np.ones(requests * tokens, dtype=np.int64),
        chunk_bytes=np.full(requests * tokens, 4, dtype=np.int64),
    )


HEALTH = ClientHealth(
    workers=1,
    send_lag_p50_ms=0.01,
    send_lag_p99_ms=0.02,
    loop_lag_p99_ms=0.05,
    coalesced_read_share=0.0,
    cpu_share=0.05,
    in_flight_asked=2,
    in_flight_reached=2,
    loop="fake",
)


@dataclass
class FakeEngine:
    """Lives until `dies_after` trials have asked for its metrics before a load."""

    case: Case
    events: list[str]
    dead: str | None = None
    pids: tuple[int, ...] = (4242,)
    log_path: str | None = None

    @property
    def target(self) -> Target:
        return Target(base_url="http://127.0.0.1:1", protocol="openai-chat", model="m")

    @property
    def handle(self) -> EngineHandle:
        return EngineHandle(
            name="fake",
            version="1",
            build=None,
            command=("fake",),
            env={},
            pids=self.pids,
            settings={},
            precision=self.case.precision,
            start_s=0.1,
            log_path=self.log_path,
        )

    def failure(self) -> str | None:
        return self.dead

    def log_tail(self, lines: int = 40) -> str:
        return "last words" if self.dead else ""

    def server_metrics(self, window: Window | None = None) -> dict[str, float]:
        return {}

    def __enter__(self) -> Self:
        self.events.append("engine up")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.events.append("engine down")


@dataclass
class FakeRunner:
    """Starts `FakeEngine`s, or raises what it is told to."""

    events: list[str]
    name: str = "fake"
    reads: tuple[str, ...] = ("gguf",)
    refuse: BenchError | None = None
    start_error: BenchError | None = None
    pids: tuple[int, ...] = (4242,)
    engines: list[FakeEngine] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)
    started_s: list[float] = field(default_factory=list)

    def check(self, case: Case) -> None:
        self.events.append(f"check {case.name}")
        if self.refuse:
            raise self.refuse

    def about(self, case: Case) -> str:
        return "fake 1"

    def start(self, request: StartRequest) -> FakeEngine:
        self.events.append("start")
        self.started_s.append(self.clock.monotonic_ns() / S)
        if self.start_error:
            raise self.start_error
        log_path = request.work_dir / "engine.log"
        log_path.write_text("hello from the engine\n", encoding="utf-8")
        engine = FakeEngine(case=request.case, events=self.events, pids=self.pids, log_path=str(log_path))
        self.engines.append(engine)
        return engine


@dataclass
class FakeModels:
    events: list[str]
    error: BenchError | None = None
    unknown: str | None = None

    def check(self, name: str, source: str | None, *, precision: str | None = None, formats: Sequence[str] = ()) -> None:
        if name == self.unknown:
            raise UsageError(f"unknown model {name!r}")

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
        self.events.append(f"fetch {name}")
        if self.error:
            raise self.error
        return LocalModel(name=name, source="path:x", path="x", format="gguf", size_b=1, weights_sha256="00")


@dataclass
class FakeLoad:
    """Advances the clock over warm-up and window, and hands back a steady log. `hook` may break things on the way."""

    clock: FakeClock
    events: list[str]
    hook: Callable[[LoadPlan], None] = lambda plan: None
    glances: tuple[tuple[Literal["warmup", "measure", "drain"], float], ...] = (("warmup", 1.0), ("measure", 1.0), ("drain", 1.0))

    def run(
        self, plan: LoadPlan, on_progress: Callable[[LoadProgress], None], should_stop: Callable[[], str | None]
    ) -> LoadResult:
        self.events.append(f"load {plan.case.name}")
        self.clock.advance(plan.case.warmup_s)
        t0_ns = self.clock.monotonic_ns()
        self.hook(plan)
        for phase, elapsed_s in self.glances:
            on_progress(LoadProgress(phase=phase, elapsed_s=elapsed_s, in_flight=2, completed=1, failed=0, chunks_per_s=8.0))
        stopped = should_stop()
        self.clock.advance(plan.case.duration_s)
        window = Window(t0_ns=t0_ns, t1_ns=self.clock.monotonic_ns())
        return LoadResult(
            log=a_log(t0_ns=t0_ns, seconds=plan.case.duration_s),
            window=None if stopped else window,
            health=HEALTH,
            dataset_hash="d",
            interrupted=stopped is not None,
        )


@dataclass
class FakeChecker:
    """Says of every engine's answers what it is told to say."""

    events: list[str]
    found: OutputCheck = field(default_factory=lambda: OutputCheck(reason="not compared"))

    def check(self, engine: Engine, case: Case, model: LocalModel | None) -> OutputCheck:
        self.events.append("check answers")
        return self.found


class FakeStream:
    """Constant power from each device at the asked period, on the fake clock."""

    def __init__(self, clock: FakeClock, devices: Sequence[DeviceInfo], period_s: float, events: list[str]) -> None:
        self._clock, self._devices, self._period_ns, self._events = clock, tuple(devices), round(period_s * S), events
        self._next_ns = self.settled_ns = clock.monotonic_ns()
        self.closed = False
        self.watched: tuple[int, ...] = ()
        self.memory_b: dict[str, int] = {}
        self.end: str | None = None
        self.tells_memory = True
        self.keeps_memory_until_ns = 0
        self.others: dict[str, float] = {}

    def discovery(self) -> Discovery:
        return Discovery(devices=self._devices)

    def watch(self, pids: Iterable[int]) -> None:
        self.watched = tuple(pids)
        self.memory_b = {device.uid: 1 << 30 for device in self._devices if device.index == 0}

    def drain(self) -> list[Reading]:
        readings = []
        while self._next_ns <= self._clock.monotonic_ns():
            at_ns = self._next_ns
            readings += [
                Reading(
                    uid=device.uid,
                    before_ns=at_ns,
                    after_ns=at_ns + 1000,
                    power_w=100.0,
                    memory_used_b=self._memory_b(device.uid, at_ns) if self.tells_memory else None,
                    foreign_processes=self.others.get(device.uid),
                )
                for device in self._devices
            ]
            self._next_ns += self._period_ns
        return readings

    def _memory_b(self, uid: str, at_ns: int) -> int:
        """What the engine holds, until it has gone and its driver has cleaned up."""
        last = next((event for event in reversed(self._events) if event in ("engine up", "engine down")), "")
        freed = last == "engine down" and at_ns >= self.keeps_memory_until_ns
        return 1 << 20 if freed else self.memory_b.get(uid, 1 << 20)

    def settled(self) -> bool:
        return self._clock.monotonic_ns() >= self.settled_ns

    def ended(self) -> str | None:
        return self.end

    def stop(self) -> None:
        """Fall silent: no reading after what was handed out."""
        self._next_ns = 1 << 62

    def close(self) -> None:
        self.closed = True
        self._events.append("probe closed")


@dataclass
class FakeProbes:
    clock: FakeClock
    events: list[str]
    devices: tuple[DeviceInfo, ...] = ()
    tells_memory: bool = True
    settles_s: float = 0.0
    frees_memory_at_s: float = 0.0
    others: dict[str, float] = field(default_factory=dict)
    """Processes of others on a device, by uid; on one that is not here they can't be told."""
    streams: list[FakeStream] = field(default_factory=list)

    def names(self) -> tuple[str, ...]:
        return ("fake",)

    def open(self, name: str, period_s: float) -> FakeStream:
        stream = FakeStream(self.clock, self.devices, period_s, self.events)
        stream.tells_memory = self.tells_memory
        stream.others = self.others
        stream.settled_ns += round(self.settles_s * S)
        stream.keeps_memory_until_ns = round(self.frees_memory_at_s * S)
        self.streams.append(stream)
        return stream


def a_board(index: int) -> DeviceInfo:
    """An accelerator that tells its power."""
    return DeviceInfo(
        uid=f"GPU-{index}",
        probe="fake",
        vendor="fake",
        name="Fake 1000",
        index=index,
        scope="accelerator",
        power=SensorInfo(api="fake", unit="W"),
    )


@dataclass
class SavedTrial:
    record: TrialRecord
    log: EventLog | None
    telemetry: Telemetry | None
    folder: Path


@dataclass
class FakeOpenTrial:
    store: FakeStore
    folder: Path

    def describe(self, draft: TrialRecord) -> None:
        self.store.drafts.append(draft)

    def save(self, record: TrialRecord, log: EventLog | None, telemetry: Telemetry | None) -> Path:
        if self.store.error:
            raise self.store.error
        self.store.saved.append(SavedTrial(record, log, telemetry, self.folder))
        return self.folder


@dataclass
class FakeStore:
    root: Path
    error: BenchError | None = None
    drafts: list[TrialRecord] = field(default_factory=list)
    saved: list[SavedTrial] = field(default_factory=list)

    def begin(self, key: TrialKey, case: Case) -> FakeOpenTrial:
        folder = self.root / key.trial_id
        folder.mkdir(parents=True)
        return FakeOpenTrial(self, folder)


@dataclass
class FakeObserver:
    phases: list[str] = field(default_factory=list)
    done: list[TrialRecord] = field(default_factory=list)
    left_s: list[float | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def phase(self, name: str, detail: str = "") -> None:
        self.phases.append(name)

    def bytes_done(self, what: str, done: int, total: int | None) -> None: ...

    def load(self, progress: LoadProgress, power_w: float | None, seconds_left: float | None) -> None:
        self.left_s.append(seconds_left)

    def trial_done(self, record: TrialRecord) -> None:
        self.done.append(record)

    def note(self, message: str) -> None:
        self.notes.append(message)


def place(devices: Sequence[DeviceInfo], wanted: Sequence[str]) -> Placement:
    """Devices by uid."""
    known = {device.uid for device in devices}
    for uid in wanted:
        if uid not in known:
            raise DeviceMissing(f"no device {uid!r}")
    return Placement(device_uids=tuple(wanted))


class Rig:
    """A session with fakes all round, which can be run several times."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.events: list[str] = []
        self.runner = FakeRunner(self.events, clock=self.clock)
        self.models = FakeModels(self.events)
        self.load = FakeLoad(self.clock, self.events)
        self.probes = FakeProbes(self.clock, self.events)
        self.outputs = FakeChecker(self.events)
        self.store = FakeStore(root / "shards")
        self.observer = FakeObserver()
        self.interrupts = Interrupts()
        self.share_devices = False
        self.root = root
        self._runs = 0

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One that hears interrupts while it is there."""
        self._runs += 1
        session = Session(
            run_id="r",
            runners=lambda _: self.runner,
            models=self.models,
            load=self.load,
            outputs=self.outputs,
            probes=self.probes,
            store=self.store,
            observer=self.observer,
            interrupts=self.interrupts,
            place=place,
            work_root=self.root / f"work-{self._runs}",
            share_devices=self.share_devices,
            clock=self.clock,
        )
        with self.interrupts:
            yield session
        self.interrupts = Interrupts()

    def run(self, *cases: Case, planners: Sequence[Planner] = (), history: Sequence[TrialRecord] = ()) -> RunOutcome:
        """What comes of these cases."""
        with self.session() as session:
            return session.run(cases, planners, history)
