"""`bench run`: wires suite, runners, models, load, probes and store into a session, and shows what came out."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from bench import codec, plugins, suite
from bench.analysis.ab import paired_cases
from bench.analysis.gate import PAIRS
from bench.cli.ab import ab_options, pairs_json, pairs_text
from bench.cli.case_options import case_options
from bench.cli.loading import data_options, pinned, with_data
from bench.cli.main import show_error
from bench.cli.options import duration_s, results_option
from bench.cli.previews import preview_lines, previews
from bench.cli.searching import forecast_json, forecast_text, search_options, with_sweep
from bench.cli.terminal import busy_note, observer
from bench.cli.typed import TypedOnce, retyped
from bench.errors import EXIT_OK, BenchError, UsageError
from bench.lab.ab import measure_pairs, new_pairs
from bench.lab.correctness.gate import ReferenceGate
from bench.lab.plans import (
    START_TIMEOUT_S,
    RunPlan,
    begun,
    engine_starts,
    exit_code,
    forecast,
    load_plan,
    new_plan,
    planners_of,
    total_seconds,
)
from bench.lab.selfcheck import client_share, known_limit
from bench.load import WireLoad, recover
from bench.models import ModelStore
from bench.ports import LoadGenerator, Observer, Planner
from bench.printable import printable
from bench.probes.host import ChildProbeHost
from bench.probes.placement import resolve
from bench.records import Case, TrialRecord
from bench.reports.advice import ONLY_BUSY, Again, measure_again, only_busy
from bench.reports.runs import run_json
from bench.reports.searches import SearchResult, search_line
from bench.reports.table import summary, summary_text
from bench.runners.base_url import VERSIONED, api_base
from bench.runners.containers.labels import reap
from bench.runners.served import first_served
from bench.session.host import host_info
from bench.session.interrupts import Interrupts
from bench.session.loop import KEPT, RunOutcome, Session, new_run_id
from bench.store import Lab, ShardStore, adopt, run_records, work_root
from bench.store.plans import find_run, hold_plan, plan_path, write_plan


@click.command(cls=TypedOnce)
@click.argument("suite_ref", metavar="[SUITE]", required=False)
@case_options
@data_options
@search_options
@ab_options
@click.option(
    "--case", "only", multiple=True, metavar="NAME", help="Only this case of SUITE (* stands for anything); repeatable."
)
@click.option("--start-timeout", help="Give up on an engine that is not ready by then [default: 10m].")
@click.option("--share-devices", is_flag=True, default=None, help="Measure boards on which others compute, too.")
@click.option("--resume", metavar="RUN|latest", help="Go on with a run: measure what of it is missing, failed or was cut off.")
@click.option(
    "--skip-measured",
    is_flag=True,
    default=None,
    help="Go on with the last run of the same cases and labels; where none is, begin one.",
)
@click.option("--dry-run", is_flag=True, help="Print what would run, start nothing; exit 0 even if it would fail.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@results_option
def run(
    *,
    suite_ref: str | None,
    ab: tuple[str, str] | None,
    pairs: int | None,
    only: tuple[str, ...],
    start_timeout: str | None,
    share_devices: bool | None,
    resume: str | None,
    skip_measured: bool | None,
    dry_run: bool,
    as_json: bool,
    results: Path,
    **options: Any,
) -> int:
    """Measure SUITE (a name or a YAML file), or one case given by flags. Flags beside a suite override it.

    \b
    bench run quickstart
    bench run quickstart --duration 20s --repeats 5
    bench run quickstart --find knee --high 64
    bench run quickstart --ab engine_args.threads=1 engine_args.threads=2 --pairs 5
    bench run --resume latest
    bench run quickstart --label night=2026-12-01 --skip-measured
    bench run --engine openai --base-url http://127.0.0.1:8000 --model m --batch-size 8 --duration 30s
    """
    timeout_s = None if start_timeout is None else duration_s("--start-timeout", start_timeout)
    if pairs is not None and ab is None:
        raise UsageError("--pairs without --ab", hint="add --ab BASE CAND")
    if resume is None:
        plan = _planned(_chosen(suite_ref, with_data(with_sweep(options))), timeout_s or START_TIMEOUT_S, ab, pairs, only)
        plan = replace(plan, share_devices=bool(share_devices))
        earlier = begun(results, plan, lambda text: click.echo(f"note: {printable(text)}", err=True)) if skip_measured else None
        if earlier is not None:
            click.echo(f"note: run {earlier.run_id} set out to do the same: what it measured is not measured again", err=True)
    else:
        plan = _resumed(resume, results, suite_ref, options | {"ab": ab, "case": only, "skip_measured": skip_measured})
        earlier = plan if timeout_s is None else replace(plan, start_timeout_s=timeout_s)
        earlier = replace(earlier, share_devices=True) if share_devices else earlier
    plan = earlier or plan
    if dry_run:
        foresee(plan, run_records(results, plan.run_id), results, as_json)
        return EXIT_OK
    with held(plan, results, is_new=earlier is None):
        outcome = measure(plan, results)
    searches = [planner.result(outcome.records) for planner in planners_of(plan)]
    typed_again = measure_again if earlier else retyped(click.get_current_context())  # a plan that was begun can't change
    _show(outcome, searches, results, as_json, None if outcome.interrupted else typed_again)
    end(outcome, plan)
    return exit_code(outcome, searches)


def _chosen(suite_ref: str | None, options: Mapping[str, Any]) -> suite.Suite:
    """What is asked for; what is only doubtful is said on stderr. Raises: UsageError, SuiteError."""
    if suite_ref is not None:
        chosen = suite.override(suite.load(suite_ref), options)
    elif options["base_url"] and not options["model"]:
        raise _without_model(options)
    elif any(options[name] for name in ("model", "base_url", "engine")):
        chosen = suite.suite_from_options(options)
    else:
        raise UsageError("nothing to measure", hint="bench run quickstart, or bench run --model NAME ... (bench run --help)")
    for warning in chosen.warnings:
        click.echo(f"note: {warning}", err=True)
    return chosen


def _without_model(options: Mapping[str, Any]) -> UsageError:
    """What to add, with what the endpoint calls its model where it tells. Raises: UsageError for other mistakes."""
    suite.suite_from_options({**options, "model": "NAME"})
    served = first_served(VERSIONED.sub("", api_base(options["base_url"])))
    known = f"the endpoint serves: {served.name}" if served else "the endpoint does not say what it serves"
    return UsageError("an endpoint is measured by one of its models: give --model NAME", hint=known)


def _planned(
    chosen: suite.Suite, timeout_s: float, ab: tuple[str, str] | None, pairs: int | None, only: Sequence[str]
) -> RunPlan:
    if ab is None:
        chosen = pinned(suite.pick(chosen, only))
        return new_plan(new_run_id(), chosen.cases, chosen.sweeps, timeout_s)
    in_turns = new_pairs(chosen, *ab, PAIRS if pairs is None else pairs, only)
    in_turns = replace(in_turns, base=_pinned(chosen, in_turns.base), cand=_pinned(chosen, in_turns.cand))
    return new_plan(new_run_id(), (), (), timeout_s, in_turns)


def _pinned(chosen: suite.Suite, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return pinned(replace(chosen, cases=cases, sweeps=())).cases


def _resumed(wanted: str, results: Path, suite_ref: str | None, options: Mapping[str, Any]) -> RunPlan:
    """The plan of an earlier run, which nothing may change. Raises: UsageError, StoreError."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, ())]
    given += [] if suite_ref is None else [suite_ref]
    if given:
        raise UsageError(f"--resume goes on with the plan of that run as it is: drop {', '.join(given)}")
    return load_plan(results, find_run(results, wanted))


