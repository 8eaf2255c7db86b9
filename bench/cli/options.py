"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bench.errors import UsageError
from bench.units import parse_duration_s

Command = TypeVar("Command", bound=Callable[..., Any])


class Number(click.types.FloatParamType):
    """A number that is neither nan nor infinite: those pass every bound, or none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return found


class NumberRange(click.FloatRange):
    """The same within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(Number().convert(value, param, ctx), param, ctx)


def _checked(ctx: click.Context, _: click.Parameter, value: str) -> Path:
    """Refuse at once what no result could be kept in. Raises: StoreError, click.UsageError."""
    from bench.store.layout import check_results  # here: `--help` needs no store

    if not value:
        raise click.UsageError("--results is empty: give a folder", ctx)
    return check_results(Path(value))


def a_day(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no day written YYYY-MM-DD: days are compared as text. Raises: click.UsageError."""
    if value is None:
        return None
    from bench.store.dates import check_day  # here: `--help` needs no store

    try:
        check_day(value)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from error
    return value


def duration_s(flag: str, text: str) -> float:
    """What a flag says of a time [s]. Raises: UsageError."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def results_option(command: Command) -> Command:
    """`--results DIR`, also from `BENCH_RESULTS`: the command gets `results: Path`."""
    option = click.option(
        "--results",
        type=click.Path(),
        callback=_checked,
        default="results",
        show_default=True,
        envvar="BENCH_RESULTS",
        show_envvar=True,
        metavar="DIR",
        help="Folder of all results.",
    )
    return option(command)
