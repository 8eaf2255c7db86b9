"""`bench devices`: what can be measured here, what it draws now, and how to mend what can't be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from bench import codec
from bench.probes.host import ChildProbeHost
from bench.probes.snapshot import DeviceNow, Snapshot, look
from bench.records import ProbeProblem
from bench.units import format_bytes

_HEADERS = ("probe", "#", "name", "scope", "memory", "limit", "power", "driver", "power from", "uid")
_NONE = "-"
DEADLINE_S = 5.0
"""A person waits: a probe that has not answered by now is listed as one that does not."""


@click.command("devices")
@click.option("--json", "as_json", is_flag=True, help="One object: devices[] and problems[].")
def devices(*, as_json: bool) -> None:
    """List the devices that can be measured here, with their power and memory now.

    What is present but unreadable is listed below with the way to mend it. BENCH_PROBES=cpu,nvidia opens just these probes.
    """
    snapshot = look(ChildProbeHost(deadline_s=DEADLINE_S))
    if as_json:
        click.echo(codec.encode_pretty(_plain(snapshot)).decode(), nl=False)
        return
    if snapshot.devices:
        _show([_row(now) for now in snapshot.devices])
    else:
        click.echo("no device with a sensor was found: energy will be missing; memory and CPU use of the engine are measured")
    for problem in snapshot.problems:
        click.echo(_in_words(problem))


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
        " / ".join(memory) or _NONE,
        _watts(device.power_limit_w),
        _watts(now.power_w),
        device.driver or _NONE,
        now.power_api or device.power_reason or _NONE,
        device.uid,
    )


def _watts(power_w: float | None) -> str:
    return _NONE if power_w is None else f"{power_w:.1f} W"


def _in_words(problem: ProbeProblem) -> str:
    return f"\n! {problem.probe}: {problem.subject}: {problem.problem}\n  fix: {problem.fix}"


def _show(rows: Sequence[tuple[str, ...]]) -> None:
    """A table on a terminal; aligned plain lines, never cut, where something else reads."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for header in _HEADERS:
            table.add_column(header, overflow="fold", no_wrap=header == "uid")  # a uid is there to be copied
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(len(row[column]) for row in (_HEADERS, *rows)) for column in range(len(_HEADERS))]
    for row in (_HEADERS, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
