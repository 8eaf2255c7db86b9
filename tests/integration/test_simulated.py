"""A whole run whose J/token can be worked out by hand: the mock engine, and a device that is drawn from what it sends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bench.analysis.energy_split import EnergySplit
from bench.analysis.length_sweeps import length_sweeps
from bench.records import Status
from bench.store import Lab, records
from tests.conftest import BenchCommand

BATCH, GAP_MS, TTFT_MS, TOKENS = 8, 10, 30, 96
SWEEP = """
name: lengths
defaults:
  engine: mock
  model: mock
  devices: [sim]
  engine_args: {sim: true, ttft_ms: 300, gap_ms: 10}
  batch_size: 8
  duration: 10s
  warmup: 2s
  grace: 5s
  idle: 0s
  repeats: 1
cases:
  - {name: lengths, input_tokens: [16, 256, 1024], output_tokens: [8, 48, 192]}
"""


def run(bench: BenchCommand, *, seconds: int, idle_w: float, j_per_token: float, **law: str) -> dict[str, Any]:
    """The metrics of one trial under a law."""
    done = bench(
        *("run", "--engine", "mock", "--model", "mock", "--devices", "sim", "--engine-arg", "sim=true"),
        *("--engine-arg", f"ttft_ms={TTFT_MS}", "--engine-arg", f"gap_ms={GAP_MS}"),
        *("--batch-size", str(BATCH), "--output-tokens", str(TOKENS), "--input-tokens", "16"),
        *("--duration", f"{seconds}s", "--warmup", "1s", "--grace", "3s", "--idle", "0s", "--repeats", "1", "--json"),
        timeout=seconds + 60,
        BENCH_PROBES="sim",
        BENCH_SIM_EMISSION="emission",
        BENCH_SIM_IDLE_W=str(idle_w),
        BENCH_SIM_J_PER_TOKEN=str(j_per_token),
        **{f"BENCH_SIM_{name}": value for name, value in law.items()},
    )
    trials = json.loads(done.stdout)["trials"]
    assert len(trials) == 1, done.stderr
    assert trials[0]["error"] is None, trials[0]["error"]
    metrics: dict[str, Any] = trials[0]["metrics"]
    return metrics


def analytic(idle_w: float, j_per_token: float, tokens_per_s: float) -> float:
    """J/token of the law, from the rate: worked out here, by nothing of the project's."""
    return idle_w / tokens_per_s + j_per_token


def check(metrics: dict[str, Any], idle_w: float, j_per_token: float) -> float:
    """The simulated J/token, once it has been found to be what the law says."""
    rate = metrics["output_tok_per_s"]["value"]
    by_schedule = BATCH * TOKENS * 1000 / (TTFT_MS + (TOKENS - 1) * GAP_MS)
    assert rate == pytest.approx(by_schedule, rel=0.1)  # a client and a server on shared cores are a little late
    found = metrics["j_per_output_tok_simulated"]
    assert found["low"] <= analytic(idle_w, j_per_token, rate) <= found["high"]
    assert (found["high"] - found["low"]) / 2 < 0.02 * found["value"]
    assert metrics["energy_accelerator_simulated_j"]["value"] > 0
    return float(found["value"])


def check_kept_apart(metrics: dict[str, Any]) -> None:
    """No measured column has a number of the simulated device's."""
    joules = [
        name for name in metrics if name.startswith(("energy_", "j_per_", "tok_per_j", "power_")) or name.endswith("_power_w")
    ]
    measured = [name for name in joules if "simulated" not in name]
    assert len(measured) > 5
    assert [name for name in measured if metrics[name].get("value") is not None] == []


@pytest.mark.alone
def test_joules_per_token_are_those_of_the_law_and_differ_as_the_laws_do(bench: BenchCommand) -> None:
    one = run(bench, seconds=10, idle_w=10, j_per_token=0.05)
    two = run(bench, seconds=10, idle_w=20, j_per_token=0.2)
    difference = check(two, 20, 0.2) - check(one, 10, 0.05)
    rates = [metrics["output_tok_per_s"]["value"] for metrics in (one, two)]
    assert difference == pytest.approx(0.15 + 20 / rates[1] - 10 / rates[0], rel=0.02)
    check_kept_apart(one)


@pytest.mark.proof
@pytest.mark.alone
def test_a_sweep_of_lengths_splits_into_the_law(bench: BenchCommand, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the law a prompt token costs nothing, a token sent 0.05 J, and a second 20 J."""
    (tmp_path / "lengths.yaml").write_text(SWEEP, encoding="utf-8")
    law = {"BENCH_SIM_IDLE_W": "20", "BENCH_SIM_J_PER_TOKEN": "0.05"}
    bench("run", "lengths.yaml", timeout=300, BENCH_PROBES="sim", BENCH_SIM_EMISSION="emission", **law)
    lab = Lab(tmp_path / "results")
    lab.ingest()
    # a busy machine makes the mock engine late, and so the trials not valid: tokens and joules are what they are
    (sweep,) = length_sweeps(replace(record, status=Status.VALID) for record in records(lab))
    assert (sweep.quality, sweep.lengths) == ("simulated", 9)
    assert isinstance(sweep.split, EnergySplit), sweep.split
    with capsys.disabled():
        sys.stdout.write(f"\n{sweep.split}\n")
    # one of three 95% intervals misses in every seventh run; how often they hold is counted in tests/analysis
    assert sweep.split.j_per_input_tok.value == pytest.approx(0, abs=5e-5)
    assert sweep.split.j_per_output_tok.value == pytest.approx(0.05, rel=0.01)
    assert sweep.split.idle_w.value == pytest.approx(20, rel=0.02)


@pytest.mark.proof
@pytest.mark.alone
@pytest.mark.parametrize("law", [{}, {"COUNTER": "off"}, {"COUNTER": "off", "NOISE": "0.02", "SEED": "1"}, {"UPDATE_MS": "100"}])
def test_a_minute_by_counter_and_by_integral(
    bench: BenchCommand, capsys: pytest.CaptureFixture[str], law: dict[str, str]
) -> None:
    metrics = run(bench, seconds=60, idle_w=20, j_per_token=0.05, **law)
    found, truth = metrics["j_per_output_tok_simulated"], analytic(20, 0.05, metrics["output_tok_per_s"]["value"])
    with capsys.disabled():
        sys.stdout.write(
            f"\nsim {law}: {found['value']:.5f} J/token ({found['low']:.5f} to {found['high']:.5f}, "
            f"{(found['high'] - found['low']) / 2 / found['value']:.2%}), by the law: {truth:.5f}\n"
        )
    check(metrics, 20, 0.05)
    method = "integral" if "COUNTER" in law else "counter"
    assert metrics["j_per_output_tok_simulated"]["source"].startswith(method)