def foresee(plan: RunPlan, history: Sequence[TrialRecord], results: Path, as_json: bool) -> None:
    """Print what is left of `plan`, and start nothing."""
    lines, starts = forecast(plan, history), engine_starts(plan, history)
    total_s = total_seconds(plan, lines, starts)
    commands = previews(plan, history, results)
    if as_json:
        click.echo(json.dumps(forecast_json(lines, starts, total_s) | {"commands": [asdict(one) for one in commands]}))
    else:
        click.echo(forecast_text(lines, starts, total_s, preview_lines(commands)))


@contextmanager
def held(plan: RunPlan, results: Path, *, is_new: bool) -> Iterator[None]:
    """The lock of the run's plan, which is written down first where it is a new one; a plan that can't be begun is no run."""
    lock = write_plan(results, plan.run_id, codec.encode_pretty(plan)) if is_new else hold_plan(results, plan.run_id)
    try:
        yield
    except UsageError:
        if is_new:
            plan_path(results, plan.run_id).unlink(missing_ok=True)
        raise
    finally:
        os.close(lock)


def measure(
    plan: RunPlan,
    results: Path,
    *,
    load: LoadGenerator | None = None,
    planners: Sequence[Planner] | None = None,
    watching: Callable[[Observer], Observer] = lambda seen: seen,
) -> RunOutcome:
    """Measure what is left of `plan`. Other commands put a load generator, planners and an observer around the terminal's of
    their own into it. Raises: UsageError, StoreError.
    """
    left = adopt(results, recover)
    for told in (*(f"what an earlier run left was kept: {folder}" for folder in left.adopted), *left.notes, *reap()):
        click.echo(f"note: {told}", err=True)
    click.echo(f"run {plan.run_id}", err=True)
    busy = busy_note()
    if busy:
        click.echo(f"note: {busy}", err=True)
    history = run_records(results, plan.run_id)
    if history and not any(line.trials for line in forecast(plan, history)):
        click.echo("nothing left to do: every trial of this run was measured", err=True)
    engines = work_root(results, plan.run_id)
    with Interrupts() as interrupts, observer() as terminal:
        seen = watching(terminal)
        session = Session(
            run_id=plan.run_id,
            runners=lambda name: plugins.load("bench.runners", name)(),
            models=ModelStore(note=seen.note),
            load=load or WireLoad(),
            outputs=ReferenceGate(),
            probes=ChildProbeHost(),
            store=ShardStore(results, recover),
            observer=seen,
            interrupts=interrupts,
            place=resolve,
            work_root=engines,
            start_timeout_s=plan.start_timeout_s,
            share_devices=plan.share_devices,
        )
        try:
            if plan.pairs is not None:
                return measure_pairs(session, plan.pairs, history)
            return session.run(plan.cases, planners_of(plan) if planners is None else planners, history)
        finally:
            shutil.rmtree(engines, ignore_errors=True)


