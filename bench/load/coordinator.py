"""One trial's load from the harness's side: checks the target, starts workers, decides the window, gathers the log."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from typing import Literal, TypeVar

import numpy as np

from bench.clock import SYSTEM, Clock
from bench.errors import LoadError, TargetError
from bench.load.arrivals import peak_rate
from bench.load.columns import remove_files
from bench.load.crew import Crew
from bench.load.data import write_book
from bench.load.gather import read_column, read_log
from bench.load.health import GAUGES, WorkerGauges, judge_client
from bench.load.last_words import await_done
from bench.load.messages import Arm, Build, Go, Halt, Job, Probe, Probed, Progress, Ready, Refused
from bench.load.plans import check_plan, settle
from bench.load.prompts import synthetic_hash
from bench.ports import LoadPlan
from bench.records import MISSING, Case, ClientHealth, EventLog, LoadProgress, LoadResult, Outcome, Window
from bench.units import NS_PER_S

OnProgress = Callable[[LoadProgress], None]
ShouldStop = Callable[[], str | None]

_Word = TypeVar("_Word")

_STREAMS_PER_WORKER = 256
_REQUESTS_PER_S_PER_WORKER = 1000
_LEAD_NS = 30_000_000
"""How far ahead moments are set, so that every worker hears of them in time."""
_POLL_S = 0.1
_GLANCE_NS = 240_000_000


def worker_count(case: Case, cores: int) -> int:
    """Worker processes for a case: one per 256 streams or 1,000 requests/s, leaving a core to the engine; never more than may
    have a request in flight.
    """
    load = case.load
    streams = load.batch_size if load.kind == "closed" else load.max_concurrency
    most = min(most for most in (streams, load.max_concurrency, load.num_prompts, sys.maxsize) if most)
    if case.client_workers is not None:
        return min(case.client_workers, most)
    by_streams = math.ceil((streams or 1) / _STREAMS_PER_WORKER)
    by_rate = math.ceil((peak_rate(load) or 0) / _REQUESTS_PER_S_PER_WORKER) if load.kind == "open" else 1
    return max(1, min(max(by_streams, by_rate), cores - 1, most))


class WireLoad:
    """The load generator of the lab (`bench.ports.LoadGenerator`). `loop`: auto (uvloop where installed), uvloop or asyncio."""

    def __init__(self, *, loop: Literal["auto", "uvloop", "asyncio"] = "auto", clock: Clock = SYSTEM) -> None:
        self._loop = loop
        self._clock = clock

    def run(self, plan: LoadPlan, on_progress: OnProgress, should_stop: ShouldStop) -> LoadResult:
        """Check the target, warm up, measure, drain, parse.

        Raises: TargetError (refused, 401, 404 and the like, before any load), UsageError (a load that can't be made),
        LoadError (a worker died, or its disk is full; what it saw is left in `spill_dir` for `recover`).
        """
        check_plan(plan)
        plan = settle(plan)
        case = plan.case
        try:
            plan.spill_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LoadError(f"events can't be kept in {plan.spill_dir.name}: {error.strerror}") from error
        with Crew(worker_count(case, os.cpu_count() or 1), self._loop) as crew:
            return _Trial(plan, crew, self._clock, on_progress, should_stop).run()


class _Trial:
    """The phases of one load, in order."""

    def __init__(self, plan: LoadPlan, crew: Crew, clock: Clock, on_progress: OnProgress, should_stop: ShouldStop) -> None:
        self._plan, self._crew, self._clock = plan, crew, clock
        self._case = plan.case
        self._on_progress, self._should_stop = on_progress, should_stop
        self._counted = plan.case.load.num_prompts is not None
        self._seen: dict[int, Progress] = {}
        self._start_ns = 0
        self._window: Window | None = None
        self._stop_reason: str | None = None
        self._last_glance = (0, 0)
        self._polled_ns = 0

    def run(self) -> LoadResult:
        workers = len(self._crew)
        for worker in range(workers):
            self._crew.tell(worker, self._job(worker, workers))
        self._crew.tell(0, Probe())
        probed = self._await_all(Probed, {0})
        if probed is None:
            return self._nothing()
        calibration = next(iter(probed.values())).calibration
        if self._case.dataset != "synthetic":
            write_book(self._plan, calibration)
        self._crew.tell_all(Build(calibration))
        if self._await_all(Ready, set(range(workers))) is None:
            return self._nothing()
        self._start_ns = self._clock.monotonic_ns() + _LEAD_NS
        self._crew.tell_all(Go(self._start_ns))
        if self._case.load.kind == "open" and not self._counted:
            self._arm(self._start_ns + round(self._case.warmup_s * NS_PER_S))
        while not self._over():
            self._turn()
        ended_ns = self._clock.monotonic_ns()
        self._crew.tell_all(Halt())
        return self._gather(ended_ns)

    def _job(self, worker: int, workers: int) -> Job:
        plan = self._plan
        return Job(
            case=plan.case, target=plan.target, salt=plan.salt, spill_dir=str(plan.spill_dir), worker=worker, workers=workers
        )  # fmt: skip

    def _await_all(self, kind: type[_Word], workers: set[int]) -> dict[int, _Word] | None:
        """Wait until each of `workers` has said a word of `kind`; None if we are to stop first. Raises: TargetError."""
        heard: dict[int, _Word] = {}
        while heard.keys() < workers:
            for worker, message in self._crew.hear(_POLL_S):
                if isinstance(message, Refused):
                    raise TargetError(message.message, hint=message.hint)
                if isinstance(message, kind):
                    heard[worker] = message
            if self._asked_to_stop():
                return None
        return heard

    def _turn(self) -> None:
        """Hear the workers, tell the person."""
        for worker, message in self._crew.hear(_POLL_S):
            if isinstance(message, Progress):
                self._seen[worker] = message
        if self._window is None and not self._counted and self._warm():
            self._arm(self._clock.monotonic_ns() + _LEAD_NS)
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._last_glance[0] >= _GLANCE_NS and self._seen:
            self._glance(now_ns)

    def _over(self) -> bool:
        if self._asked_to_stop():
            return True
        everyone = len(self._seen) == len(self._crew)
        settled = everyone and all(seen.settled for seen in self._seen.values())
        now_ns = self._clock.monotonic_ns()
        if self._window is not None:
            return now_ns >= self._window.t1_ns and (settled or now_ns >= self._window.t1_ns + self._case.grace_s * NS_PER_S)
        return settled if self._counted else self._hopeless(now_ns)

    def _hopeless(self, now_ns: int) -> bool:
        """Warm-up has had its time and no slot ever saw a token."""
        if len(self._seen) < len(self._crew) or now_ns < self._start_ns + self._case.warmup_s * NS_PER_S:
            return False
        none_warm = sum(seen.warm for seen in self._seen.values()) == 0
        all_barren = all(seen.barren >= seen.slots for seen in self._seen.values())
        return none_warm and (all_barren or now_ns >= self._deadline_ns())

    def _deadline_ns(self) -> int:
        """When the warm-up no longer waits for slots without a first token."""
        return self._start_ns + round((self._case.warmup_s + self._case.request_timeout_s) * NS_PER_S)

    def _warm(self) -> bool:
        """Closed loop: the warm-up time is over and every slot has had its first token, or has had its chances."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._start_ns + self._case.warmup_s * NS_PER_S or len(self._seen) < len(self._crew):
            return False
        if sum(seen.warm for seen in self._seen.values()) == 0:
            return False
        return all(seen.warm + seen.barren >= seen.slots for seen in self._seen.values()) or now_ns >= self._deadline_ns()

    def _arm(self, t0_ns: int) -> None:
        self._window = Window(t0_ns=t0_ns, t1_ns=t0_ns + round(self._case.duration_s * NS_PER_S))
        self._crew.tell_all(Arm(self._window.t0_ns, self._window.t1_ns))

    def _asked_to_stop(self) -> bool:
        """Ask at most ten times a second: the question may be dear."""
        now_ns = self._clock.monotonic_ns()
        if self._stop_reason is None and now_ns - self._polled_ns >= _POLL_S * NS_PER_S:
            self._polled_ns = now_ns
            self._stop_reason = self._should_stop()
        return self._stop_reason is not None

    def _glance(self, now_ns: int) -> None:
        seen = self._seen.values()
        reads = sum(s.reads for s in seen)
        last_ns, last_reads = self._last_glance
        since_ns = now_ns - (last_ns or self._start_ns)
        self._last_glance = (now_ns, reads)
        self._on_progress(
            LoadProgress(
                phase=self._phase(now_ns),
                elapsed_s=max(0.0, (now_ns - self._start_ns) / NS_PER_S),
                in_flight=sum(s.in_flight for s in seen),
                completed=sum(s.completed for s in seen),
                failed=sum(s.failed for s in seen),
                chunks_per_s=max(0.0, (reads - last_reads) * NS_PER_S / since_ns) if since_ns > 0 else 0.0,
            )
        )

    def _phase(self, now_ns: int) -> Literal["warmup", "measure", "drain"]:
        if self._counted:
            return "measure"
        if self._window is None or now_ns < self._window.t0_ns:
            return "warmup"
        return "measure" if now_ns < self._window.t1_ns else "drain"

    def _gather(self, ended_ns: int) -> LoadResult:
        """Wait until the workers have parsed, and put their columns together."""
        workers = list(range(len(self._crew)))
        done = await_done(self._crew, self._plan.spill_dir, self._clock, self._should_stop, stopped=self._stop_reason is not None)
        folder = self._plan.spill_dir
        log = read_log(folder, workers)
        window = whole_job_window(log) if self._counted else self._cut_window(ended_ns)
        gauges = [WorkerGauges(**{name: read_column(folder, w, name) for name in GAUGES}) for w in workers]
        load = self._case.load
        asked = load.batch_size if load.kind == "closed" else load.max_concurrency
        health = judge_client(log, window, gauges, asked=asked, loop=done[0].loop)
        remove_files(folder)
        return self._result(log, window, health, recycled=any(d.recycled for d in done.values()))

    def _cut_window(self, ended_ns: int) -> Window | None:
        """The window as far as it came: one that was stopped early ends where it was stopped."""
        window = self._window
        if window is None or ended_ns <= window.t0_ns:
            return None
        return Window(t0_ns=window.t0_ns, t1_ns=min(window.t1_ns, ended_ns))

    def _nothing(self) -> LoadResult:
        """Stopped before any load was sent."""
        health = ClientHealth(
            workers=len(self._crew),
            send_lag_p50_ms=None,
            send_lag_p99_ms=None,
            loop_lag_p99_ms=None,
            coalesced_read_share=None,
            cpu_share=None,
            in_flight_asked=self._case.load.batch_size,
            in_flight_reached=0,
            loop="",
        )
        remove_files(self._plan.spill_dir)
        return self._result(read_log(self._plan.spill_dir, []), None, health, recycled=False)

    def _result(self, log: EventLog, window: Window | None, health: ClientHealth, *, recycled: bool) -> LoadResult:
        return LoadResult(
            log=log,
            window=window,
            health=health,
            dataset_hash=self._case.data.sha256 or synthetic_hash(self._case),
            interrupted=self._stop_reason is not None,
            prompts_recycled=recycled,
        )


def whole_job_window(log: EventLog) -> Window | None:
    """First sent to last content, of a count-bound job; None where no content came. A reply that was not streamed is there
    when it is complete.
    """
    streamed = np.bincount(log.chunk_request, minlength=len(log)) > 0
    arrived_ns = np.concatenate((log.chunk_ns, log.closed_ns[(log.outcome == Outcome.OK) & ~streamed]))
    if len(arrived_ns) == 0:
        return None
    # half-open: one more nanosecond takes the last content in
    return Window(t0_ns=int(log.sent_ns[log.sent_ns != MISSING].min()), t1_ns=int(arrived_ns.max()) + 1, kind="whole_job")
