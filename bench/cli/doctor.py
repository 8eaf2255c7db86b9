"""`bench doctor`: what this machine can and can't do, and the next step for each thing that it can't."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import click
import psutil

from bench import __version__, plugins, suite
from bench.cli.options import results_option
from bench.cli.terminal import busy_note
from bench.errors import EXIT_MISSING, EXIT_OK, BenchError, UsageError
from bench.models.convert import PACKAGES, able_python, known_pythons
from bench.printable import printable
from bench.probes.host import ChildProbeHost
from bench.runners.containers.labels import reap
from bench.units import format_bytes

_LEAST_FREE_B = 2 << 30
_PACKAGES = ("duckdb", "httptools", "numpy", "uvloop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `fix` is what to type or change when it isn't well."""

    area: Literal["machine", "client", "engine", "device", "results"]
    subject: str
    state: Literal["ok", "absent", "problem"]
    detail: str
    fix: str | None = None


@click.command()
@click.option("--engine", help="Look at this engine only; exit with 4 if it can't be used.")
@click.option("--engine-python", help="The Python that has the engine.")
@click.option("--launch", type=click.Choice(["docker", "podman"]), help="Look for the engine in a container image.")
@click.option("--image", metavar="NAME:TAG", help="That image.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@results_option
def doctor(
    *, engine: str | None, engine_python: str | None, launch: str | None, image: str | None, as_json: bool, results: Path
) -> int:
    """Say what this machine can and can't do, and how to mend it."""
    where = {"engine_python": engine_python, "launch": launch, "image": image}
    named = next((f"--{name.replace('_', '-')}" for name, value in where.items() if value is not None), None)
    if engine is None and named is not None:
        raise UsageError(f"{named} without --engine", hint="name the engine that it has, as in --engine vllm")
    for told in reap():
        click.echo(f"note: {told}", err=True)
    if engine is not None:
        here = None if launch else engine_python  # one in an image converts nothing here
        findings = [*_engine(engine, where), *_conversion(engine, here)]
        code = EXIT_OK if findings[0].state == "ok" else EXIT_MISSING
    else:
        engines = (finding for name in plugins.names("bench.runners") for finding in _engine(name, {}))
        findings, code = [*_machine(), *_client(), *engines, *_devices(), *_results(results)], EXIT_OK
    if as_json:
        click.echo(json.dumps({"version": __version__, "findings": [asdict(finding) for finding in findings]}))
        return code
    mark = {"ok": "ok      ", "absent": "-       ", "problem": "PROBLEM "}
    for finding in findings:
        click.echo(f"{mark[finding.state]}{finding.area:8} {printable(f'{finding.subject}: {finding.detail}')}")
        if finding.fix:
            click.echo(f"{'':17}next: {printable(finding.fix)}")
    return code


def _machine() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    yield Finding(
        area="machine",
        subject="host",
        state="ok",
        detail=f"{platform.system()} {platform.machine()}, {psutil.cpu_count()} cores, "
        f"{format_bytes(memory.available)} of {format_bytes(memory.total)} memory free, Python {platform.python_version()}",
    )
    busy = busy_note()
    yield Finding(
        area="machine",
        subject="load",
        state="problem" if busy else "ok",
        detail=busy or "nothing else runs here",
        fix=f"stop what else runs here; busiest: {_busiest()}" if busy else None,
    )


def _busiest() -> str:
    """Names of the three processes that use most CPU right now."""
    found = []
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):
            process.cpu_percent()
            found.append(process)
    time.sleep(0.2)
    shares = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            shares.append((process.cpu_percent(), process.info["name"], process.pid))
    return ", ".join(f"{name} (pid {pid}, {share:.0f}%)" for share, name, pid in sorted(shares, reverse=True)[:3])


def _client() -> Iterator[Finding]:
    for name in _PACKAGES:
        try:
            yield Finding(area="client", subject=name, state="ok", detail=version(name))
        except PackageNotFoundError:
            yield Finding(area="client", subject=name, state="problem", detail="not installed", fix=f"pip install {name}")
    if platform.system() != "Windows":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = hard if hard != resource.RLIM_INFINITY else 1 << 20
        short = most < 4096
        yield Finding(
            area="client",
            subject="open files",
            state="problem" if short else "ok",
            detail=f"up to {most} (now {soft}): one connection a request in flight",
            fix="raise the hard limit, for example ulimit -Hn 65536 as root" if short else None,
        )


def _engine(name: str, where: Mapping[str, str | None]) -> Iterator[Finding]:
    """Which engine a case would start that asks for nothing but to be looked for there, or what is missing."""
    options = {"engine": name, "model": "any", **where}
    if name == "openai":
        options["base_url"] = "http://127.0.0.1:8000"
    case = suite.from_options(options)[0]
    try:
        runner = plugins.load("bench.runners", name)()
        runner.check(case)
        yield Finding(area="engine", subject=name, state="ok", detail=runner.about(case))
    except BenchError as error:
        yield Finding(area="engine", subject=name, state="absent", detail=str(error), fix=error.hint)


def _conversion(name: str, python: str | None) -> Iterator[Finding]:
    """Whether weights can be made for an engine that does not read the catalogue's format."""
    reads = plugins.load("bench.runners", name)().reads
    for target in PACKAGES:
        if target in reads:
            what = f"bf16 {target} of a GGUF file"
            try:
                able = able_python(target, known_pythons(python, os.environ), os.environ)
                yield Finding(area="engine", subject=what, state="ok", detail=f"can be made with {able}")
            except BenchError as error:
                yield Finding(area="engine", subject=what, state="absent", detail=str(error), fix=error.hint)


def _devices() -> Iterator[Finding]:
    host = ChildProbeHost()
    for name in host.names():
        stream = host.open(name, 0.1)
        try:
            found = stream.discovery()
        finally:
            stream.close()
        for device in found.devices:
            sensor = device.energy or device.power
            detail = f"{device.name}, {device.scope}, power through {sensor.api}" if sensor else f"{device.name}, {device.scope}"
            yield Finding(area="device", subject=device.uid, state="ok", detail=detail, fix=device.power_reason)
        for problem in found.problems:
            yield Finding(area="device", subject=problem.subject, state="problem", detail=problem.problem, fix=problem.fix)


def _results(results: Path) -> Iterator[Finding]:
    existing = next(folder for folder in (results.absolute(), *results.absolute().parents) if folder.exists())
    free_b = shutil.disk_usage(existing).free
    writable = os.access(existing, os.W_OK) and existing.is_dir()
    if not writable:
        yield Finding(
            area="results",
            subject=str(results),
            state="problem",
            detail="can't be written",
            fix="choose another folder with --results DIR or BENCH_RESULTS",
        )
    short = free_b < _LEAST_FREE_B
    yield Finding(
        area="results",
        subject="disk",
        state="problem" if short else "ok",
        detail=f"{format_bytes(free_b)} free",
        fix="free some space: a long run with many streams writes gigabytes" if short else None,
    )
