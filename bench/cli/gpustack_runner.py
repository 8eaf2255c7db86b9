"""`bench gpustack runner`: the command line of GPUStack's benchmark image, so that its workers can start ours instead."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bench.cli.loading import pinned
from bench.cli.options import Number, NumberRange
from bench.cli.run import end, held, measure
from bench.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from bench.lab.gpustack.arguments import KEY_ENV, Task, task_of
from bench.lab.gpustack.files import ReportFiles
from bench.lab.gpustack.limits import LimitedLoad, Limits
from bench.lab.gpustack.progress import ProgressReporter, ReportingObserver
from bench.lab.gpustack.ramp import SLO_METRICS, RampPlanner
from bench.lab.plans import START_TIMEOUT_S, new_plan
from bench.load import WireLoad
from bench.ports import LoadPlan, Observer
from bench.printable import printable
from bench.session.loop import RunOutcome, new_run_id
from bench.suite import Suite

_ALSO_CALLED = {"itl": "tpot"}
"""What older servers say."""


def _slo_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for aggregate, metric in reversed(SLO_METRICS):
        names = [f"--slo-{aggregate}-{name}-ms" for name in (metric, _ALSO_CALLED.get(metric)) if name]
        command = click.option(*names, f"slo_{aggregate}_{metric}_ms", type=Number(), help=f"Most {aggregate} {metric} [ms].")(
            command
        )
    return command


@click.group()
def runner() -> None:
    """What GPUStack's benchmark image does: gpustack start --benchmark-image-repo REPO:TAG."""


@runner.group()
def benchmark() -> None:
    """Benchmarks of a deployment that runs."""


