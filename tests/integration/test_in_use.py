"""A board on which others compute, as a driver tells it through the real binding: refused, and measured where told to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.errors import EXIT_MISSING
from tests.conftest import BenchCommand
from tests.fakes.build import shared_library
from tests.probes.cambricon import host as cambricon
from tests.probes.fake_nvml import H100, FakeNvml

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the libraries exist on Linux only")

RUN = (
    *("run", "--engine", "mock", "--model", "mock", "--engine-arg", "ttft_ms=20", "--batch-size", "2", "--output-tokens", "8"),
    *("--duration", "1s", "--warmup", "0.2s", "--grace", "2s", "--idle", "0s", "--repeats", "1", "--json"),
)


def nvidia_1(folder: Path) -> dict[str, str]:
    """Process 1 is on the first board."""
    fake = FakeNvml(library=shared_library("nvml.c", folder / "lib/libnvidia-ml.so.1"), state=folder / "nvml-state")
    fake.show(2, {**H100, "0.pids": "1"})
    return fake.env()


def cambricon_1(folder: Path) -> dict[str, str]:
    """The same, on a vendor of the common probe."""
    fake = cambricon.fake(cambricon.library(folder), folder)
    fake.set("0.processes", "1:1024")
    return fake.env()


def statuses(bench_here: BenchCommand) -> list[tuple[str, str]]:
    rows = json.loads(bench_here("sql", "select status, error from trials order by started_at", "--json").stdout)
    return [(row["status"], (row["error"] or "").split(":")[0]) for row in rows]


@pytest.mark.parametrize(("vendor", "machine"), [("nvidia", nvidia_1), ("cambricon", cambricon_1)], ids=["nvidia", "cambricon"])
def test_refused_then_measured_when_told(
    bench_here: BenchCommand, tmp_path: Path, vendor: str, machine: Callable[[Path], dict[str, str]]
) -> None:
    env = {**machine(tmp_path), "BENCH_PROBES": f"cpu,{vendor}"}
    refused = bench_here(*RUN, "--devices", f"{vendor}:0", **env)
    assert refused.returncode == EXIT_MISSING
    assert "in use by others: " in refused.stderr
    assert "by 1 process" in refused.stderr
    assert "--share-devices" in refused.stderr
    assert statuses(bench_here) == [("failed", "in use by others")]
    told = bench_here("run", "--resume", "latest", "--share-devices", "--json", **env)
    (status, error) = statuses(bench_here)[-1]
    assert (status in ("valid", "invalid"), error) == (True, ""), told.stderr
    reasons = json.loads(max(tmp_path.rglob("trial.json"), key=lambda path: path.stat().st_mtime).read_text())["reasons"]
    assert "foreign_process" in {reason["code"] for reason in reasons}


def test_free_boards_of_the_same_machine_and_the_cpu_are_measured(bench_here: BenchCommand, tmp_path: Path) -> None:
    env = {**nvidia_1(tmp_path), "BENCH_PROBES": "cpu,nvidia"}
    for devices in (("--devices", "nvidia:1"), ("--devices", "cpu"), ()):
        assert "in use by others" not in bench_here(*RUN, *devices, **env).stderr
    assert not [error for _, error in statuses(bench_here) if error]


@pytest.mark.parametrize(
    ("flags", "trials"),
    [
        (("--ab", "engine_args.gap_ms=1", "engine_args.gap_ms=2", "--pairs", "3"), 6),
        (("--find", "knee", "--low", "1", "--high", "4"), 1),
    ],
    ids=["pairs", "search"],
)
def test_turns_and_searches_are_refused_too(
    bench_here: BenchCommand, tmp_path: Path, flags: tuple[str, ...], trials: int
) -> None:
    env = {**nvidia_1(tmp_path), "BENCH_PROBES": "cpu,nvidia"}
    whole = RUN if "--ab" in flags else tuple(word for word in RUN if word not in ("--batch-size", "2"))
    done = bench_here(*whole, *flags, "--devices", "nvidia:0", **env)
    assert done.returncode == EXIT_MISSING, done.stderr
    assert done.stderr.count("in use by others: ") == 1  # however many trials it cost
    told = statuses(bench_here)
    assert set(told) == {("failed", "in use by others")}
    assert len(told) >= trials
