"""`bench power`: energy of any command, and of a machine that does nothing."""

from __future__ import annotations

from pathlib import Path

import click

from bench import codec
from bench.cli.columns import NONE, problem_in_words, show, watts
from bench.cli.options import NumberRange
from bench.cli.output_file import write_output
from bench.cli.power_split import split
from bench.errors import UsageError
from bench.lab.power import Recording, check_command, record_command, record_idle
from bench.probes.host import ChildProbeHost
from bench.session.telemetry import Recorder
from bench.timing.recorded import Joules, RecordedDevice

_HEADERS = ("energy", "95% interval", "mean power", "method", "coverage", "scope", "name", "uid")

_AT_REST = 0.05
"""A device busy for more than this share of the time is not at rest."""


@click.group()
def power() -> None:
    """Measure the energy of any command, or of a machine at rest; tell prefill and decode apart."""


power.add_command(split)


@power.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where the JSON goes; none is written without."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def record(*, out: Path | None, command: tuple[str, ...]) -> int:
    """Run COMMAND and record what every device draws until it ends.

    The command keeps its input and output; what it drew is told on stderr. Exits with the command's own code, 128 + n where
    signal n ended it, 127 where it can't be found and 126 where it can't be executed.
    """
    _check_folder(out)
    check_command(command)
    with Recorder(ChildProbeHost()) as recorder:
        recording = record_command(command, recorder)
    _tell(recording, out)
    return recording.exit_code or 0


@power.command()
@click.option("--seconds", type=NumberRange(min=1.0), default=30.0, show_default=True, help="How long to watch.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the JSON to a file.")
def idle(*, seconds: float, as_json: bool, out: Path | None) -> None:
    """Measure what every device draws while nobody uses it.

    A device that is busy meanwhile is named: the number is then not that of a machine at rest.
    """
    _check_folder(out)
    with Recorder(ChildProbeHost()) as recorder:
        recording = record_idle(seconds, recorder)
    if as_json:
        click.echo(codec.encode_pretty(recording).decode(), nl=False)
        _write(recording, out)
        return
    _tell(recording, out, err=False)
    for one in recording.devices:
        if one.utilisation is not None and one.utilisation > _AT_REST:
            click.echo(f"note: {one.device.uid} was busy for {one.utilisation:.0%} of the time", err=True)


def _check_folder(out: Path | None) -> None:
    """Before anything runs: an hour's command must not end in a file that can't be written."""
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.absolute().parent}", hint="create it, or name another file")


def _tell(recording: Recording, out: Path | None, *, err: bool = True) -> None:
    for problem in recording.problems:
        click.echo(problem_in_words(problem).lstrip("\n"), err=True)
    for end in recording.stream_ends:
        click.echo(f"! {end.probe}: stopped early: {end.reason}", err=True)
    if recording.devices:
        show(_HEADERS, [_row(one) for one in recording.devices], err=err)
    else:
        click.echo(f"{recording.seconds:.3f} s; no device with a sensor was found, so there is no energy", err=True)
    for one in recording.devices:
        for text in filter(None, (one.joules.reason, *one.joules.warnings)):
            click.echo(f"! {text}", err=True)
    if recording.devices:
        sums = ", ".join(_sum(scope.scope, scope.quality, scope.joules) for scope in recording.scopes)
        click.echo(f"{recording.seconds:.3f} s; {sums}", err=err)
    _write(recording, out)


def _sum(scope: str, quality: str, joules: Joules) -> str:
    what = scope if quality == "measured" else f"{scope} ({quality})"
    return f"{what} {_joules(joules.energy_j)}"


def _row(one: RecordedDevice) -> tuple[str, ...]:
    low_j, high_j = one.joules.low_j, one.joules.high_j
    return (
        _joules(one.joules.energy_j),
        NONE if low_j is None or high_j is None else f"{low_j:.4g} to {high_j:.4g}",
        watts(one.mean_w),
        one.method or NONE,
        f"{one.coverage:.1%}",
        one.device.scope if one.counted else f"{one.device.scope}, in another's",
        one.device.name,
        one.device.uid,
    )


def _joules(energy_j: float | None) -> str:
    return NONE if energy_j is None else f"{energy_j:.2f} J"


def _write(recording: Recording, out: Path | None) -> None:
    if out is not None:
        write_output(out, codec.encode_pretty(recording))
