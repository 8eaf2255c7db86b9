"""A run beside each vendor's stand-in: power, memory and joules per token are stored, or the reason where there are none."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BenchCommand
from tests.probes.tpu import host as tpu

VENDORS = (
    *("apple", "ascend", "biren", "cambricon", "enflame", "gaudi", "hygon", "iluvatar", "intel", "metax", "mthreads", "tpu"),
)
WITHOUT_POWER = {"apple": "modelled, not measured", "tpu": "tells nobody its power"}
RUN = (
    *("run", "--engine", "mock", "--model", "mock", "--engine-arg", "ttft_ms=20", "--batch-size", "2", "--output-tokens", "16"),
    *("--duration", "2s", "--warmup", "0.3s", "--grace", "1s", "--idle", "0s", "--repeats", "1", "--json"),
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-ins are compiled for Linux")


@pytest.fixture
def environment(vendor: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A machine of the vendor's. The metrics of a TPU come from the program that uses it: here a server of the test's."""
    env = {**importlib.import_module(f"tests.probes.{vendor}.host").host(tmp_path / "host"), "BENCH_PROBES": f"cpu,{vendor}"}
    if vendor != "tpu":
        yield env
        return
    with tpu.serving(tpu.of_two()) as served:
        yield {**env, "TPU_RUNTIME_METRICS_PORTS": str(served.port)}


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_run_stores_what_the_vendor_tells(
    bench_here: BenchCommand, tmp_path: Path, vendor: str, environment: dict[str, str]
) -> None:
    done = bench_here(*RUN, "--devices", f"{vendor}:0", **environment)
    trial: dict[str, Any] = json.loads(next(tmp_path.rglob("trial.json")).read_text(encoding="utf-8"))
    assert trial["error"] is None, done.stderr
    metrics = trial["metrics"]
    assert metrics["memory_used_peak_b"]["value"] is not None
    assert [device["probe"] for device in trial["devices"] if device["probe"] != "cpu"]
    if vendor in WITHOUT_POWER:
        assert metrics["j_per_output_tok"]["value"] is None
        assert WITHOUT_POWER[vendor] in metrics["j_per_output_tok"]["reason"]
        modelled = metrics.get("energy_accelerator_modelled_j", {"value": None})
        assert (modelled["value"] is not None) == (vendor == "apple")
    else:
        assert metrics["power_mean_w"]["value"] > 0.5
        rate = metrics["output_tok_per_s"]["value"]
        assert metrics["j_per_output_tok"]["value"] == pytest.approx(metrics["power_mean_w"]["value"] / rate, rel=0.02)
