"""`bench devices`: what can be measured here, what it draws now, and how to mend what can't be read."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bench import codec
from bench.cli.columns import NONE, problem_in_words, show, watts
from bench.cli.devices_selftest import selftest
from bench.cli.options import NumberRange
from bench.printable import printable_json
from bench.probes.host import ChildProbeHost
from bench.probes.snapshot import DeviceNow, Snapshot, look
from bench.records import ProbeProblem
from bench.units import format_bytes

_HEADERS = ("probe", "#", "name", "scope", "memory", "limit", "power", "driver", "power from", "uid")
DEADLINE_S = 5.0
"""A person waits: a probe that has not answered by now is listed as one that does not."""


@click.group("devices", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One object: devices[] and problems[]; with --watch one a second.")
@click.option("--watch", is_flag=True, help="Go on showing what every device draws until Ctrl-C.")
@click.option("--seconds", type=NumberRange(min=0, min_open=True), help="With --watch: end after so long.")
@click.pass_context
def devices(context: click.Context, *, as_json: bool, watch: bool, seconds: float | None) -> None:
    """List the devices that can be measured here, with their power and memory now.

    What is present but unreadable is listed below with the way to mend it. BENCH_PROBES=cpu,nvidia opens just these probes.
    """
    if context.invoked_subcommand is not None:
        return
    if seconds is not None and not watch:
        raise click.UsageError("--seconds goes with --watch")
    host = ChildProbeHost(deadline_s=DEADLINE_S)
    if watch:
        from bench.cli.devices_watch import watch_devices

        watch_devices(host, seconds=seconds, as_json=as_json)
        return
    _list(look(host), as_json=as_json)


devices.add_command(selftest)


def _list(snapshot: Snapshot, *, as_json: bool) -> None:
    if as_json:
        click.echo(printable_json(codec.encode_pretty(_plain(snapshot)).decode()), nl=False)
        return
    if snapshot.devices:
        show(_HEADERS, [_row(now) for now in snapshot.devices])
    else:
        click.echo("no device with a sensor was found: energy will be missing; memory and CPU use of the engine are measured")
    for problem in (*_shared(snapshot), *_in_use(snapshot), *snapshot.problems):
        click.echo(problem_in_words(problem))


def _shared(snapshot: Snapshot) -> Iterator[ProbeProblem]:
    """Boards that will give no joules, told before a run is spent on them."""
    for device in (now.device for now in snapshot.devices):
        if device.shared is not None:
            fix = "use a whole board: of this one memory and speed are measured, and no joules"
            yield ProbeProblem(probe=device.probe, subject=device.uid, problem=device.shared, fix=fix)


def _in_use(snapshot: Snapshot) -> Iterator[ProbeProblem]:
    """Boards on which somebody computes: an engine that is started there would be refused."""
    for now in snapshot.devices:
        count = round(now.foreign_processes or 0.0)
        if count:
            problem = f"{count} process{'es' * (count > 1)} compute{'s' * (count == 1)} on it"
            fix = (
                "none is needed to attach to an engine of yours; to start one there, end them or add --share-devices to bench run"
            )
            yield ProbeProblem(probe=now.device.probe, subject=now.device.uid, problem=problem, fix=fix)


def _plain(snapshot: Snapshot) -> dict[str, object]:
    return {
        "devices": [
            {
                **codec.to_builtins(now.device),
                "now": {
                    "power_w": now.power_w,
                    "power_from": now.power_api,
                    "memory_used_b": now.memory_used_b,
                    "utilisation": now.utilisation,
                    "temperature_c": now.temperature_c,
                    "foreign_processes": now.foreign_processes,
                },
            }
            for now in snapshot.devices
        ],
        "problems": [codec.to_builtins(problem) for problem in snapshot.problems],
    }


def _row(now: DeviceNow) -> tuple[str, ...]:
    device = now.device
    memory = [format_bytes(size) for size in (now.memory_used_b, device.memory_total_b) if size is not None]
    return (
        device.probe,
        str(device.index),
        device.name,
        device.scope,
        " / ".join(memory) or NONE,
        watts(device.power_limit_w),
        watts(now.power_w),
        device.driver or NONE,
        now.power_api or device.power_reason or NONE,
        device.uid,
    )
