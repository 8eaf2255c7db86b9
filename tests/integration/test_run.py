"""`bench run` from the outside, on the mock engine: what a person types, what comes back, and the exit code."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import mock
from bench.reports.advice import ONLY_BUSY
from tests.conftest import BenchCommand, undisturbed, with_flags

QUICK = ("--duration", "1s", "--warmup", "0.3s", "--grace", "2s", "--idle", "0s", "--repeats", "1")
ATTACH = ("run", "--engine", "openai", "--model", "mock", "--batch-size", "4", "--output-tokens", "4", *QUICK)
SLOW = ("--engine-arg", "ttft_ms=200", "--engine-arg", "gap_ms=100")  # so that a busy machine leaves a trial valid
MOCK = ("run", "--engine", "mock", "--model", "mock", "--batch-size", "4", "--output-tokens", "4", *SLOW, *QUICK)


def parsed(text: str) -> dict[str, Any]:
    """The one JSON object on stdout."""
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


def only_trial(text: str) -> dict[str, Any]:
    """The single trial of a run's JSON."""
    trials = parsed(text)["trials"]
    assert len(trials) == 1
    trial: dict[str, Any] = trials[0]
    return trial


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A plain mock server, attached to as a stranger's endpoint would be."""
    with mock.start(ttft_ms=200, gap_ms=100) as server:
        yield server.url


def test_an_attached_endpoint_gives_one_json_object(bench: BenchCommand, endpoint: str, tmp_path: Path) -> None:
    done = bench(*with_flags(ATTACH, "--duration", "5s"), "--base-url", endpoint, "--json")
    trial = only_trial(done.stdout)
    assert done.returncode == (0 if undisturbed(trial) else 1), done.stderr
    assert trial["window"]["t1_ns"] - trial["window"]["t0_ns"] == pytest.approx(5e9, rel=1e-6)
    assert trial["metrics"]["ttft_ms"]["p50"] > 200
    assert trial["metrics"]["output_tok_per_s"]["value"] > 0
    assert trial["metrics"]["j_per_output_tok"].get("value") is None
    assert trial["metrics"]["j_per_output_tok"]["reason"]
    shards = list((tmp_path / "results" / "shards").rglob("trial.json"))
    assert len(shards) == 1


def test_the_smoke_suite_needs_no_model_and_fills_the_table(bench: BenchCommand) -> None:
    done = bench("run", "smoke")
    busy = ONLY_BUSY in done.stderr
    assert done.returncode == (1 if busy else 0), done.stderr + done.stdout
    assert "mock" in done.stdout
    table = bench("table")
    assert table.returncode == 0
    assert "mock" in table.stdout
    statuses = bench("sql", "select status from trials_wide where output_tok_per_s > 0", "--json")
    found = [row["status"] for row in json.loads(statuses.stdout)]
    assert len(found) >= 3
    assert set(found) <= {"valid", "invalid"} if busy else set(found) == {"valid"}


def test_a_launched_engine_tells_its_memory(bench: BenchCommand) -> None:
    done = bench(*with_flags(MOCK, "--duration", "5s"), "--json")
    trial = only_trial(done.stdout)
    assert done.returncode == (0 if undisturbed(trial) else 1), done.stderr
    assert trial["engine"]["name"] == "mock"
    assert trial["metrics"]["memory_used_peak_b"]["value"] > 1 << 20


def test_what_is_invalid_says_why_and_exits_1(bench: BenchCommand, endpoint: str) -> None:
    done = bench(*ATTACH, "--base-url", endpoint)  # a window of one second
    assert done.returncode == 1
    assert "too_short" in done.stdout


def test_plain_output_has_no_escape_codes(bench: BenchCommand, endpoint: str) -> None:
    done = bench(*ATTACH, "--base-url", endpoint)
    assert "\x1b" not in done.stdout + done.stderr


# --- bad input: one clear message each, the right exit code ----------------------------------------------------------

USAGE = [
    (("run",), "nothing to measure"),
    (("run", "quickstat"), "quickstart"),
    (("run", "--model", "m", "--engine", "llamacp"), "llamacpp"),
    (("run", "--model", "smollm2-135m-instruc", "--engine", "llamacpp"), "smollm2-135m-instruct"),
    (("run", "--model", "m", "--engine", "openai"), "--base-url"),
    (("run", "--model", "m", "--engine", "mock", "--duration", "soon"), "soon"),
    (("run", "--model", "m", "--engine", "mock", "--batch-size", "0"), "0"),
    (("run", "--model", "m", "--engine", "mock", "--batch-size", "4", "--request-rate", "2"), "--request-rate"),
    (("run", "--model", "m", "--engine", "mock", "--engine-arg", "ttft_ms"), "NAME=VALUE"),
    (("run", "--model", "m", "--engine", "mock", "--engine-arg", "tft_ms=3"), "ttft_ms"),
    (("run", "--nonsense"), "--nonsense"),
]


