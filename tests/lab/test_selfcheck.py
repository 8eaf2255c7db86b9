"""The self-check: how it judges a rung, what it sums up, and a short climb on the real mock engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bench.clock import SYSTEM
from bench.lab import selfcheck
from bench.lab.selfcheck import Rung, SelfCheck
from bench.mock.truth import Spread, Truth
from tests.conftest import BenchCommand


def spread(p99: float | None) -> Spread:
    return Spread(n=1000, mean=p99, p50=p99, p90=p99, p99=p99, max=p99)


def a_truth(*, ttft_ms: float = 57.0, icl_ms: float = 21.0, saturated: bool = False) -> Truth:
    return Truth(
        from_ns=0,
        to_ns=10**9,
        seconds=1.0,
        requests=10,
        requests_unfinished=0,
        ttft_ms=spread(ttft_ms),
        icl_ms=spread(icl_ms),
        itl_ms=spread(icl_ms),
        e2e_ms=spread(1000.0),
        request_read_ms=spread(0.1),
        requests_completed=10,
        requests_per_s=10.0,
        input_tokens=10,
        output_tokens=10,
        output_chunks=10,
        output_tok_per_s=10.0,
        lag_ms=spread(0.3),
        server_saturated=saturated,
    )


@pytest.mark.parametrize(
    ("ttft_ms", "icl_ms", "server", "client", "verdict"),
    [
        (58.9, 21.5, False, False, "true"),
        (60.0, 21.5, False, False, "off"),
        (57.0, 24.0, False, False, "off"),
        (332.0, 21.0, False, False, "off"),
        (None, 21.0, False, False, "too_few"),
        (57.0, None, False, False, "too_few"),
        (57.0, 21.0, False, True, "client_saturated"),
        (57.0, 21.0, True, True, "server_saturated"),
    ],
)
def test_a_rung_is_true_within_2_ms_or_5_percent(
    ttft_ms: float | None, icl_ms: float | None, server: bool, client: bool, verdict: str
) -> None:
    truth = a_truth(saturated=server)
    assert selfcheck.judge(ttft_ms=ttft_ms, icl_ms=icl_ms, truth=truth, client_saturated=client) == verdict


def a_rung(streams: int, verdict: str) -> Rung:
    return Rung(
        client="bench",
        streams=streams,
        chunks_per_s=streams * 49.0,
        ttft_p99_ms=57.0,
        true_ttft_p99_ms=57.0,
        icl_p99_ms=21.0,
        true_icl_p99_ms=21.0,
        cpu_us_per_chunk=8.0,
        verdict=verdict,  # type: ignore[arg-type]
    )


def check_of(*rungs: Rung) -> SelfCheck:
    return selfcheck.summed(rungs, (), host_id="h", bench_version="0", cores=2)


def test_the_limit_is_the_highest_true_rung() -> None:
    check = check_of(a_rung(100, "true"), a_rung(200, "off"), a_rung(400, "true"), a_rung(600, "client_saturated"))
    assert (check.limit_streams, check.limit_chunks_per_s, check.limited_by) == (400, 400 * 49.0, "client_saturated")


def test_without_a_true_rung_there_is_no_limit() -> None:
    check = check_of(a_rung(100, "server_saturated"), a_rung(200, "off"))
    assert (check.limit_streams, check.limit_chunks_per_s, check.limited_by) == (None, None, "server_saturated")


def test_a_rung_that_cant_be_told_limits_nothing() -> None:
    check = check_of(a_rung(10, "too_few"), a_rung(100, "true"), a_rung(200, "too_few"))
    assert (check.limit_streams, check.limited_by) == (100, None)


def test_a_limit_is_known_only_for_its_own_host(tmp_path: Path) -> None:
    check = check_of(a_rung(100, "true"))
    selfcheck.save(tmp_path, check)
    assert selfcheck.known_limit(tmp_path, "h") == 4900.0
    assert selfcheck.known_limit(tmp_path, "other") is None
    selfcheck.save(tmp_path, replace(check, limit_chunks_per_s=9.0))
    assert selfcheck.known_limit(tmp_path, "h") == 9.0


@pytest.mark.parametrize("damage", [b"", b"{}", b"not json", b'{"limit_chunks_per_s": "many"}'])
def test_a_damaged_file_is_no_limit(tmp_path: Path, damage: bytes) -> None:
    selfcheck.save(tmp_path, check_of(a_rung(100, "true"))).write_bytes(damage)
    assert selfcheck.known_limit(tmp_path, "h") is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_it_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "selfcheck", "--seconds", "60", "--streams", "2"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "BENCH_RESULTS": str(tmp_path / "results")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as check:
        while not list(tmp_path.glob("bench-mock-*/url")):
            assert check.poll() is None
            SYSTEM.sleep(0.01)
        started = psutil.Process(check.pid).children(recursive=True)
        check.send_signal(number)
        _, said = check.communicate(timeout=30)
    assert (check.returncode, said.count(b"Traceback")) == (130, 0)
    assert psutil.wait_procs(started, timeout=30)[1] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.alone
def test_a_short_climb(bench: BenchCommand, tmp_path: Path) -> None:
    done = bench("selfcheck", "--seconds", "2", "--streams", "10", "--no-reference", "--json")
    assert done.returncode in (0, 1), done.stderr
    check = json.loads(done.stdout)
    (rung,) = check["rungs"]
    assert rung["chunks_per_s"] == pytest.approx(10 * 50.0, rel=0.15)
    assert rung["verdict"] in ("too_few", "client_saturated", "server_saturated")
    assert check["limit_chunks_per_s"] is None
    assert len(list((tmp_path / "results" / "selfcheck").glob("*.json"))) == 1
