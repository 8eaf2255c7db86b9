"""The exact command of every engine that a run would start."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from bench import plugins
from bench.errors import BenchError
from bench.lab.plans import RunPlan, planners_of
from bench.models import ModelStore
from bench.ports import Runner, StartRequest
from bench.printable import printable
from bench.probes.host import ChildProbeHost
from bench.probes.placement import resolve
from bench.records import DeviceInfo, Placement, TrialRecord
from bench.runners.process import free_port
from bench.runners.serving import Launch, placed
from bench.session.groups import EngineGroup, engine_groups
from bench.session.loop import KEPT
from bench.store.layout import work_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One engine start as it would be, its port free now and maybe another one then; or why that can't be told."""

    engine: str
    cases: tuple[str, ...]
    argv: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    reason: str | None = None
    hint: str | None = None


@runtime_checkable
class Foreseeing(Runner, Protocol):
    """A runner that tells its command beforehand."""

    def launch_for(self, request: StartRequest, port: int) -> Launch:
        """The command that `start` runs, with `port`. Raises: BenchError."""
        ...


def previews(plan: RunPlan, history: Sequence[TrialRecord], results: Path) -> list[Preview]:
    """What is started for what is left of `plan`, in order. Nothing is started for it but short questions to the engines."""
    done = [record for record in history if record.status in KEPT]
    groups = [group for group in engine_groups(plan.every_case, planners_of(plan)) if group.remaining(done)]
    work = work_dir(results).absolute() / f"{plan.run_id}.{os.getpid()}"
    return [_preview(group, plan, work / f"engine-{number}-0") for number, group in enumerate(groups)]


def preview_lines(found: Sequence[Preview]) -> list[str]:
    """Previews for people: each a line that says what for, and one that a shell takes."""
    lines = []
    for number, one in enumerate(found, start=1):
        lines.append(printable(f"engine {number}, {one.engine}, for {', '.join(one.cases)}:"))
        if one.reason:
            lines.append(printable(f"  {one.reason}"))
            lines += [printable(f"  next: {one.hint}")] if one.hint else []
        else:
            variables = [f"{name}={shlex.quote(value)}" for name, value in one.env.items()]
            lines.append(printable(f"  {' '.join([*variables, shlex.join(one.argv)])}"))
    return lines


def _preview(group: EngineGroup, plan: RunPlan, folder: Path) -> Preview:
    first = group.first
    cases = tuple(dict.fromkeys(case.name for case in group.cases))
    try:
        told = _foreseen(group, plan, folder)
    except BenchError as error:
        return Preview(engine=first.engine, cases=cases, reason=f"would fail here: {error}", hint=error.hint)
    if isinstance(told, Launch):
        return Preview(engine=first.engine, cases=cases, argv=told.argv, env=told.env)
    reason, hint = told
    return Preview(engine=first.engine, cases=cases, reason=reason, hint=hint)


def _foreseen(group: EngineGroup, plan: RunPlan, folder: Path) -> Launch | tuple[str, str | None]:
    """The command, or why there is none to tell, and a hint. Raises: BenchError where a run would end with it too."""
    first = group.first
    runner: Runner = plugins.load("bench.runners", first.engine)()
    for case in group.cases:
        runner.check(case)
    placement = resolve(devices_here(), first.devices) if first.devices else Placement()
    model = wanted = None
    if runner.reads:
        store = ModelStore(hash_limit_b=0)
        wanted = store.check(first.model, first.model_source, precision=first.precision, formats=runner.reads)
        model = store.here(first.model, first.model_source, precision=first.precision, formats=runner.reads)
    if first.base_url is not None:
        return f"it runs already, at {first.base_url}", None
    if not isinstance(runner, Foreseeing):
        return "its runner does not tell its command", None
    if wanted is not None and model is None:
        missing = f"its command depends on the weights of {first.model}, which are not here"
        by_source = first.model_source is not None or wanted.kind in ("convert", "synthetic")
        return missing, f"bench models pull {shlex.quote(wanted.text if by_source else first.model)}"
    request = StartRequest(
        cases=group.cases,
        model=model,
        placement=placement,
        work_dir=folder,
        start_timeout_s=plan.start_timeout_s,
        run_id=plan.run_id,
    )
    port = free_port()
    launch, box = placed(request, runner.launch_for(request, port), port)
    return launch if box is None else Launch(argv=launch.argv)  # the variables of a container are part of its command line


@cache
def devices_here() -> tuple[DeviceInfo, ...]:
    """What the probes find, asked once."""
    host = ChildProbeHost()
    found: list[DeviceInfo] = []
    for name in host.names():
        stream = host.open(name, 1.0)
        try:
            found += stream.discovery().devices
        finally:
            stream.close()
    return tuple(found)
