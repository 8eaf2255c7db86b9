"""A whole run whose board is read through the vendor's real binding on a compiled library of known power."""

from __future__ import annotations

import json
import struct
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BenchCommand, with_flags
from tests.fakes.build import shared_library
from tests.probes.amd.fake_amdsmi import GPU_1, MI300X, FakeAmdsmi
from tests.probes.fake_nvml import GPU_0, H100, FakeNvml
from tests.probes.scripted import Script

RUN = (
    *("run", "--engine", "mock", "--model", "mock", "--engine-arg", "ttft_ms=20", "--batch-size", "2", "--output-tokens", "16"),
    *("--duration", "5s", "--warmup", "0.3s", "--grace", "2s", "--idle", "0s", "--repeats", "1", "--json"),
)


Fake = FakeNvml | FakeAmdsmi


def nvidia(folder: Path) -> FakeNvml:
    fake = FakeNvml(library=shared_library("nvml.c", folder / "lib/libnvidia-ml.so.1"), state=folder / "nvml-state")
    fake.show(2, H100)
    return fake


def amd(folder: Path) -> FakeAmdsmi:
    shared_library("amdsmi.c", folder / "rocm/lib/libamd_smi.so")
    fake = FakeAmdsmi(rocm=folder / "rocm", state=folder / "amdsmi-state")
    fake.show(2, MI300X)
    return fake


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
    bench_here: BenchCommand,
    tmp_path: Path,
    probe: str,
    setup: Callable[[Path], Fake],
    index: int,
    watts: float,
    env: dict[str, str],
) -> None:
    done = bench_here(*RUN, "--devices", f"{probe}:{index}", BENCH_PROBES=f"cpu,{probe}", **setup(tmp_path).env())
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


IDLE_W, J_PER_TOKEN, AVERAGED_S = 100.0, 0.2, 0.5


@dataclass(slots=True)
class Law:
    """A board that draws 100 W and 0.2 J for each token that the mock engine says it has sent."""

    emission: Path
    seen_b: int = 16
    tokens: int = 0
    recent: deque[tuple[float, float]] = field(default_factory=deque)

    def at(self, t_s: float) -> tuple[float, float]:
        """Joules since long before, and watts over the last half second."""
        if self.emission.exists():
            data = self.emission.read_bytes()
            whole = len(data) // 16 * 16
            self.tokens += sum(sent for _, sent in struct.iter_unpack("<qq", data[self.seen_b : whole]))
            self.seen_b = max(self.seen_b, whole)
        joules = IDLE_W * (3600 + t_s) + J_PER_TOKEN * self.tokens
        self.recent.append((t_s, joules))
        while self.recent[0][0] < t_s - AVERAGED_S:
            self.recent.popleft()
        begin_s, begin_j = self.recent[0]
        return joules, (joules - begin_j) / (t_s - begin_s) if t_s > begin_s else IDLE_W


def show_nvidia(fake: Fake, joules: float, watts: float) -> None:
    fake.change(b0__power_mw=round(watts * 1e3), b0__energy_mj=round(joules * 1e3), b0__energy_rate_mw=0)


def show_amd(fake: Fake, joules: float, watts: float) -> None:
    fake.change(b0__current=round(watts), b0__energy=round(joules * 65536), b0__energy_rate_w=0)


@pytest.mark.proof
@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("probe", "setup", "show"),
    [("nvidia", nvidia, show_nvidia), ("amd", amd, show_amd)],
    ids=["nvidia-ml-py", "amdsmi"],
)
def test_a_minute_of_a_board_that_draws_by_the_token(
    bench: BenchCommand,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    probe: str,
    setup: Callable[[Path], Fake],
    show: Callable[[Fake, float, float], None],
) -> None:
    fake, law = setup(tmp_path), Law(tmp_path / "emission")
    load = ("--duration", "60s", "--warmup", "2s", "--batch-size", "8", "--output-tokens", "96")
    engine = ("--engine-arg", "gap_ms=10", "--engine-arg", "sim=true")
    with Script(lambda t_s: show(fake, *law.at(t_s))):
        done = bench(
            *(*with_flags(RUN, *load), *engine, "--devices", f"{probe}:0"),
            **{"BENCH_PROBES": probe, "BENCH_SIM_EMISSION": str(law.emission), **fake.env()},
            timeout=150,
        )
    trial: dict[str, Any] = json.loads(next(tmp_path.rglob("trial.json")).read_text(encoding="utf-8"))
    assert trial["error"] is None, done.stderr
    truth = IDLE_W / trial["metrics"]["output_tok_per_s"]["value"] + J_PER_TOKEN
    found = trial["metrics"]["j_per_output_tok_same_board"]
    half = (found["high"] - found["low"]) / 2
    with capsys.disabled():
        told = f"{found['value']:.5f} J/token ({found['low']:.5f} to {found['high']:.5f}, {half / found['value']:.2%})"
        sys.stdout.write(f"\n{probe}: {told}, by the law: {truth:.5f}\n")
    assert found["low"] <= truth <= found["high"]
    assert half < 0.02 * found["value"]
    assert found["source"] == "counter"
    with_gain = trial["metrics"]["j_per_output_tok"]
    assert with_gain["low"] is None or with_gain["low"] <= truth <= with_gain["high"]
