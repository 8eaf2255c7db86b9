"""Flags of `bench run` that ask for a search, as the `sweep` of a suite; and what a dry run prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from msgspec.structs import replace

from bench import codec
from bench.cli.options import Command, Number
from bench.errors import UsageError
from bench.lab.plans import Forecast
from bench.reports.rows import load_label
from bench.reports.searches import search_label

_FINE = ("over", "low", "high", "points", "attainment", "gain")
_OPTIONS = (
    click.option("--find", type=click.Choice(["knee", "max-goodput"]), help="Search for a load instead of measuring given ones."),
    click.option(
        "--over", type=click.Choice(["batch_size", "request_rate"]), help="With --find: which load [default: batch_size]."
    ),
    click.option("--low", type=Number(), help="With --find: the lowest load [default: 1]."),
    click.option("--high", type=Number(), help="With --find: the highest load [default: 256]."),
    click.option("--points", type=int, help="With --find: the most loads that are measured [default: 12]."),
    click.option("--attainment", type=Number(), help="With --find max-goodput: share within every limit [default: 0.99]."),
    click.option("--gain", type=Number(), help="With --find knee: growth for twice the load that is too little [default: 0.1]."),
)


def search_options(command: Command) -> Command:
    """Adds `--find` and what goes with it."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_sweep(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` with `--find` and its companions as one key `sweep`. Raises: UsageError for companions alone."""
    rest = {key: value for key, value in options.items() if key not in ("find", *_FINE)}
    fine = {key: options[key] for key in _FINE if options.get(key) is not None}
    if options.get("find") is not None:
        return {**rest, "sweep": {"find": options["find"], **fine}}
    if fine:
        raise UsageError(f"--{next(iter(fine))} without --find", hint="add --find knee or --find max-goodput")
    return rest


def forecast_json(lines: Sequence[Forecast], starts: int, total_s: float | None) -> dict[str, Any]:
    """What a dry run tells machines: `lines[]`, `engine_starts`, `estimated_s` (null where a job ends by count)."""
    return {
        "dry_run": True,
        "lines": [codec.to_builtins(line) for line in lines],
        "engine_starts": starts,
        "estimated_s": total_s,
    }


def forecast_text(lines: Sequence[Forecast], starts: int, total_s: float | None, commands: Sequence[str]) -> str:
    """What a dry run tells people; `commands` are lines about the engines."""
    rows = [["case_id", "name", "engine", "load", "trials", "seconds"], *(_row(line) for line in lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = ["  ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    most = any(line.kind == "sweep" and line.trials for line in lines)
    time = "a time that the counts decide" if total_s is None else f"{'at most ' * most}{total_s:.0f} s of load and idle"
    return "\n".join([*table, *commands, f"{starts} engine start{'s' * (starts != 1)}, {time}; nothing was started"])


def _row(line: Forecast) -> list[str]:
    load = line.case.load
    what = search_label(line.search) if line.search else load_label(replace(load, num_prompts=None))
    trials = f"{'at most ' * (line.kind == 'sweep' and line.trials > 0)}{line.trials}"
    seconds = f"{load.num_prompts} prompts each" if line.seconds is None else f"{line.seconds:g} each"
    return [line.case_id or "-", line.name, line.case.engine, what, trials, seconds]
