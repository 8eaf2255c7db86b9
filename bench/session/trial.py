"""One trial: load, readings, arithmetic, shard. Whatever happens, a shard is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench import __version__, clock, identity, timing
from bench.errors import BenchError, EngineDied, InterruptedRun
from bench.ports import Engine, LoadGenerator, LoadPlan, Observer, PlannedTrial, TrialStore
from bench.records import (
    Case,
    ClockAnchor,
    DeviceInfo,
    EngineSamples,
    HostInfo,
    LoadProgress,
    LoadResult,
    LocalModel,
    Measured,
    OutputCheck,
    Status,
    Telemetry,
    TrialKey,
    TrialRecord,
)
from bench.session.boards import accelerators
from bench.session.engine_watch import EngineWatch
from bench.session.interrupts import Interrupts
from bench.session.telemetry import Baselines, Recorder

LOG_NAME = "engine.log"
_LOG_TAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetting:
    """What every trial of one engine start shares."""

    run_id: str
    host: HostInfo
    model: LocalModel | None
    devices: tuple[DeviceInfo, ...]
    telemetry: Recorder
    baselines: Baselines
    output_check: OutputCheck
    load: LoadGenerator
    store: TrialStore
    observer: Observer
    interrupts: Interrupts
    clock: clock.Clock


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """A trial under way; filled as it goes, so that a failure at any point can be saved with all before it."""

    setting: TrialSetting
    engine: Engine
    trial: PlannedTrial
    key: TrialKey
    folder: Path
    started: ClockAnchor
    status: Status | None = None
    error: str | None = None
    result: LoadResult | None = None
    measured: Measured | None = None
    telemetry: Telemetry | None = None
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    samples: EngineSamples = field(default_factory=EngineSamples)

    @property
    def case(self) -> Case:
        return self.trial.case


def trial_key(run_id: str, case: Case, repeat: int, role: str, attempt: int) -> TrialKey:
    """The ids of a trial, known before it starts."""
    case_id = identity.case_id(case)
    return TrialKey(
        run_id=run_id,
        trial_id=identity.trial_id(run_id, case_id, repeat, role, attempt),
        case_id=case_id,
        workload_id=identity.workload_id(case),
        repeat=repeat,
        role=role,
        attempt=attempt,
    )


def run_trial(setting: TrialSetting, engine: Engine, planned: PlannedTrial, key: TrialKey) -> TrialRecord:
    """Measure one repeat and save it. A failing engine or client gives a failed record, not an exception.

    Raises: StoreError when it can't be saved.
    """
    with setting.interrupts.deferred(hard=False):  # at any moment in here a signal waits: what was measured is saved first
        started = clock.anchor(setting.clock)
        trial = setting.store.begin(key, planned.case)
        attempt = _Attempt(setting=setting, engine=engine, trial=planned, key=key, folder=trial.folder, started=started)
        trial.describe(_record(attempt))
        _try(attempt)
        setting.observer.phase("save")
        record = _record(attempt)
        _keep_log(engine.handle.log_path, trial.folder)
        trial.save(record, attempt.result.log if attempt.result else None, attempt.telemetry)
        return record


def _try(attempt: _Attempt) -> None:
    """Measure; what goes wrong becomes the trial's status and error."""
    setting = attempt.setting
    setting.telemetry.spill_to(attempt.folder / "telemetry.jsonl")
    try:
        with setting.interrupts.deferred():
            _measure(attempt)
    except InterruptedRun as error:
        attempt.status, attempt.error = Status.INTERRUPTED, str(error)
    except BenchError as error:
        attempt.status, attempt.error = Status.FAILED, told(error)
    finally:
        setting.telemetry.spill_to(None)


def failed_trial(
    *, key: TrialKey, store: TrialStore, host: HostInfo, trial: PlannedTrial, error: BenchError
) -> tuple[TrialRecord, Path]:
    """The shard of a trial whose engine, model or device could not be had, and its folder: it is in the table, with the
    reason, and has the log of an engine that did not start.
    """
    moment = clock.anchor()
    record = TrialRecord(
        bench_version=__version__,
        key=key,
        status=Status.FAILED,
        error=told(error),
        case=trial.case,
        host=host,
        started=moment,
        ended=moment,
        extra=trial.extra,
    )
    open_trial = store.begin(key, trial.case)
    _keep_log(getattr(error, "log_path", None), open_trial.folder)
    return record, open_trial.save(record, None, None)


def told(error: BenchError) -> str:
    """An error as it is kept: message and next step in the first line, which is what a table shows; the engine's last words."""
    first, *rest = str(error).splitlines() or [type(error).__name__]
    hint = moved_log(error, f"{LOG_NAME} in this trial's folder")
    tail = getattr(error, "log_tail", "")
    parts = [f"{first} (next: {' '.join(hint.split())})" if hint else first, *rest, tail and f"engine log:\n{tail}"]
    return "\n".join(part for part in parts if part)


def moved_log(error: BenchError, place: str) -> str | None:
    """The next step, with the engine's log where it is kept: its own folder goes when the run ends."""
    log_path = getattr(error, "log_path", None)
    return error.hint.replace(log_path, place) if error.hint and log_path else error.hint


