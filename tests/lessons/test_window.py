"""Numbers over a stretch of time in which something else was going on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.records import LengthSpec, LoadSpec, Telemetry, Window
from bench.timing import measure
from bench.timing.requests import observe
from tests.lessons.path import measured, middle, number, on_mock, truth_of
from tests.load.scripted import Exchange, ScriptedServer
from tests.load.test_loops import slow
from tests.mock.wire import LocalMock
from tests.timing.builders import (
    ENERGY,
    Request,
    S,
    closed_loop,
    make_case,
    make_device,
    make_load,
    make_log,
    poll,
    steady,
    telemetry,
    window_ms,
)

WINDOW = window_ms(0, 10_000)


def test_requests_that_overlap_the_warm_up_are_in_no_latency_and_their_tokens_count(tmp_path: Path) -> None:
    with LocalMock(ttft_ms=30.0, gap_ms=10.0) as server:
        trial = on_mock(
            server, tmp_path, load=LoadSpec(kind="closed", batch_size=6), output_tokens=LengthSpec(mean=20), duration_s=1.0
        )
        truth = truth_of(server, trial)
    log, window, members = trial.log, trial.window, trial.members()
    chunk_in = (log.chunk_ns >= window.t0_ns) & (log.chunk_ns < window.t1_ns)
    straddling = chunk_in & (log.sent_ns[log.chunk_request] < window.t0_ns)
    assert straddling.sum() > 0
    assert trial["ttft_ms"].n == members.sum() < len(log)
    assert number(trial["output_tok_per_s"]) == pytest.approx(chunk_in.sum() / window.seconds)
    assert number(trial["output_tok_per_s"]) == pytest.approx(truth["output_tok_per_s"], rel=0.15)


def test_a_cold_start_that_ended_before_the_window_leaves_no_trace_in_it() -> None:
    cold = [steady(-900.0 + i, ttft_ms=800, gap_ms=50, n=8) for i in range(40)]
    found = measure(make_case(), make_load(make_log([*cold, *closed_loop()]), WINDOW), Telemetry(), {}, {}).metrics
    alone = measure(make_case(), make_load(make_log(closed_loop()), WINDOW), Telemetry(), {}, {}).metrics
    assert found["ttft_ms"] == alone["ttft_ms"]
    assert found["e2e_ms"] == alone["e2e_ms"]
    assert number(found["output_tok_per_s"]) == pytest.approx(number(alone["output_tok_per_s"]) + 40 * 6 / 10)


def test_the_window_holds_neither_fill_nor_drain(tmp_path: Path) -> None:
    """A run of whole requests divided by its whole time has an empty pipeline at both ends."""
    batch = 5
    with LocalMock(ttft_ms=50.0, gap_ms=10.0) as server:
        trial = on_mock(
            server, tmp_path, load=LoadSpec(kind="closed", batch_size=batch), output_tokens=LengthSpec(mean=16), duration_s=1.0
        )
    log, window = trial.log, trial.window
    assert number(trial["in_flight_mean"]) == pytest.approx(batch, rel=0.1)
    assert log.sent_ns.min() < window.t0_ns
    assert log.sent_ns.max() >= window.t1_ns  # refilled until the window's requests had ended
    first_of_slot = log.chunk_ns[np.searchsorted(log.chunk_request, np.arange(batch))]
    assert first_of_slot.max() < window.t0_ns


def test_a_whole_job_with_its_fill_and_drain_says_that_it_is_one() -> None:
    """Four slots of four requests each, begun one after another: the job's rate is below the steady one, and is marked."""
    steady_state = make_log(closed_loop(seconds=10))
    job = make_log([steady(500.0 * slot + 190.0 * i, n=8) for slot in range(4) for i in range(4)])
    window = Window(t0_ns=0, t1_ns=int(job.chunk_ns.max()) + 1, kind="whole_job")
    job_rate = measure(make_case(), make_load(job, window), Telemetry(), {}, {}).metrics["output_tok_per_s"]
    rate = measure(make_case(), make_load(steady_state, WINDOW), Telemetry(), {}, {}).metrics["output_tok_per_s"]
    assert number(job_rate) == pytest.approx(16 * 8 / window.seconds)
    assert number(job_rate) < 0.5 * number(rate)
    assert window.kind == "whole_job"


def test_the_burst_at_start_up_is_not_the_p99(tmp_path: Path) -> None:
    """All slots begin at once and the engine takes them one after another; that wave is over before the window opens."""
    batch = 4

    def reply(x: Exchange) -> None:
        slow(x, 0.8 if x.number < batch else 0.005)

    with ScriptedServer(reply) as server:
        trial = measured(server.url, tmp_path, load=LoadSpec(kind="closed", batch_size=batch), warmup_s=0.0, duration_s=1.5)
    ttft = trial["ttft_ms"]
    assert ttft.n >= 100
    assert ttft.p99 is not None
    assert ttft.p99 < 800.0
    assert np.flatnonzero(trial.members()).min() >= batch


def test_startup_bursts_stand_in_the_p99_of_a_run_without_a_window() -> None:
    """The same log, once over its window and once from the first request on: what leaving out the warm-up is worth."""
    wave = [steady(-1000.0 + i, ttft_ms=600, n=8) for i in range(4)]
    log = make_log([*wave, *closed_loop(lead_s=0.0)])
    inside = measure(make_case(), make_load(log, WINDOW), Telemetry(), {}, {}).metrics["ttft_ms"]
    all_of_it = measure(make_case(), make_load(log, window_ms(-1000, 10_000)), Telemetry(), {}, {}).metrics["ttft_ms"]
    assert inside.p99 == pytest.approx(50)
    assert all_of_it.p99 is not None
    assert all_of_it.p99 > 500


