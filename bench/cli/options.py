"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def results_option(command: Command) -> Command:
    """`--results DIR`, also from `BENCH_RESULTS`: the command gets `results: Path`."""
    option = click.option(
        "--results",
        type=click.Path(path_type=Path),
        default=Path("results"),
        show_default=True,
        envvar="BENCH_RESULTS",
        show_envvar=True,
        metavar="DIR",
        help="Folder of all results.",
    )
    return option(command)
