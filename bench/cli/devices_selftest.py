"""`bench devices selftest`: every sensor held against itself and against its vendor's tool."""

from __future__ import annotations

import click

from bench import codec
from bench.cli.columns import NONE, problem_in_words
from bench.cli.options import NumberRange
from bench.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK
from bench.lab.selftest import DeviceTest, Selftest, SensorTest
from bench.lab.selftest import selftest as run_selftest
from bench.printable import printable, printable_json
from bench.probes.host import ChildProbeHost
from bench.session.telemetry import Recorder
from bench.units import format_bytes


@click.command("selftest")
@click.option("--seconds", type=NumberRange(min=0.5), default=10.0, show_default=True, help="How long to watch the sensors.")
@click.option("--json", "as_json", is_flag=True, help="One object: devices[], problems[] and passed.")
def selftest(*, seconds: float, as_json: bool) -> int:
    """Test every sensor: raw against converted value, call cost, update period, counter against integral of power.

    The vendor's own tool is asked too, where it is on the path. Exit code 1: a sensor can't be trusted; 4: there is none.
    """
    if not as_json:
        click.echo(f"watching every sensor for {seconds:g} s", err=True)
    with Recorder(ChildProbeHost()) as recorder:
        found = run_selftest(recorder, seconds)
    if as_json:
        text = codec.encode_pretty({**codec.to_builtins(found), "passed": found.passed}).decode()
        click.echo(printable_json(text), nl=False)
    else:
        _show(found)
    if not found.devices:
        return EXIT_MISSING
    return EXIT_OK if found.passed else EXIT_FAILED


def _show(found: Selftest) -> None:
    for test in found.devices:
        click.echo("\n".join(map(printable, _device(test))))
    if not found.devices:
        click.echo("no device with a sensor was found: there is nothing to test")
    for problem in found.problems:
        click.echo(problem_in_words(problem))


def _device(test: DeviceTest) -> list[str]:
    device = test.device
    lines = [
        f"{device.name} ({device.uid}), {device.scope}, {device.quality}: {'FAULTY' if test.faults else 'ok'}",
        *(_sensor(sensor) for sensor in test.sensors),
        f"  polled each {test.poll_period_s * 1e3:.0f} ms, {test.readings} readings in the window",
        f"  {_methods(test)}",
    ]
    if test.tool is not None:
        power = NONE if test.tool.power_w is None else f"{test.tool.power_w:.1f} W"
        memory = NONE if test.tool.memory_used_b is None else format_bytes(test.tool.memory_used_b)
        lines.append(f"  {test.tool.tool}: {power}, {memory} in use")
    lines += [f"  ! {text}" for text in test.faults]
    lines += [f"  next: {text}" for text in test.next_steps]
    lines += [f"  note: {text}" for text in test.notes]
    return lines


def _sensor(sensor: SensorTest) -> str:
    unit = "W" if sensor.quantity == "power_w" else "J"
    raw = "raw value not told" if sensor.raw is None else f"raw {sensor.raw:.15g} {sensor.unit}"
    converted = NONE if sensor.converted is None else f"{sensor.converted:.3f} {unit}"
    timing = ", ".join(
        f"{what} {_ms(seconds)}"
        for what, seconds in (
            ("averages over", sensor.averaging_window_s),
            ("renewed each", sensor.update_period_s),
            ("a call takes", sensor.call_cost_s),
        )
    )
    return f"  {sensor.api}: {raw}, read as {converted}; {timing}"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "(not known)"
    return f"{seconds * 1e3:.3g} ms"


def _methods(test: DeviceTest) -> str:
    counter, integral = test.counter_j, test.integral_j
    told = (
        f"counter {NONE if counter is None else f'{counter:.2f} J'}, integral {NONE if integral is None else f'{integral:.2f} J'}"
    )
    if counter is None or integral is None or max(counter, integral) <= 0:
        return told
    return f"{told}: {abs(counter - integral) / max(counter, integral):.2%} apart"
