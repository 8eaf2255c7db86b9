"""How long generated trials take to get into the database, and how long the commands that read it take then.

Run: python benchmarks/ingest.py [--trials 100000] [--keep FOLDER]

Each trial is a `trial.json` with every metric, three repeats of a hundred cases a night. Raw events have no part in it: an
ingest does not open them. CPU seconds are what it costs; on a machine with other work the wall clock says more.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
from msgspec.structs import replace

from bench import codec, identity
from bench.records import (
    Case,
    ClockAnchor,
    DeviceInfo,
    EngineHandle,
    HostInfo,
    LoadSpec,
    Metric,
    Status,
    TrialKey,
    TrialRecord,
    Window,
)
from bench.store import Lab
from bench.store.layout import TRIAL_JSON, shard_path
from bench.timing.spec import REQUIRED, SPECS
from benchmarks._trials import case_of, cpu_s

CASES, REPEATS = 100, 3
NS = 10**9
FIRST_NIGHT_NS = 1_735_689_600 * NS
"""2025-01-01."""
GOALS_S = {"ingest": 300.0, "bench table": 1.0, "bench compare": 1.0}
TRIES = 5
COMMANDS = {
    "start alone": ("sql", "SELECT 1", "--csv"),
    "bench table": ("table", "--json"),
    "bench compare": ("compare", "version:1", "version:2"),
    "bench sql": ("sql", "SELECT count(*), avg(output_tok_per_s) FROM latest", "--csv"),
}


def metric(name: str, noise: Callable[[], float]) -> Metric:
    """A metric with every field that its kind has, each with noise of its own: numbers that repeat would pack too well."""
    spec = SPECS[name]
    bare = Metric(name=name, unit=spec.unit, low=99.0 * noise(), high=101.0 * noise(), n=400)
    if spec.kind == "scalar":
        return replace(bare, value=100.0 * noise())
    return replace(
        bare, mean=100.0 * noise(), p50=100.0 * noise(), p90=120.0 * noise(), p99=150.0 * noise(), p99_low=140.0 * noise(),
        p99_high=160.0 * noise(),
    )  # fmt: skip


def template(case: Case) -> TrialRecord:
    """A valid trial on one board."""
    host = HostInfo(
        host_id="host",
        system="Linux",
        release="6.1",
        machine="x86_64",
        cpu_model="CPU",
        cpu_count=64,
        memory_b=1 << 39,
        python="3.11",
    )
    engine = EngineHandle(
        name="vllm", version="1", build="abc", command=("vllm", "serve"), env={}, pids=(1,), settings={"slots": 8},
        precision="bf16", start_s=60.0, log_path=None,
    )  # fmt: skip
    key = TrialKey(run_id="", trial_id="", case_id=identity.case_id(case), workload_id=identity.workload_id(case), repeat=0)
    now = ClockAnchor(monotonic_ns=NS, wall_ns=FIRST_NIGHT_NS)
    return TrialRecord(
        bench_version="0", key=key, status=Status.VALID, case=case, engine=engine, host=host, energy_scope="accelerator",
        devices=(DeviceInfo(uid="GPU-1", probe="nvidia", vendor="nvidia", name="NVIDIA H200", index=0, scope="accelerator"),),
        window=Window(t0_ns=2 * NS, t1_ns=62 * NS), started=now, ended=now,
    )  # fmt: skip


def trials(count: int) -> Iterator[TrialRecord]:
    """Nights of all cases, three repeats each; the last fifth with another version of the engine."""
    cases = [case_of(LoadSpec(kind="closed", batch_size=n + 1), tokens=256, seconds=60.0) for n in range(CASES)]
    bases = [template(case) for case in cases]
    noise = partial(random.Random(1).uniform, 0.995, 1.005)  # noqa: S311
    order = itertools.product(range(-(-count // (CASES * REPEATS))), range(CASES), range(REPEATS))
    for number, (night, case, repeat) in enumerate(itertools.islice(order, count)):
        base, run_id = bases[case], f"night-{night:04d}"
        assert base.engine is not None
        engine = replace(base.engine, version="1" if number < 0.8 * count else "2")
        series = identity.series_id(base.case, base.key.workload_id, None, engine, base.devices)
        wall_ns = FIRST_NIGHT_NS + (night * 86_400 + case * 240 + repeat * 70) * NS
        trial_id = identity.trial_id(run_id, base.key.case_id, repeat, base.key.role)
        yield replace(
            base,
            key=replace(base.key, run_id=run_id, trial_id=trial_id, repeat=repeat),
            engine=engine,
            series_id=series,
            config_id=identity.config_id(series, engine, base.devices),
            started=ClockAnchor(monotonic_ns=NS, wall_ns=wall_ns),
            ended=ClockAnchor(monotonic_ns=65 * NS, wall_ns=wall_ns + 64 * NS),
            metrics={name: metric(name, noise) for name in REQUIRED},
        )


def generate(results: Path, count: int) -> int:
    """Write the shards; returns their bytes."""
    size_b = 0
    for record in trials(count):
        folder = results / shard_path(record)
        folder.mkdir(parents=True)
        data = codec.encode_pretty(record)
        (folder / TRIAL_JSON).write_bytes(data)
        size_b += len(data)
    for run in (results / "shards").glob("*/*"):
        os.utime(run, ns=(FIRST_NIGHT_NS, FIRST_NIGHT_NS))  # as long ago as it says
    return size_b


def measure(results: Path, count: int, tries: int) -> None:
    """Generate what is not there, ingest, read; a line each."""
    if not (results / "shards").exists():
        began = time.perf_counter()
        size_b = generate(results, count)
        click.echo(f"{count} trials, {size_b / 1e6:.0f} MB of trial.json, generated in {time.perf_counter() - began:.0f} s")
    lab = Lab(results)
    lab.database.unlink(missing_ok=True)
    say("ingest", *timed(lab.ingest), f"database {lab.database.stat().st_size / 1e6:.0f} MB")
    say("ingest again", *timed(lab.ingest), "every trial.json looked at, nothing new")
    read(lab, tries)


def read(lab: Lab, tries: int) -> None:
    """What it takes to take in one trial, and to answer; a line each."""
    results = lab.results
    shard = next(folder for folder in (results / "shards").glob("*/*/*"))
    for what in ("one trial less", "one trial more"):
        shard.rename(results / shard.name) if what == "one trial less" else (results / shard.name).rename(shard)
        say(what, *timed(lab.refresh), "what bench table does before it reads")
    os.utime(shard.parent, ns=(FIRST_NIGHT_NS, FIRST_NIGHT_NS))
    lab.refresh()
    for name, arguments in COMMANDS.items():
        command = [sys.executable, "-m", "bench", *arguments, "--results", str(results)]
        took = [timed(partial(answered, command)) for _ in range(tries)]
        say(name, *min(took), f"best of {tries}, with the start of the process")


def answered(command: list[str]) -> None:
    """Run a command that must answer: how long a failure takes says nothing."""
    done = subprocess.run(command, capture_output=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that something takes, by the wall clock and of CPU."""
    began, before = time.perf_counter(), cpu_s()
    work()
    return time.perf_counter() - began, cpu_s() - before


def say(what: str, took_s: float, cpu: float, more: str) -> None:
    """One line, beside its goal where there is one."""
    goal = f" (goal {GOALS_S[what]:g})" if what in GOALS_S else ""
    click.echo(f"{what:14s} {took_s:8.2f} s{goal}, {cpu:6.2f} s of CPU: {more}")


def main() -> None:
    """Measure in a folder that is removed, or kept where one is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="use this folder, generate into it where it has no shards, and leave it")
    parser.add_argument("--tries", type=int, default=TRIES, help="of each command")
    given = parser.parse_args()
    if given.keep is not None:
        measure(given.keep, given.trials, given.tries)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), given.trials, given.tries)


if __name__ == "__main__":
    main()
