"""The trial loop: prepare, idle, start, then warm up, measure, drain and save each trial. Start reading here."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.clock import SYSTEM, Clock
from bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, BenchError, EngineDied, InterruptedRun, StoreError, UsageError
from bench.identity import case_id
from bench.ports import (
    Engine,
    LoadGenerator,
    ModelSource,
    Observer,
    OutputChecker,
    PlannedTrial,
    Planner,
    ProbeHost,
    Runner,
    StartRequest,
    TrialStore,
)
from bench.records import (
    Case,
    DeviceInfo,
    HostInfo,
    LocalModel,
    OutputCheck,
    Placement,
    Status,
    TrialKey,
    TrialRecord,
    Window,
)
from bench.session.boards import Place, accelerators, measured_domains, refuse_in_use
from bench.session.groups import EngineGroup, engine_groups
from bench.session.host import host_info
from bench.session.interrupts import Interrupts
from bench.session.telemetry import Baselines, Recorder
from bench.session.trial import LOG_NAME, TrialSetting, failed_trial, moved_log, run_trial, trial_key
from bench.units import format_bytes

KEPT = (Status.VALID, Status.INVALID)
"""What a resumed run does not measure again. An invalid trial was measured to its end: to repeat it until it is valid would be
to choose among results.
"""


_LOOK_S = 1.0
"""Long enough for a few full readings of every board."""


def new_run_id() -> str:
    """`20261130T170102Z-3fa9c1`: sorts by time, unique across hosts."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"


@dataclass(slots=True)
class RunOutcome:
    """What a run gave: finished trials, and the exit code that sums them up. `lost` are those of an earlier invocation that
    are measured again.
    """

    run_id: str
    records: list[TrialRecord] = field(default_factory=list)
    lost: list[TrialRecord] = field(default_factory=list)
    errors: list[BenchError] = field(default_factory=list)
    devices: tuple[DeviceInfo, ...] = ()
    """What the probes found, as soon as they have looked."""
    interrupted: str | None = None

    @property
    def exit_code(self) -> int:
        """130 interrupted; 4 something is missing; 1 a trial failed or is invalid; else 0."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        if self.errors:
            return max(error.exit_code for error in self.errors)
        return EXIT_OK if all(r.status is Status.VALID for r in self.records) else EXIT_FAILED

    def key_of(self, trial: PlannedTrial) -> TrialKey:
        """The ids of a trial: one that was lost gets the next attempt's."""
        its_case = case_id(trial.case)
        same = (its_case, trial.repeat, trial.role)
        earlier = [r.key.attempt for r in self.lost if (r.key.case_id, r.key.repeat, r.key.role) == same]
        return trial_key(self.run_id, trial.case, trial.repeat, trial.role, attempt=max(earlier, default=0) + 1)