@pytest.mark.parametrize(("args", "message"), USAGE, ids=[" ".join(args) for args, _ in USAGE])
def test_usage_errors_exit_2_and_start_nothing(
    bench_here: BenchCommand, tmp_path: Path, args: tuple[str, ...], message: str
) -> None:
    done = bench_here(*args)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("trial.json"))


def test_an_unknown_suite_key_names_its_line_and_the_nearest_key(bench_here: BenchCommand, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ncases:\n  - model: mock\n    engine: mock\n    batchsize: 4\n", encoding="utf-8"
    )
    done = bench_here("run", "mine.yaml")
    assert done.returncode == 2
    assert "mine.yaml:5" in done.stderr
    assert "batch_size" in done.stderr


def test_an_endpoint_that_refuses(bench_here: BenchCommand) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = bench_here(*ATTACH, "--base-url", f"http://127.0.0.1:{port}", "--json")
    assert done.returncode == 1
    assert only_trial(done.stdout)["status"] == "failed"
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("quirk", "message"),
    [("unauthorized", "OPENAI_API_KEY"), ("model-404", "mock")],
)
def test_an_endpoint_that_turns_us_away(bench_here: BenchCommand, quirk: str, message: str) -> None:
    with mock.start(ttft_ms=5, gap_ms=1, quirks=(quirk,)) as server:
        done = bench_here(*ATTACH, "--base-url", server.url, "--json", OPENAI_API_KEY="sk-very-secret")
    assert done.returncode == 1
    assert message in done.stderr
    assert "sk-very-secret" not in done.stderr + done.stdout
    assert only_trial(done.stdout)["status"] == "failed"


def test_a_model_that_is_not_served_lists_what_is(bench_here: BenchCommand, endpoint: str) -> None:
    done = bench_here(*with_flags(ATTACH, "--model", "mok"), "--base-url", endpoint)
    assert done.returncode in (1, 2)
    assert "mock" in done.stderr


@pytest.mark.parametrize("quirk", ["status=500", "truncate=3", "error-in-stream=2", "empty-reply", "reset=2"])
def test_failing_requests_invalidate_the_trial_and_never_become_numbers(bench_here: BenchCommand, quirk: str) -> None:
    with mock.start(ttft_ms=5, gap_ms=1, quirks=(quirk,)) as server:
        done = bench_here(*ATTACH, "--base-url", server.url, "--json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    trial = only_trial(done.stdout)
    assert trial["status"] in ("invalid", "failed")
    requests = trial["metrics"].get("requests_per_s", {}).get("value")
    assert not requests


def test_an_engine_that_dies_at_start_shows_its_last_words(bench_here: BenchCommand) -> None:
    done = bench_here(*MOCK, "--engine-arg", "quirk=fail-start", "--json")
    assert done.returncode == 1
    assert only_trial(done.stdout)["status"] == "failed"
    assert "  | " in done.stderr


def test_an_engine_that_dies_in_mid_run_fails_its_trial(bench_here: BenchCommand) -> None:
    done = bench_here(*MOCK, "--engine-arg", "quirk=die-after=8", "--json")
    assert done.returncode == 1
    trial = only_trial(done.stdout)
    assert trial["status"] == "failed"
    assert "engine" in trial["error"] or "mock" in trial["error"]


def test_a_results_folder_that_is_a_file(bench_here: BenchCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    done = bench_here(*MOCK, "--results", str(tmp_path / "file" / "results"))
    assert done.returncode == 1
    assert "file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_one_message_and_finished_trials_stay(bench: BenchCommand, tmp_path: Path) -> None:
    """A small file size limit stands for the full disk: both fail in write()."""
    import resource
    import subprocess
    import sys

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [sys.executable, "-m", "bench", *MOCK, "--json"],
        cwd=tmp_path,
        env={**os.environ, "BENCH_RESULTS": str(tmp_path / "results")},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr


def test_two_runs_at_once_on_one_results_folder(bench: BenchCommand, endpoint: str, tmp_path: Path) -> None:
    codes: list[int] = []

    def one() -> None:
        codes.append(bench(*with_flags(ATTACH, "--duration", "5s", "--repeats", "2"), "--base-url", endpoint).returncode)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == 2
    assert set(codes) <= {0, 1}  # two at once may spoil each other's numbers, never each other's files
    count = bench("sql", "select count(*) as n, count(distinct run_id) as runs from trials", "--json")
    assert json.loads(count.stdout) == [{"n": 4, "runs": 2}]