@benchmark.command("run")
@click.option("--target", required=True, help="URL of what serves the model.")
@click.option("--model", required=True, help="What the target calls it.")
@click.option(
    "--profile", type=click.Choice(["constant", "poisson", "concurrent"]), help="One load: of requests a second, or in flight."
)
@click.option("--rate", type=Number(), help="With --profile: how many.")
@click.option("--max-requests", type=click.IntRange(min=1), help="With --profile: measure a job of so many requests.")
@click.option("--max-seconds", type=NumberRange(min=0, min_open=True), help="With --profile: for how long at most.")
@click.option("--stages", metavar="JSON", help='Several loads: [{"rate": 4, "max_requests": 100, "max_seconds": 60}, ...].')
@click.option("--auto-tune", is_flag=True, help="Search the load: for most throughput, or for the most within --slo-*.")
@click.option("--axis", type=click.Choice(["rate", "concurrency"]), default="rate", help="What a load of those two is.")
@click.option("--lower-bound", type=Number(), default=4.0, help="With --auto-tune: the lowest load.")
@click.option("--upper-bound", type=Number(), default=8192.0, help="With --auto-tune: the highest load.")
@click.option("--max-points", type=int, default=18, help="With --auto-tune: the most loads.")
@click.option("--max-total-seconds", type=Number(), default=5400.0, help="With --auto-tune: its time.")
@_slo_options
@click.option("--data", required=True, help="prompt_tokens=N,output_tokens=N, that as JSON, or a ShareGPT file.")
@click.option("--sharegpt-min-input-tokens", type=click.IntRange(min=1))
@click.option("--sharegpt-max-input-tokens", type=click.IntRange(min=1))
@click.option("--sharegpt-max-output-tokens", type=click.IntRange(min=1))
@click.option("--random-seed", type=int, default=42, help="Of synthetic prompts.")
@click.option("--seed-increment/--no-seed-increment", default=True, help="Other prompts for each of the stages.")
@click.option("--warmup", metavar="JSON", help="Share of the time before what is measured.")
@click.option("--cooldown", metavar="JSON", help="Share of the time after what is measured.")
@click.option("--max-errors", type=click.IntRange(min=0), help="Stop after more failed requests.")
@click.option("--max-error-rate", type=NumberRange(min=0, max=1), help="Stop at a larger share of failed requests.")
@click.option("--detect-saturation", is_flag=True, help="Taken, without effect: each point says whether it was steady.")
@click.option("--processor", metavar="FOLDER", help="Of the model: its tokenizer counts tokens where the server tells none.")
@click.option("--processor-args", metavar="JSON", help="Taken, without effect.")
@click.option("--sample-requests", type=int, help="Taken, without effect: failed requests alone are kept as samples.")
@click.option("--backend", help="Taken, without effect.")
@click.option("--backend-kwargs", metavar="JSON", help="timeout, api_key, verify, and in request_handlers the path of requests.")
@click.option("--output-dir", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Where reports go.")
@click.option("--outputs", default="benchmarks.dual_json", help="ID.dual_json: reports are called ID.json, ID__stage0.json, ...")
@click.option("--progress-url", help="Where progress is reported to.")
@click.option("--progress-auth", help="The bearer token for that.")
@click.option("--progress-ca-cert", type=click.Path(exists=True, dir_okay=False), help="Authorities for that connection alone.")
@click.option("--progress-insecure-skip-tls-verify", "progress_insecure", is_flag=True, help="Verify no certificate there.")
def run(**options: Any) -> int:
    """Measure a target as GPUStack asks, write its report files, and keep our own results in ID.tokjoule beside them.

    Exit status 0 as soon as a report was written: whether a point is valid is told in it.
    """
    task = task_of(options)
    for note in task.notes:
        _say(note)
    if task.key:
        os.environ[KEY_ENV] = task.key
    results = options["output_dir"].absolute() / f"{task.base}.tokjoule"
    files = ReportFiles(options["output_dir"], results, task.stem_of)
    with _reported(options) as tell:
        tell(0.0)
        outcome = _measure(task, files, results, tell)
        if outcome.interrupted:
            return EXIT_INTERRUPTED
        if not files.benchmarks:
            return EXIT_FAILED
        tell(100.0)
    return EXIT_OK


@contextmanager
def _reported(options: Mapping[str, Any]) -> Iterator[Callable[[float], None]]:
    """What takes per cents done, and tells them to the server where one wants them."""
    if not options["progress_url"]:
        yield lambda percent: None
        return
    insecure = options["progress_insecure"]
    if insecure:
        _say("--progress-insecure-skip-tls-verify: the server that progress is reported to is not verified")
    reporter = ProgressReporter(
        options["progress_url"], options["progress_auth"], warn=_say, ca_cert=options["progress_ca_cert"], insecure=insecure
    )
    with reporter:
        yield reporter.tell


def _measure(task: Task, files: ReportFiles, results: Path, tell: Callable[[float], None]) -> RunOutcome:
    sweeps = () if task.ramp is None else (task.ramp.sweep,)
    suite = pinned(Suite(name="gpustack", description="", path="", cases=tuple(job.case for job in task.jobs), sweeps=sweeps))
    plan = new_plan(new_run_id(), suite.cases, suite.sweeps, START_TIMEOUT_S)
    planners = () if task.ramp is None else (RampPlanner(replace(task.ramp, sweep=suite.sweeps[0]), files.benchmarks),)
    reporting: list[ReportingObserver] = []

    def watched(seen: Observer) -> Observer:
        reporting.append(ReportingObserver(seen, task.trials, tell, files.keep))
        return reporting[0]

    def begun(load: LoadPlan) -> Limits:
        reporting[0].expected = load.case.load.num_prompts
        return task.limits_of(load.case)

    with held(plan, results, is_new=True):
        outcome = measure(plan, results, load=LimitedLoad(WireLoad(), begun), planners=planners, watching=watched)
    end(outcome, plan)
    if not outcome.interrupted:
        for planner in planners:
            files.write(f"{task.base}__ramp.json", planner.outcome(outcome.records))
        if task.is_stages:
            files.write(f"{task.base}__curve.json", {"version": 1, "target": "stages", "stop_reason": "stages_completed"})
    return outcome


def _say(note: str) -> None:
    click.echo(f"note: {printable(note)}", err=True)