def take_in(results: Path) -> None:
    """Load what a run left into the database; where that fails the shards are safe, and it can be done later."""
    try:
        Lab(results).ingest()
    except BenchError as problem:
        click.echo(f"note: {problem}", err=True)


def _show(outcome: RunOutcome, searches: Sequence[SearchResult], results: Path, as_json: bool, again: Again | None) -> None:
    take_in(results)
    if as_json:
        told = run_json(outcome.run_id, outcome.records, searches) | pairs_json(paired_cases(outcome.records))
        click.echo(json.dumps(told, allow_nan=False))
    elif outcome.records and sys.stdout.isatty():
        from rich.console import Console

        Console().print(summary(outcome.records, again))
    elif outcome.records:
        click.echo(summary_text(outcome.records, again))
    if not as_json:
        click.echo(pairs_text(paired_cases(outcome.records)), nl=False)
        for search in searches:
            click.echo(search_line(search))
    share = client_share(outcome.records, known_limit(results, host_info(()).host_id))
    if share is not None:
        click.echo(f"client: at most {share:.0%} of the rate that it is known to follow here (bench selfcheck)", err=True)


def end(outcome: RunOutcome, plan: RunPlan) -> None:
    """What a run ends with on stderr: each mistake once, however many cases it cost, and where to go on."""
    for error in {(str(error), error.hint): error for error in outcome.errors}.values():
        show_error(error)
    if outcome.interrupted:
        done = sum(record.status in KEPT for record in outcome.records)
        left = sum(line.trials for line in forecast(plan, outcome.records))
        most = "at most " * bool(plan.sweeps)
        click.echo(f"{outcome.interrupted}: {done} of {most}{done + left} measured, {most}{left} left", err=True)
        click.echo(f"  next: bench run --resume {outcome.run_id}", err=True)
    elif plan.every_case and all(case.engine == "mock" for case in plan.every_case) and only_busy(outcome.records):
        click.echo(f"the installation works; {ONLY_BUSY}", err=True)
