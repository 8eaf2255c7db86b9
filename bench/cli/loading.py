"""Flags of `bench run` for data sets and traces, also as other load generators spell them, as keys of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click
from msgspec import structs

from bench.cli.options import Command, Number
from bench.cli.typed import Whole
from bench.errors import UsageError
from bench.load.data import pin
from bench.suite import Suite

_NAMES = {"random": "synthetic"}
_OPTIONS = (
    click.option("--dataset", help="Where prompts come from: synthetic, or a file (ShareGPT, JSONL, CSV, Parquet, a trace)."),
    click.option(
        "--dataset-name",
        type=click.Choice(["random", "synthetic", "sharegpt", "jsonl", "csv", "parquet", "mooncake", "azure"]),
        help="What kind of data it is, where the file's name doesn't tell; random is synthetic.",
    ),
    click.option("--dataset-path", metavar="FILE", help="The data file."),
    click.option("--prompt-column", help="Column of the prompts in JSONL, CSV or Parquet [default: prompt]."),
    click.option("--output-tokens-column", help="Column with the length of each reply."),
    click.option("--prefix-tokens", "--random-prefix-len", type=Whole(), help="Shared tokens before each synthetic prompt."),
    click.option("--prefix-groups", type=Whole(), help="Groups of requests, each with a prefix of its own [default: 1]."),
    click.option("--random-range-ratio", type=Number(), help="Lengths vary uniformly by this share of what is asked, 0 to 1."),
    click.option("--trace", metavar="FILE", help="Replay a Mooncake or Azure trace: its arrivals and its lengths."),
    click.option("--speed", type=Number(), help="Replay a trace so many times faster."),
)
_OURS = ("dataset_name", "dataset_path", "prompt_column", "output_tokens_column", "random_range_ratio", "trace")


def data_options(command: Command) -> Command:
    """Adds `--dataset` and what goes with it."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_data(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with those of data sets as the keys of a suite. Raises: UsageError for flags that contradict each other."""
    rest = {key: value for key, value in options.items() if key not in _OURS}
    given = {key: value for key, value in options.items() if key in (*_OURS, "dataset") and value is not None}
    if "trace" in given:
        rest |= _replayed(given, rest)
    if dataset := _dataset(given):
        rest["dataset"] = dataset
    if "random_range_ratio" in given:
        rest |= _spread(float(given["random_range_ratio"]), rest)
    return rest


def _replayed(given: dict[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    other = [name for name in ("dataset", "dataset_path") if name in given]
    if other:
        raise UsageError(f"--trace together with --{other[0].replace('_', '-')}: a trace is the data; drop one")
    if rest.get("arrivals") not in (None, "trace"):
        raise UsageError("--trace together with --arrivals: the trace says when requests come", hint="drop --arrivals")
    given["dataset_path"] = given["trace"]
    return {"arrivals": "trace"}


def _dataset(given: Mapping[str, Any]) -> Any:
    name, path = given.get("dataset_name"), given.get("dataset_path")
    columns = {key: given[key] for key in ("prompt_column", "output_tokens_column") if key in given}
    if "dataset" in given:
        if name is not None or path is not None:
            raise UsageError("--dataset together with --dataset-name or --dataset-path: it is one or the other")
        return {"path": given["dataset"], **columns} if columns else given["dataset"]
    parts = {"type": _NAMES.get(name, name) if name else None, "path": path, **columns}
    return {key: value for key, value in parts.items() if value is not None}


def _spread(ratio: float, rest: Mapping[str, Any]) -> dict[str, Any]:
    if not 0 <= ratio <= 1:
        raise UsageError(f"--random-range-ratio must be from 0 to 1, not {ratio:g}")
    lengths = {key: rest[key] for key in ("input_tokens", "output_tokens") if isinstance(rest.get(key), int)}
    if not lengths:
        raise UsageError("--random-range-ratio without a length", hint="add --random-input-len or --random-output-len")
    return {key: {"mean": mean, "dist": "uniform", "spread": ratio} for key, mean in lengths.items() if ratio}


def pinned(suite: Suite) -> Suite:
    """`suite` with every data file read once, before anything is started. Raises: UsageError."""
    return replace(
        suite,
        cases=tuple(pin(case) for case in suite.cases),
        sweeps=tuple(structs.replace(sweep, case=pin(sweep.case)) for sweep in suite.sweeps),
    )