def _measure(attempt: _Attempt) -> None:
    """Drive the load and work out the numbers. Raises: EngineDied, InterruptedRun, TargetError, LoadError."""
    setting, engine = attempt.setting, attempt.engine
    attempt.before = engine.server_metrics()
    with EngineWatch(engine, setting.clock, attempt.before) as watch:
        try:
            result = attempt.result = _drive(attempt)
        finally:
            attempt.samples = watch.samples()
    _refuse_dead(engine)
    attempt.after = engine.server_metrics(result.window)
    assert attempt.telemetry is not None
    attempt.measured = timing.measure(
        attempt.case,
        result,
        attempt.telemetry,
        attempt.before,
        attempt.after,
        engine=engine.handle,
        model=setting.model,
        samples=attempt.samples,
        attached=not engine.handle.pids,
        output_check=setting.output_check,
    )
    setting.interrupts.check()


def _drive(attempt: _Attempt) -> LoadResult:
    """Run the load; the readings are kept however it ends. Raises: EngineDied, TargetError, LoadError, InterruptedRun."""
    setting, engine, key = attempt.setting, attempt.engine, attempt.key
    since_ns = setting.clock.monotonic_ns()
    setting.telemetry.forget(since_ns)
    again = f":{key.attempt}" if key.attempt > 1 else ""  # an endpoint may have the first attempt's prompts in its cache
    salt = f"{key.workload_id}:{key.repeat}:{key.run_id}{again}"
    plan = LoadPlan(case=attempt.case, target=engine.target, salt=salt, spill_dir=attempt.folder)
    try:
        result = setting.load.run(plan, _progress(attempt), lambda: setting.interrupts.reason or engine.failure())
    except InterruptedRun:
        raise
    except BenchError:
        _refuse_dead(engine)
        raise
    else:
        if result.window is not None:
            setting.telemetry.read_past(result.window)
        return result
    finally:
        attempt.telemetry = setting.telemetry.cut(setting.devices, since_ns, setting.baselines)


def _refuse_dead(engine: Engine) -> None:
    """An engine that ended explains whatever the client saw, so its end is the error. Raises: EngineDied."""
    failure = engine.failure()
    if failure is not None:
        raise EngineDied(failure, log_tail=engine.log_tail(_LOG_TAIL_LINES))


def _progress(attempt: _Attempt) -> Callable[[LoadProgress], None]:
    setting, case = attempt.setting, attempt.case
    boards = {device.uid for device in accelerators(setting.devices)}
    powered = boards or {device.uid for device in setting.devices if device.scope == "cpu_package"}
    lengths_s = {"warmup": case.warmup_s, "measure": case.duration_s} if case.load.num_prompts is None else {}
    seen = ""
    since_s = 0.0  # the window begins where every slot has had its first token, which may be long after the warm-up

    def on_progress(progress: LoadProgress) -> None:
        nonlocal seen, since_s
        if progress.phase != seen:
            seen, since_s = progress.phase, progress.elapsed_s if progress.phase == "measure" else 0.0
            setting.observer.phase(seen)
        setting.telemetry.collect()
        length_s = lengths_s.get(progress.phase)
        left_s = None if length_s is None else max(0.0, since_s + length_s - progress.elapsed_s)
        setting.observer.load(progress, setting.telemetry.power_w(powered), left_s)

    return on_progress


def _record(attempt: _Attempt) -> TrialRecord:
    setting, case, key = attempt.setting, attempt.case, attempt.key
    measured, result, telemetry = attempt.measured, attempt.result, attempt.telemetry
    handle, boards = attempt.engine.handle, accelerators(setting.devices)
    series = identity.series_id(case, key.workload_id, setting.model, handle, boards)
    return TrialRecord(
        bench_version=__version__,
        key=key,
        status=attempt.status or (measured.status if measured else Status.FAILED),
        reasons=measured.reasons if measured else (),
        error=attempt.error,
        case=case,
        series_id=series,
        config_id=identity.config_id(series, handle, boards),
        engine=handle,
        model=setting.model,
        target=attempt.engine.target,
        host=setting.host,
        devices=setting.devices,
        problems=telemetry.problems if telemetry else (),
        stream_ends=telemetry.ends if telemetry else (),
        health=result.health if result else None,
        window=result.window if result else None,
        idle=setting.baselines.idle,
        resident=setting.baselines.resident,
        started=attempt.started,
        ended=clock.anchor(setting.clock),
        energy_scope=measured.energy_scope if measured else None,
        metrics=measured.metrics if measured else {},
        engine_metrics_before=attempt.before,
        engine_metrics_after=attempt.after,
        engine_samples=attempt.samples,
        output_check=setting.output_check,
        dataset_hash=result.dataset_hash if result else None,
        prompts_recycled=result.prompts_recycled if result else False,
        telemetry_period_s=telemetry.period_s if telemetry else None,
        extra=attempt.trial.extra,
    )


def _keep_log(source: str | None, folder: Path) -> None:
    """A copy of the engine's log as it is now: the engine may go on writing to its own."""
    if source is None or not Path(source).is_file():
        return
    copy = folder / f"{LOG_NAME}.part"
    try:
        shutil.copyfile(source, copy)
        copy.replace(folder / LOG_NAME)
    except OSError:  # a full disk: what was measured comes first, and saving it says what is wrong
        copy.unlink(missing_ok=True)
