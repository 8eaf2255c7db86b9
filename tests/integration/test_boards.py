"""A whole run whose board is read through the vendor's real binding on a compiled library of known power."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BenchCommand
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
    bench: BenchCommand,
    tmp_path: Path,
    probe: str,
    setup: Callable[[Path], Fake],
    index: int,
    watts: float,
    env: dict[str, str],
) -> None:
    done = bench(*RUN, "--devices", f"{probe}:{index}", BENCH_PROBES=f"cpu,{probe}", **setup(tmp_path).env())
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


MEAN_W, SWING_W, PERIOD_S = 300.0, 20.0, 1.3


def law_w(t_s: float) -> float:
    return MEAN_W + SWING_W * math.sin(2 * math.pi * t_s / PERIOD_S)


def law_j(t_s: float) -> float:
    """Joules since an hour before zero: the integral of `law_w`, by hand."""
    return MEAN_W * (3600 + t_s) - SWING_W * PERIOD_S / (2 * math.pi) * math.cos(2 * math.pi * t_s / PERIOD_S)


def play_nvidia(fake: Fake, t_s: float) -> None:
    fake.change(b0__power_mw=round(law_w(t_s) * 1e3), b0__energy_mj=round(law_j(t_s) * 1e3), b0__energy_rate_mw=0)


def play_amd(fake: Fake, t_s: float) -> None:
    fake.change(b0__current=round(law_w(t_s)), b0__energy=round(law_j(t_s) * 65536), b0__energy_rate_w=0)


@pytest.mark.proof
@pytest.mark.alone
@pytest.mark.parametrize(
    ("probe", "setup", "play"),
    [("nvidia", nvidia, play_nvidia), ("amd", amd, play_amd)],
    ids=["nvidia-ml-py", "amdsmi"],
)
def test_a_minute_of_a_board_whose_power_moves(
    bench: BenchCommand,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    probe: str,
    setup: Callable[[Path], Fake],
    play: Callable[[Fake, float], None],
) -> None:
    """What the library showed in the window, over the tokens of the window: by another process, on the same clock."""
    fake = setup(tmp_path)
    with Script(lambda t_s: play(fake, t_s)) as script:
        flags = ("--duration", "60s", "--warmup", "2s", "--devices", f"{probe}:0")
        done = bench(*RUN, *flags, BENCH_PROBES=probe, timeout=120, **fake.env())
    trial: dict[str, Any] = json.loads(next(tmp_path.rglob("trial.json")).read_text(encoding="utf-8"))
    assert trial["error"] is None, done.stderr
    window = trial["window"]
    t0_s, t1_s = ((window[end] - script.zero_ns) / 1e9 for end in ("t0_ns", "t1_ns"))
    tokens = trial["metrics"]["output_tok_per_s"]["value"] * (t1_s - t0_s)
    truth = (law_j(t1_s) - law_j(t0_s)) / tokens
    found = trial["metrics"]["j_per_output_tok_same_board"]
    half = (found["high"] - found["low"]) / 2
    with capsys.disabled():
        sys.stdout.write(
            f"\n{probe}: {found['value']:.5f} J/token ({found['low']:.5f} to {found['high']:.5f}, {half / found['value']:.2%}), "
            f"shown by the library: {truth:.5f}\n"
        )
    assert found["low"] <= truth <= found["high"]
    assert half < 0.02 * found["value"]
    assert found["source"] == "counter"
    with_gain = trial["metrics"]["j_per_output_tok"]
    assert with_gain["low"] is None or with_gain["low"] <= truth <= with_gain["high"]