@dataclass(slots=True, kw_only=True)
class _Todo:
    """An engine group under way."""

    group: EngineGroup
    runner: Runner
    outcome: RunOutcome
    model: LocalModel | None = None

    @property
    def trials(self) -> list[PlannedTrial]:
        """What is left of it, as known by now."""
        return self.group.remaining(self.outcome.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Runs cases through ports. Knows no engine, no vendor, no file format."""

    run_id: str
    runners: Callable[[str], Runner]
    models: ModelSource
    load: LoadGenerator
    outputs: OutputChecker
    probes: ProbeHost
    store: TrialStore
    observer: Observer
    interrupts: Interrupts
    place: Place
    work_root: Path
    clock: Clock = SYSTEM
    period_s: float = 0.1
    start_timeout_s: float = 600.0
    share_devices: bool = False
    """Whether boards are measured on which others compute."""

    def run(self, cases: Sequence[Case], planners: Sequence[Planner] = (), history: Sequence[TrialRecord] = ()) -> RunOutcome:
        """Every repeat of every case, and what `planners` choose. Trials that fail are kept as failed; what was finished before
        an interruption stays. `history`: this run's trials of an earlier invocation; those in `KEPT` are not measured again.

        Raises: UsageError before anything is started.
        """
        kept, lost = [r for r in history if r.status in KEPT], [r for r in history if r.status not in KEPT]
        outcome = RunOutcome(run_id=self.run_id, records=kept, lost=lost)
        groups = [group for group in engine_groups(cases, planners) if group.remaining(kept)]
        several = len(cases) + len(planners) > 1
        refused = [self._refusal(group, name_case=several) for group in groups]
        try:
            for number, (group, error) in enumerate(zip(groups, refused, strict=True)):
                if error is None:
                    self._run_group(group, number, outcome)
                else:
                    self._fail(group.remaining(outcome.records), error, outcome)
        except InterruptedRun as stop:
            outcome.interrupted = str(stop)
        except StoreError as error:  # nothing more can be kept: say so, with what is safe already
            outcome.errors.append(error)
        return outcome

    def _refusal(self, group: EngineGroup, *, name_case: bool) -> BenchError | None:
        """Why a group can't run here, asked before anything is downloaded. Raises: UsageError, with its case if asked to."""
        runner = self.runners(group.first.engine)
        case = group.first
        try:
            if runner.reads:
                self.models.check(case.model, case.model_source, precision=case.precision, formats=runner.reads)
            for case in group.cases:
                runner.check(case)
        except UsageError as error:
            raise (UsageError(f"{case.name} of {case.suite}: {error}", hint=error.hint) if name_case else error) from error
        except BenchError as error:
            return error
        return None

    def _run_group(self, group: EngineGroup, number: int, outcome: RunOutcome) -> None:
        """One engine start (and restarts, should it die) for all trials of a group."""
        todo = _Todo(group=group, runner=self.runners(group.first.engine), outcome=outcome)
        deaths = 0
        try:
            todo.model = self._model(todo.runner, group.first)
            while todo.trials and deaths < group.patience(outcome.records):
                before = len(outcome.records)
                died = self._serve(todo, self.work_root / f"engine-{number}-{before}")
                survived = len(outcome.records) - before - 1 if died else 0
                deaths = 1 if survived else deaths + 1
            if todo.trials:
                raise EngineDied(f"not tried: {group.first.engine} died {deaths} times in a row")
        except (InterruptedRun, StoreError, UsageError):
            raise
        except BenchError as error:
            self._fail(todo.trials, error, outcome)

    def _model(self, runner: Runner, case: Case) -> LocalModel | None:
        if not runner.reads:
            return None
        self.observer.phase("pull", case.model)
        return self.models.fetch(
            case.model,
            case.model_source,
            self.observer.bytes_done,
            precision=case.precision,
            formats=runner.reads,
            python=None if case.container else case.engine_python,  # one in an image is not here
        )

    def _serve(self, todo: _Todo, work_dir: Path) -> bool:
        """Start the engine and measure until no trial is left or the engine dies; True if it died."""
        first = todo.group.first
        attached = first.base_url is not None
        with ExitStack() as stack:
            telemetry = stack.enter_context(Recorder(self.probes, period_s=self.period_s, clock=self.clock))
            todo.outcome.devices = telemetry.discovery().devices
            placement = self.place(todo.outcome.devices, first.devices)
            telemetry.settle()
            if not attached:  # what is attached to may itself be what computes there
                self._refuse_in_use([d for d in todo.outcome.devices if d.uid in placement.device_uids], telemetry)
            idle = None if attached else self._rest(telemetry, "before start", first)
            if not attached:
                stack.push(self._memory_check(telemetry))
            engine = stack.enter_context(self._start(todo, placement, work_dir))
            telemetry.watch(engine.handle.pids)
            resident = None if attached else self._rest(telemetry, "model resident", first)
            baselines = telemetry.baselines(idle, resident)
            check = self._check(engine, todo)
            setting = self._setting(todo, engine, telemetry, placement, baselines=baselines, check=check)
            if not first.devices:  # which boards it uses is known only now
                self._refuse_in_use(setting.devices, telemetry)
            return self._trials(setting, engine, todo)

    def _refuse_in_use(self, devices: Sequence[DeviceInfo], telemetry: Recorder) -> None:
        if not self.share_devices:
            refuse_in_use(devices, telemetry.foreign())

    def _start(self, todo: _Todo, placement: Placement, work_dir: Path) -> Engine:
        first = todo.group.first
        self.observer.phase("attach" if first.base_url else "start", first.base_url or first.engine)
        try:
            work_dir.mkdir(parents=True)
        except OSError as error:
            hint = "choose another folder with --results DIR or BENCH_RESULTS"
            raise StoreError(f"can't write in {work_dir.parent.parent}: {error.strerror}", hint=hint) from error
        return todo.runner.start(
            StartRequest(
                cases=todo.group.cases,
                model=todo.model,
                placement=placement,
                work_dir=work_dir,
                start_timeout_s=self.start_timeout_s,
                run_id=self.run_id,
            )
        )

    def _check(self, engine: Engine, todo: _Todo) -> OutputCheck:
        """Whether its answers are right: before its speed is measured, and after its idle power."""
        self.observer.phase("check")
        return self.outputs.check(engine, todo.group.first, todo.model)

    def _memory_check(self, telemetry: Recorder) -> Callable[[type[BaseException] | None, object, object], None]:
        """Called once the engine has gone: waits for its boards' memory to be free again, and tells what is not. A person who
        interrupted does not wait.
        """
        boards = {device.uid: device.name for device in accelerators(telemetry.discovery().devices)}
        before = {uid: held_b for uid, held_b in telemetry.memory_b().items() if uid in boards}

        def check(kind: type[BaseException] | None, *_: object) -> None:
            if before and (kind is None or not issubclass(kind, InterruptedRun)):
                for uid, held_b in telemetry.await_free(before).items():
                    more = f"{boards[uid]} ({uid}) holds {format_bytes(held_b)} more than before the engine was started"
                    self.observer.note(f"{more}: what comes next may lack memory or share the board")

        return check

    def _trials(self, setting: TrialSetting, engine: Engine, todo: _Todo) -> bool:
        while left := todo.trials:
            trial = left[0]
            self.observer.phase("trial", f"{trial.case.name}, repeat {trial.repeat} of {trial.case.repeats}")
            record = run_trial(setting, engine, trial, todo.outcome.key_of(trial))
            todo.outcome.records.append(record)
            self.observer.trial_done(record)
            if record.status is Status.INTERRUPTED:
                raise InterruptedRun(record.error or "interrupted")
            self.interrupts.check()
            if engine.failure() is not None:
                return True
        return False

    def _rest(self, telemetry: Recorder, detail: str, case: Case) -> Window | None:
        """An idle window, where some device can tell its power; a second is enough where they tell their memory alone. Boards
        that nobody named get it even where no idle is asked for: their memory tells which of them the engine uses.
        """
        devices = telemetry.discovery().devices
        boards = accelerators(devices)
        has_power = any(d.power or d.energy for d in devices)
        seconds = case.idle_s if has_power else min(case.idle_s, _LOOK_S)
        if boards and not case.devices:
            seconds = max(seconds, _LOOK_S)
        if seconds <= 0 or not (has_power or boards or any(d.scope == "process" for d in devices)):
            return None
        self.observer.phase("idle", detail)
        return telemetry.rest(seconds)

    def _setting(
        self,
        todo: _Todo,
        engine: Engine,
        telemetry: Recorder,
        placement: Placement,
        *,
        baselines: Baselines,
        check: OutputCheck,
    ) -> TrialSetting:
        devices = telemetry.discovery().devices  # again: `watch` has added the engine's process tree
        return TrialSetting(
            run_id=self.run_id,
            host=_host(devices),
            model=todo.model,
            devices=measured_domains(devices, placement, engine.handle, baselines),
            telemetry=telemetry,
            baselines=baselines,
            output_check=check,
            load=self.load,
            store=self.store,
            observer=self.observer,
            interrupts=self.interrupts,
            clock=self.clock,
        )

    def _fail(self, trials: Sequence[PlannedTrial], error: BenchError, outcome: RunOutcome) -> None:
        outcome.errors.append(error)
        keys = {key.trial_id: (key, trial) for trial in trials for key in [outcome.key_of(trial)]}  # two may want the same one
        places: list[Path] = []
        for key, trial in keys.values():
            record, folder = failed_trial(key=key, store=self.store, host=_host(outcome.devices), trial=trial, error=error)
            outcome.records.append(record)
            places.append(folder)
        if places:
            count = f"{len(places)} trial{'s' * (len(places) > 1)}"
            self.observer.note(f"{count} of {trials[0].case.engine} could not begin: the reason is told at the end")
            error.hint = moved_log(error, str(places[0] / LOG_NAME))


def _host(devices: Sequence[DeviceInfo]) -> HostInfo:
    return host_info(device.uid for device in accelerators(devices))
