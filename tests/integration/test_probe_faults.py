"""A vendor library at its worst in mid-run: the run goes on, tokens per second stay valid, energy is missing and says why."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BenchCommand
from tests.fakes.build import shared_library
from tests.probes.fake_nvml import H100, FakeNvml
from tests.probes.polling import until

NEIGHBOURS = {"server_saturated", "client_saturated"}
"""What other tests on the same cores may do to a run; a probe must not do anything."""
RUN = (
    *("run", "--engine", "mock", "--model", "mock", "--devices", "nvidia:0", "--engine-arg", "ttft_ms=20"),
    *("--batch-size", "2", "--output-tokens", "16", "--duration", "5s", "--warmup", "0.3s", "--grace", "2s", "--idle", "0s"),
    *("--repeats", "1", "--json"),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("NVML exists on Linux only")
    return shared_library("nvml.c", tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1")


@pytest.fixture
def fake(library: Path, tmp_path: Path) -> FakeNvml:
    fake = FakeNvml(library=library, state=tmp_path / "nvml-state")
    fake.show(1, H100)
    return fake


def spoilt_in_mid_run(bench: BenchCommand, fake: FakeNvml, folder: Path, **fault: str | int) -> dict[str, Any]:
    """The trial of a run whose library begins to misbehave when readings are being written."""
    done: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(target=lambda: done.append(bench(*RUN, BENCH_PROBES="cpu,nvidia", **fake.env())))
    thread.start()
    until(lambda: done or any(path.stat().st_size > 0 for path in folder.rglob("telemetry.jsonl")), 60)
    fake.change(**fault)
    thread.join()
    shard = next(folder.rglob("trial.json"))  # it keeps more than the run's own output
    trial: dict[str, Any] = json.loads(shard.read_text(encoding="utf-8"))
    assert trial["error"] is None, done[0].stderr
    assert trial["metrics"]["output_tok_per_s"]["value"] > 0
    spoilt = {r["code"] for r in trial["reasons"] if r["severity"] == "invalid" and r["group"] in ("all", "throughput")}
    assert spoilt <= NEIGHBOURS
    return trial


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"b0__instant__crash": 1}, "SIGSEGV"),
        ({"b0__instant__hang_s": 60}, "a vendor call hangs"),
        ({"b0__energy__ret": 15, "b0__instant__ret": 15}, "GPU is lost"),
    ],
    ids=["segfault", "hang", "lost"],
)
def test_energy_is_missing_with_the_reason(
    bench: BenchCommand, fake: FakeNvml, tmp_path: Path, fault: dict[str, str | int], words: str
) -> None:
    trial = spoilt_in_mid_run(bench, fake, tmp_path, **fault)
    assert trial["metrics"]["j_per_output_tok"].get("value") is None
    assert trial["metrics"]["j_per_output_tok"]["reason"]
    told = json.dumps([trial["reasons"], trial["problems"], trial["stream_ends"]])
    assert words in told


def test_prints_and_floods_cost_nothing(bench: BenchCommand, fake: FakeNvml, tmp_path: Path) -> None:
    """The other streams go on too, and so does the energy."""
    trial = spoilt_in_mid_run(bench, fake, tmp_path, b0__instant__print='{"readings":[]}', b0__instant__flood=20_000)
    assert trial["metrics"]["j_per_output_tok"]["value"] > 0
    assert trial["stream_ends"] == []
