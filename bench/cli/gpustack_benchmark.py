"""`bench gpustack benchmark`: one model measured as `bench run` does, in the table that people around GPUStack ask for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench import suite
from bench.cli.case_options import case_options
from bench.cli.loading import data_options, pinned, with_data
from bench.cli.options import results_option
from bench.cli.previews import devices_here
from bench.cli.run import end, foresee, held, measure, take_in
from bench.cli.typed import TypedOnce
from bench.errors import EXIT_OK, UsageError
from bench.lab.gpustack.fitting import default_engine, fit_line
from bench.lab.plans import START_TIMEOUT_S, exit_code, new_plan
from bench.records import Case
from bench.reports.hardware import hardware_json, hardware_table
from bench.reports.rows import rows
from bench.reports.runs import run_json
from bench.session.boards import accelerators
from bench.session.host import host_info
from bench.session.loop import RunOutcome, new_run_id


def _dashed(flag: str) -> str:
    return flag.replace("_", "-")


@click.command(cls=TypedOnce, context_settings={"token_normalize_func": _dashed})
@case_options
@data_options
@click.option("--dry-run", is_flag=True, help="Print what would run, and whether it fits here; start nothing, exit 0.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the table.")
@results_option
def benchmark(*, dry_run: bool, as_json: bool, results: Path, **options: Any) -> int:
    """Measure one model: hardware combination | QPS | memory utilisation | J per token, then all else that bench run tells.

    Flags are those of `bench run`, with - or _ in their names. Without --engine: llamacpp where the weights are a GGUF file, vllm
    for all others.

    \b
    gpustack benchmark --model llama2-13b --precision fp16 --batch_size 128 --duration 300s
    gpustack benchmark --model llama2-13b --base-url http://127.0.0.1:8000 --batch_size 8 --devices 0
    """
    if options["model"] is None:
        raise UsageError("which model is to be measured? add --model NAME", hint="bench models list")
    if options["engine"] is None and options["base_url"] is None:
        options["engine"] = default_engine(options["model"], options["precision"], options["model_source"])
    chosen = pinned(suite.suite_from_options(with_data(options), name="gpustack benchmark"))
    for warning in chosen.warnings:
        click.echo(f"note: {warning}", err=True)
    plan = new_plan(new_run_id(), chosen.cases, (), START_TIMEOUT_S)
    if dry_run:
        _tell_fit(chosen.cases)
        foresee(plan, (), results, as_json)
        return EXIT_OK
    with held(plan, results, is_new=True):
        outcome = measure(plan, results)
    _show(outcome, results, as_json=as_json)
    end(outcome, plan)
    return exit_code(outcome, ())


def _tell_fit(cases: Sequence[Case]) -> None:
    boards, memory_b = accelerators(devices_here()), host_info(()).memory_b
    for case in cases:
        if line := fit_line(case, boards, memory_b):
            click.echo(line, err=True)


def _show(outcome: RunOutcome, results: Path, *, as_json: bool) -> None:
    take_in(results)
    table = rows(outcome.records)
    if as_json:
        told = run_json(outcome.run_id, outcome.records) | {"table": hardware_json(table)}
        click.echo(json.dumps(told, allow_nan=False))
    elif table:
        click.echo(hardware_table(table))