def step_w(t: float) -> float:
    """300 W while the window lasts, 50 W before and after."""
    return 300.0 if 0.0 <= t < 10.0 else 50.0


@pytest.mark.parametrize("offset_s", [0.0, 0.013, 0.05, 0.099])
@pytest.mark.parametrize("counter", [True, False], ids=["counter", "power"])
def test_energy_and_tokens_are_of_one_window(offset_s: float, counter: bool) -> None:
    """Polls don't fall on the window's edges, readings go on beyond them, and 50 W before and after would pull the mean down.
    The joules are those of the ten seconds whose tokens are counted.
    """
    joules = lambda t: 300.0 * min(max(t, 0.0), 10.0) + 50.0 * (t + 2.0 - min(max(t, 0.0), 10.0))  # noqa: E731
    device = make_device(energy=ENERGY if counter else None)
    readings = poll(-2 + offset_s, 12 + offset_s, 0.1, power_w=step_w, energy_j=joules if counter else None)
    seen = telemetry([device], readings)
    found = measure(make_case(), make_load(make_log(closed_loop()), WINDOW), seen, {}, {}).metrics
    energy_j, rate = number(found["energy_j"]), number(found["output_tok_per_s"])
    assert energy_j == pytest.approx(3000.0, rel=0.01)
    assert number(found["j_per_output_tok"]) == pytest.approx(energy_j / (10.0 * rate))
    later = Window(t0_ns=WINDOW.t0_ns + 2 * S, t1_ns=WINDOW.t1_ns + 2 * S)
    moved = measure(make_case(), make_load(make_log(closed_loop(until_s=12)), later), seen, {}, {}).metrics
    assert number(moved["energy_j"]) == pytest.approx(8 * 300.0 + 2 * 50.0, rel=0.02)


def test_no_peak_lies_below_the_average(tmp_path: Path) -> None:
    """A tool that counts chunks for its peak and tokens for its mean shows a peak of a quarter of the mean at four tokens a
    chunk. Here both come from one count: the busiest block is at least the mean, and chunks are no tokens.
    """
    with LocalMock(ttft_ms=20.0, gap_ms=5.0, quirks=("multi-token=4", "usage-every-chunk")) as server:
        trial = on_mock(
            server, tmp_path, load=LoadSpec(kind="closed", batch_size=4), output_tokens=LengthSpec(mean=64), duration_s=1.0
        )
    mean = number(trial["output_tok_per_s"])
    blocks = observe(trial.case, trial.log, trial.window).blocks.output_tokens
    assert blocks is not None
    peak = blocks.max() * len(blocks) / trial.window.seconds
    chunk_in = (trial.log.chunk_ns >= trial.window.t0_ns) & (trial.log.chunk_ns < trial.window.t1_ns)
    assert peak >= mean
    assert mean == pytest.approx(4 * chunk_in.sum() / trial.window.seconds)


def test_a_peak_below_its_mean_that_an_engine_tells_is_refused() -> None:
    told = {"kv_cache_util_mean": 0.8, "kv_cache_util_peak": 0.3}
    found = measure(make_case(), make_load(make_log([Request()]), WINDOW), Telemetry(), {}, told).metrics
    assert found["kv_cache_util_peak"].value is None
    assert found["kv_cache_util_mean"].reason == "the engine told a peak of 0.3 below its mean of 0.8"


def test_latencies_of_a_short_window_do_not_come_from_its_survivors_alone(tmp_path: Path) -> None:
    """Requests of the window are followed to their end beyond it: cutting at t1 would keep the quick ones only."""
    with LocalMock(ttft_ms=30.0, gap_ms=25.0) as server:
        trial = on_mock(
            server, tmp_path, load=LoadSpec(kind="closed", batch_size=3), output_tokens=LengthSpec(mean=16), duration_s=0.5
        )
    members = trial.members()
    assert (trial.log.closed_ns[members] >= trial.window.t1_ns).any()
    assert trial["e2e_ms"].n == members.sum()
    assert middle(trial["e2e_ms"]) >= 30.0 + 15 * 25.0 - 1.0


def test_a_job_that_is_not_streamed_has_a_window_and_no_ttft(tmp_path: Path) -> None:
    """Its content is there when its replies are; without a stream nobody saw a first token."""
    with LocalMock(ttft_ms=20.0, gap_ms=2.0) as server:
        trial = on_mock(
            server,
            tmp_path,
            load=LoadSpec(kind="closed", batch_size=2, num_prompts=6),
            output_tokens=LengthSpec(mean=8),
            stream=False,
        )
    assert trial.window.kind == "whole_job"
    assert trial.window.t1_ns == trial.log.closed_ns.max() + 1
    assert number(trial["output_tok_per_s"]) * trial.window.seconds == pytest.approx(48)
    assert number(trial["requests_per_s"]) * trial.window.seconds == pytest.approx(6)
    assert middle(trial["e2e_ms"]) >= 20.0 + 7 * 2.0 - 0.5
    assert (trial["ttft_ms"].p50, trial["tpot_ms"].p50) == (None, None)
