"""How long generated trials take to get into the database, and how long the commands that read it take then.

Run: python benchmarks/ingest.py [--trials 100000] [--keep FOLDER]

Each trial is a `trial.json` with every metric, three repeats of a hundred cases a night. Raw events have no part in it: an
ingest does not open them. CPU seconds are what it costs; on a machine with other work the wall clock says more.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
from msgspec.structs import replace

from bench import identity
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
from bench.store.shards import encode_record
from bench.timing.spec import REQUIRED, SPECS
from benchmarks._trials import case_of, cpu_s

CASES, REPEATS = 100, 3
NS = 10**9
FIRST_NIGHT_NS = 1_735_689_600 * NS
"""2025-01-01."""
GOALS_S = {"ingest": 300.0, "bench table": 1.0, "bench compare": 1.0}
COMMANDS = {
    "bench table": ("table", "--json"),
    "bench compare": ("compare", "version:1", "version:2"),
    "bench sql": ("sql", "SELECT count(*), avg(output_tok_per_s) FROM latest", "--csv"),
}


def metric(name: str, value: float) -> Metric:
    """A metric of every field that its kind has."""
    spec = SPECS[name]
    if spec.kind == "scalar":
        return Metric(name=name, unit=spec.unit, value=value, low=value * 0.99, high=value * 1.01, n=400)
    return Metric(
        name=name, unit=spec.unit, mean=value, p50=value, p90=value * 1.2, p99=value * 1.5, p99_low=value * 1.4,
        p99_high=value * 1.6, low=value * 0.99, high=value * 1.01, n=400,
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
    order = itertools.product(range(-(-count // (CASES * REPEATS))), range(CASES), range(REPEATS))
    for number, (night, case, repeat) in enumerate(itertools.islice(order, count)):
        base, run_id = bases[case], f"night-{night:04d}"
        assert base.engine is not None
        engine = replace(base.engine, version="1" if number < 0.8 * count else "2")
        series = identity.series_id(base.case, base.key.workload_id, None, engine, base.devices)
        wall_ns = FIRST_NIGHT_NS + (night * 86_400 + case * 240 + repeat * 70) * NS
        noise = 1.0 + 0.01 * ((number * 2_654_435_761) % 1000 / 1000 - 0.5)
        trial_id = identity.trial_id(run_id, base.key.case_id, repeat, base.key.role)
        yield replace(
            base,
            key=replace(base.key, run_id=run_id, trial_id=trial_id, repeat=repeat),
            engine=engine,
            series_id=series,
            config_id=identity.config_id(series, engine, base.devices),
            started=ClockAnchor(monotonic_ns=NS, wall_ns=wall_ns),
            ended=ClockAnchor(monotonic_ns=65 * NS, wall_ns=wall_ns + 64 * NS),
            metrics={name: metric(name, 100.0 * noise) for name in REQUIRED},
        )


def generate(results: Path, count: int) -> int:
    """Write the shards; returns their bytes."""
    size_b = 0
    for record in trials(count):
        folder = results / shard_path(record)
        folder.mkdir(parents=True)
        data = encode_record(record)
        (folder / TRIAL_JSON).write_bytes(data)
        size_b += len(data)
    for run in (results / "shards").glob("*/*"):
        os.utime(run, ns=(FIRST_NIGHT_NS, FIRST_NIGHT_NS))  # as long ago as it says
    return size_b


def measure(results: Path, count: int) -> None:
    """Generate, ingest, ask; a line each."""
    began = time.perf_counter()
    size_b = generate(results, count)
    click.echo(f"{count} trials, {size_b / 1e6:.0f} MB of trial.json, generated in {time.perf_counter() - began:.0f} s")
    lab = Lab(results)
    took_s, cpu = timed(lab)
    say("ingest", took_s, cpu, f"database {lab.database.stat().st_size / 1e6:.0f} MB")
    say("ingest again", *timed(lab), "nothing new")
    for name, arguments in COMMANDS.items():
        command = [sys.executable, "-m", "bench", *arguments, "--results", str(results)]
        tries = []
        for _ in range(3):
            began, before = time.perf_counter(), cpu_s()
            done = subprocess.run(command, capture_output=True, check=False)
            tries.append((time.perf_counter() - began, cpu_s() - before))
        say(name, *min(tries), f"best of 3, exit status {done.returncode}, {len(done.stdout)} bytes")


def timed(lab: Lab) -> tuple[float, float]:
    """Seconds of an ingest, by the wall clock and of CPU."""
    began, before = time.perf_counter(), cpu_s()
    lab.ingest()
    return time.perf_counter() - began, cpu_s() - before


def say(what: str, took_s: float, cpu: float, more: str) -> None:
    """One line, beside its goal where there is one."""
    goal = f" (goal {GOALS_S[what]:g})" if what in GOALS_S else ""
    click.echo(f"{what:14s} {took_s:8.2f} s{goal}, {cpu:6.2f} s of CPU: {more}")


def main() -> None:
    """Measure in a folder that is removed, or kept where one is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="generate into this folder, and leave it")
    given = parser.parse_args()
    if given.keep is not None:
        measure(given.keep, given.trials)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), given.trials)


if __name__ == "__main__":
    main()
