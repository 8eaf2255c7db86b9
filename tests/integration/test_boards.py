"""A whole run whose board is read through the vendor's real binding on a compiled library of known power."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BenchCommand
from tests.fakes.build import shared_library
from tests.probes.amd.fake_amdsmi import GPU_1, MI300X, FakeAmdsmi
from tests.probes.fake_nvml import GPU_0, H100, FakeNvml

RUN = (
    *("run", "--engine", "mock", "--model", "mock", "--engine-arg", "ttft_ms=20", "--batch-size", "2", "--output-tokens", "16"),
    *("--duration", "5s", "--warmup", "0.3s", "--grace", "2s", "--idle", "0s", "--repeats", "1", "--json"),
)


def nvidia(folder: Path) -> dict[str, str]:
    fake = FakeNvml(library=shared_library("nvml.c", folder / "lib/libnvidia-ml.so.1"), state=folder / "nvml-state")
    fake.show(2, H100)
    return fake.env()


def amd(folder: Path) -> dict[str, str]:
    shared_library("amdsmi.c", folder / "rocm/lib/libamd_smi.so")
    fake = FakeAmdsmi(rocm=folder / "rocm", state=folder / "amdsmi-state")
    fake.show(2, MI300X)
    return fake.env()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the libraries exist on Linux only")
@pytest.mark.parametrize(
    ("probe", "setup", "index", "watts", "env"),
    [
        ("nvidia", nvidia, 0, 655.84, {"CUDA_VISIBLE_DEVICES": GPU_0}),
        ("amd", amd, 1, 717.0, {"ROCR_VISIBLE_DEVICES": GPU_1, "HIP_VISIBLE_DEVICES": "0"}),
    ],
    ids=["nvidia-ml-py", "amdsmi"],
)
def test_joules_per_token_of_a_board_of_known_power(
    bench: BenchCommand,
    tmp_path: Path,
    probe: str,
    setup: Callable[[Path], dict[str, str]],
    index: int,
    watts: float,
    env: dict[str, str],
) -> None:
    done = bench(*RUN, "--devices", f"{probe}:{index}", BENCH_PROBES=f"cpu,{probe}", **setup(tmp_path))
    trial: dict[str, Any] = json.loads(next(tmp_path.rglob("trial.json")).read_text(encoding="utf-8"))
    assert trial["error"] is None, done.stderr
    assert trial["energy_scope"] == "accelerator"
    assert env.items() <= trial["engine"]["env"].items()
    metrics = trial["metrics"]
    rate = metrics["output_tok_per_s"]["value"]
    # a probe that waits for a core between reading and stamping is off by that long, and its interval says so
    assert metrics["power_mean_w"]["value"] == pytest.approx(watts, rel=0.04)
    assert metrics["j_per_output_tok"]["value"] == pytest.approx(metrics["power_mean_w"]["value"] / rate, rel=1e-3)
    same_board = metrics["j_per_output_tok_same_board"]
    assert same_board["low"] <= watts / rate <= same_board["high"]
    assert metrics["j_per_output_tok"]["source"].startswith("counter")
